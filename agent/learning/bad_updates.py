"""`BadUpdates` counts updates that were skipped because something was not finite.

One bad batch in a million updates is no reason to lose a run, and nothing of it has reached the
weights (agent/learning/learner.py). Ten in a row are no accident. The batch is kept for inspection,
in

    <run>/bad_updates/update_000000041.pt

which `torch.load(weights_only=True)` reads; docs/troubleshooting.md shows how.
Next to read: agent/learning/non_finite.py, which finds out what was bad.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ritornello.agent.algorithms.batch import Batch
from ritornello.core.atomic_file import atomic_path, remove_temporaries
from ritornello.core.errors import PlatformError
from ritornello.core.saved_state import item, whole

FOLDER = "bad_updates"
MAX_FILES = 5  # made by a session, and kept in a run
MAX_FILE_BYTES = 32_000_000  # of a larger batch, the bad unrolls and as many others as fit
# The first few are told one by one; of a run that has one now and then, only each hundredth.
TOLD_ONE_BY_ONE = 5
TOLD_EACH = 100

log = logging.getLogger(__name__)


AGAIN = "lower --lr, in a new run or, if one was saved, from an earlier checkpoint"
# What to do, by culprit.
ADVICE = {
    "reward": "An environment gave this reward: look at what its step() returns. With "
    "--debug=True the worker that is given it names the environment.",
    "observation": "An environment showed this: look at what its reset() and step() return. With "
    "--debug=True the worker that is shown it names the environment.",
    "weights": f"Training has diverged: {AGAIN}.",
    "memory": "The memory of the agent that acted has diverged: lower --lr, or look whether "
    "observations are far from 1.",
    "ratio": "The probabilities of actions have diverged, those of today's policy or of the one "
    f"that acted: {AGAIN}.",
    "value": f"Values have diverged: {AGAIN}, or give "
    "--reward_clipping_method=abs_one_sign in a new run.",
    "gradient": f"The loss is finite, but it is too steep: {AGAIN}.",
    "learner": "Its own log says what was bad, and it keeps the batch.",
}
# Of other culprits, before any update. There is no checkpoint yet, and nothing has diverged.
AT_START = (
    "Nothing is trained yet: look at the network (--model) or the weights that were loaded, and at "
    "how large rewards and observations are."
)


class NonFiniteUpdate(PlatformError):
    """A loss or a gradient is NaN or infinite: the update was not made, and nothing has moved."""

    def __init__(self, update: int, culprit: Culprit) -> None:
        """Say that update number `update` could not be made, and which quantity was bad first."""
        is_early = update == 0 and culprit.name not in ("reward", "observation", "learner")
        advice = AT_START if is_early else ADVICE[culprit.name]
        super().__init__(
            f"update {update} cannot be made: {culprit.what}; expected finite numbers. {advice}"
        )
        self.update = update
        self.culprit = culprit


@dataclass(frozen=True)
class Culprit:
    """The first quantity that was not finite."""

    name: str  # a key of ADVICE
    what: str  # what is wrong with it, and where
    columns: tuple[int, ...] = ()  # unrolls of the batch that hold something that is not finite


class TooManyBadUpdates(PlatformError):
    """So many updates in a row could not be made that going on makes no sense."""


class BadUpdates:
    """Counts the updates that were skipped. Not thread-safe: the learner's thread owns it."""

    def __init__(self, run: Path, limit: int, *, rank: int = 0) -> None:
        """Start with none. A folder for the batches is made in that of the run when it is needed.

        `limit` skipped updates in a row end the run. `rank` is the number of the learner: each of
        several learners keeps its own batches.
        """
        self.folder = run / FOLDER
        self.count = 0  # since the start of the run
        self._limit = limit
        self._suffix = f"-rank{rank}" if rank else ""
        self._in_a_row = 0
        self._first = ""  # what was wrong with the first of them, and where its batch is
        self._files = 0  # made in this session
        if self.folder.is_dir():
            remove_temporaries(self.folder)

    def good(self) -> None:
        """Record that an update was made."""
        self._in_a_row = 0

    def note(self, error: NonFiniteUpdate, batch: Batch, update: int) -> None:
        """Record that update `update` could not be made; the next batch is for the same number.

        If the disk is full, only the file of the batch is lost.

        Raises:
          TooManyBadUpdates: if this is the last of `limit` in a row.
        """
        self.count += 1
        self._in_a_row += 1
        is_told = self.count <= TOLD_ONE_BY_ONE or self.count % TOLD_EACH == 0
        if self._in_a_row == 1:  # of the others in a row, the weights are the same
            kept = self._save(error, batch, update)
            self._first = f"{error} {kept}"
        if is_told:
            log.warning(
                "skipped %d in a row (the run ends at --max_bad_updates=%d), %d in all: %s",
                self._in_a_row,
                self._limit,
                self.count,
                self._first if self._in_a_row == 1 else error,
            )
        row = self._in_a_row
        if row >= self._limit:
            self._in_a_row = 0  # who resumes the run gets as many again
            raise TooManyBadUpdates(
                f"{row} updates in a row could not be made, as many as "
                f"--max_bad_updates={self._limit} bears; nothing has moved since update {update}. "
                f"The first: {self._first}"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the counters, as plain types."""
        return {"count": self.count, "in_a_row": self._in_a_row, "first": self._first}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict`."""
        self.count = whole(state, "count")
        self._in_a_row = whole(state, "in_a_row")
        self._first = item(state, "first", str)

    def _save(self, error: NonFiniteUpdate, batch: Batch, update: int) -> str:
        """Keep the batch for inspection; return a sentence that says where, or why not."""
        if self._files >= MAX_FILES:
            return f"Its batch was not kept: {MAX_FILES} others were, in {self.folder}."
        if error.culprit.name == "learner":
            return "This learner's batch is sound."
        path = self.folder / f"update_{update:09d}{self._suffix}.pt"
        try:
            self.folder.mkdir(exist_ok=True)
            with atomic_path(path) as temporary:
                temporary.write_bytes(_packed(error, batch, update))
            self._drop_old(keep=path)
        except OSError as problem:
            return f"Its batch could not be kept in {path}: {problem}."
        self._files += 1
        return f"Its batch is in {path}."

    def _drop_old(self, keep: Path) -> None:
        newest_first = sorted(self.folder.glob("update_*.pt"), reverse=True)
        kept = [keep, *(path for path in newest_first if path != keep)][:MAX_FILES]
        for path in newest_first:
            if path not in kept:
                path.unlink(missing_ok=True)


def _packed(error: NonFiniteUpdate, batch: Batch, update: int) -> bytes:
    """Return the file: tensors on the CPU and plain types."""
    nbytes = sum(tensor.nbytes for tensor in batch.tensors().values())
    count = max(1, min(batch.size, MAX_FILE_BYTES * batch.size // max(nbytes, 1)))
    bad = error.culprit.columns
    columns = sorted([*bad, *(c for c in range(batch.size) if c not in bad)][:count])
    part = batch.of_columns(columns)
    data = io.BytesIO()  # so that nobody but the operating system says that the disk is full
    torch.save(
        {
            "update": update,
            "culprit": error.culprit.name,
            "message": str(error),
            "bad_unrolls": list(bad),
            "unrolls": columns,
            "batch": {name: tensor.cpu() for name, tensor in part.tensors().items()},
        },
        data,
    )
    return data.getvalue()
