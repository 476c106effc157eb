"""The model folder of the best model by evaluation, in the run folder: `best_evaluated/`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ritornello.core.atomic_file import TEMPORARY_SUFFIX
from ritornello.core.errors import CheckpointError
from ritornello.core.files import disk
from ritornello.core.run_layout import FLAGS
from ritornello.core.saved_state import StateError, number
from ritornello.metrics.run_files import set_aside

if TYPE_CHECKING:
    from ritornello.agent.stored.model_file import ShippedModel

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
    try:
        return number(_load(folder / BEST).facts, SCORE, default=None)
    except (CheckpointError, StateError):
        return None


def set_later_aside(folder: Path, updates: int, at: datetime) -> Path | None:
    """Rename the best model in the folder of a run if it is of later updates than `updates`.

    Return its new name, which contains the time `at`; None if it is not renamed.

    Raises:
      OSError: if the folder cannot be written to.
    """
    try:
        best = _load(folder / BEST)
    except CheckpointError:  # it is in nobody's way: the next best one takes its place
        return None
    return set_aside(folder / BEST, at) if best.updates > updates else None


def _load(best: Path) -> ShippedModel:
    """Return the model in a folder; one that a kill has half replaced is replaced first.

    Raises:
      CheckpointError: if there is none, or it is damaged.
    """
    from ritornello.agent.stored.model_file import FACTS, WEIGHTS, load_model

    try:
        return load_model(best)
    except CheckpointError:
        if not (best / FACTS).is_file():  # it is the first to take its place
            raise
    for name in (FLAGS, WEIGHTS):  # whole by then
        for left in best.glob(f".{name}.[0-9]*{TEMPORARY_SUFFIX}"):
            with contextlib.suppress(OSError):
                disk().replace(left, best / name)
    return load_model(best)
