"""The model folder of the best model by evaluation, in the run folder: `best_evaluated/`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from ritornello.agent.stored.model_file import FACTS, repair, save_model
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import parse_json, read_text
from ritornello.metrics.run_files import set_aside

BEST = "best_evaluated"
SCORE = "evaluation_score"  # key of the facts


def keep(
    folder: Path,
    weights: Mapping[str, torch.Tensor],
    flags: Mapping[str, Any],
    facts: Mapping[str, Any],
    score: float,
) -> None:
    """Put a model in the place of the best one in the folder of a run, with its score.

    The other arguments, and the error, are those of `save_model`.
    """
    if (folder / BEST).is_symlink():
        (folder / BEST).unlink()  # lest a model elsewhere be replaced
    save_model(folder / BEST, weights, flags, {**facts, SCORE: score})


def mend(folder: Path) -> float | None:
    """Undo what a killed process left half done; return the best model's score, if it is known.

    Args:
      folder: folder of the run.

    Raises:
      OSError: if the folder cannot be written to.
    """
    repair(folder / BEST)
    score = _facts(folder).get(SCORE)
    if isinstance(score, (int, float)) and math.isfinite(score):
        return float(score)
    return None


def set_later_aside(folder: Path, updates: int, at: datetime) -> Path | None:
    """Rename the best model if it is of later updates; return its new name, None if it stays.

    Args:
      folder: folder of the run, which is taken back.
      updates: number of updates to which it is taken back.
      at: the time in the new name.

    Raises:
      OSError: if the folder cannot be written to.
    """
    mend(folder)
    of_best = _facts(folder).get("updates")
    # One of which nothing is known is in nobody's way: the next best one takes its place.
    return set_aside(folder / BEST, at) if type(of_best) is int and of_best > updates else None


def _facts(folder: Path) -> dict[str, Any]:
    """Return what the folder says of its model, {} if there is none that can be read."""
    path = folder / BEST / FACTS
    try:
        facts = parse_json(read_text(path, "the file"), str(path)) if path.is_file() else {}
    except (ConfigError, OSError):
        return {}
    return facts if isinstance(facts, dict) else {}
