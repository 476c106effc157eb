"""The model folder of the best model by evaluation, in the run folder: `best_evaluated/`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from ritornello.core.errors import CheckpointError
from ritornello.core.saved_state import StateError, number
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
    """Replace the best model in the folder of a run by this one, with its score.

    The other arguments, and the error, are those of `save_model`.
    """
    from ritornello.agent.stored.model_file import save_model

    if (folder / BEST).is_symlink():
        (folder / BEST).unlink()  # lest a model elsewhere be replaced
    save_model(folder / BEST, weights, flags, {**facts, SCORE: score})


def best_score(folder: Path) -> float | None:
    """Return the score of the best model in the folder of a run; None if it has none."""
    from ritornello.agent.stored.model_file import load_model

    try:
        return number(load_model(folder / BEST).facts, SCORE, default=None)
    except (CheckpointError, StateError):
        return None


def set_later_aside(folder: Path, updates: int, at: datetime) -> Path | None:
    """Rename the best model in the folder of a run if it is of later updates than `updates`.

    Return its new name, which contains the time `at`; None if it is not renamed.

    Raises:
      OSError: if the folder cannot be written to.
    """
    from ritornello.agent.stored.model_file import load_model

    try:
        best = load_model(folder / BEST)
    except CheckpointError:  # it is in nobody's way: the next best one takes its place
        return None
    return set_aside(folder / BEST, at) if best.updates > updates else None
