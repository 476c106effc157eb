"""Checkpoints: saved whole or not at all, verified when loaded, never executed.

What comes in is a tree of state dicts (model, optimiser, counters, random states, flags); what goes
out are files:

    checkpoints/
      update_000012000.pt       the last K, for resuming
      update_000012000.replay   contents of the buffers, if they are saved at all
      step_000001000000.pt      milestones, kept for ever
      best.pt                   the best mean return so far, with the score it was earned with

What holds of them:

* A file is written aside, read back (its checksums, not those of the replay contents), synced and
  renamed: a crash at any byte, or a full disk, leaves the checkpoint before it.
* An update is saved once: its files are never written to again, so none of them is paired with a
  file of another save.
* Weights come first, contents of the buffers second, and the newest checkpoint that has both goes
  last: a process that is killed meanwhile, or whose disk refuses the contents, goes on from the
  newest weights with the contents of an earlier checkpoint. Only of a reproducible run, which both
  have to fit exactly, contents come first.
* Weights, optimiser and everything else that the learner made are finite numbers. The writer
  refuses others and changes nothing; the reader passes over such a file as over a damaged one.
* A damaged file falls back to the one of the next lower update, with a warning that says which and
  why. Times of files, which a wrong clock could set, decide nothing.
* Files hold tensors and plain types only, so that reading one runs no code, and their names are
  plain, so that none leads out of its folder (agent/stored/checkpoint_file.py). What the flags in a
  checkpoint may not do is in wrappers/trusted_modules.py.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from ritornello.agent.stored.checkpoint_file import write_tree
from ritornello.agent.stored.checkpoint_folder import (
    BEST,
    MILESTONE_NAME,
    REPLAY_NAME,
    UPDATE_NAME,
    numbered,
    replay_name,
    update_name,
)
from ritornello.agent.stored.checkpoint_tree import encode, first_not_finite
from ritornello.core import faults
from ritornello.core.atomic_file import atomic_path, remove_temporaries
from ritornello.core.errors import CheckpointError
from ritornello.core.files import disk
from ritornello.metrics.run_files import set_aside

# What environments gave and what the user chose need not be finite: a reward may be infinite, and
# a threshold too. Such an update is not made (agent/learning/learner.py), so the weights stay
# sound.
MAY_BE_NOT_FINITE = ("flags", "env_spec", "replay", "serial", "tally")

logger = logging.getLogger(__name__)


class CheckpointWriter:
    """Saves the checkpoints of one run and drops old ones. Not thread-safe, on purpose."""

    def __init__(
        self,
        folder: Path | str,
        *,
        keep_last: int = 3,
        milestone_steps: int = 0,
        start_steps: int = 0,
    ) -> None:
        """Prepare the folder; remove what a killed process left half-written.

        Args:
          folder: the run's `checkpoints` folder, made if missing. Nobody else writes into it
            (`RunFolder.lock`).
          keep_last: K, number of regular checkpoints to keep, at least 1.
          milestone_steps: keep one checkpoint for ever per this many agent steps; 0 for none.
          start_steps: number of agent steps already done, in a resumed run.
        """
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_temporaries(self.folder)
        self._keep_last = keep_last
        self._milestone_steps = milestone_steps
        saved = numbered(self.folder, UPDATE_NAME)
        self._milestones_done = start_steps // milestone_steps if milestone_steps else 0
        if saved and self._milestones_done:
            # A kill, or a full disk, may have left the last one without its name.
            kept = {steps // milestone_steps for steps in numbered(self.folder, MILESTONE_NAME)}
            self._milestones_done -= self._milestones_done not in kept
        self._drop_replay(of=set(saved))

    def milestone_due(self, agent_steps: int) -> bool:
        """Whether a `save` now would also leave a milestone."""
        steps = self._milestone_steps
        return bool(steps) and agent_steps // steps > self._milestones_done

    def save(
        self,
        state: Mapping[str, Any],
        *,
        updates: int,
        agent_steps: int,
        replay: Mapping[str, Any] | None = None,
        replay_follows: bool = False,
    ) -> Path:
        """Save a checkpoint, unless its update is there, and drop those beyond K.

        Args:
          state: nested dicts and lists of tensors, arrays and plain types; see `encode`.
          updates: number of updates done, part of the file's name.
          agent_steps: number of agent steps done, which may be due for a milestone.
          replay: contents of the buffers, kept in a file of their own that is written before the
            state; None to leave them out.
          replay_follows: `save_replay` is called next; until it has succeeded, the newest
            checkpoint with contents stays beyond K.

        Returns:
          The path of the checkpoint.

        Raises:
          CheckpointError: if the disk is full or refuses, or the state is not finite outside of
            MAY_BE_NOT_FINITE. Nothing of the attempt is left, and the previous one is intact.
        """
        path = self.folder / update_name(updates)
        try:
            if not path.exists():
                self._write(path, state, replay, has_replay=replay_follows or replay is not None)
            # Whatever the disk refuses after this, weights must not pile up until it is full.
            self._drop_old(updates, replay_follows=replay_follows)
            if self.milestone_due(agent_steps):
                give_second_name(path, self.folder / f"step_{agent_steps:012d}.pt")
                self._milestones_done = agent_steps // self._milestone_steps
        except OSError as error:
            raise CheckpointError(
                f"{path} or a milestone is not saved: {error.strerror or error}."
            ) from error
        return path

    def save_replay(self, updates: int, contents: Mapping[str, Any]) -> int:
        """Add the contents of the buffers to the checkpoint of an update, and drop those beyond K.

        Returns:
          The size of their file in bytes.

        Raises:
          CheckpointError: if the disk is full or refuses. The weights of the update stay, and so
            does the newest checkpoint with contents.
        """
        path = self.folder / replay_name(updates)
        try:
            if not path.exists():
                write_tree(path, encode(contents))
            self._drop_old(updates)
            return path.stat().st_size
        except OSError as error:
            raise CheckpointError(f"{path} is not saved: {error.strerror or error}.") from error

    def _write(
        self,
        path: Path,
        state: Mapping[str, Any],
        replay: Mapping[str, Any] | None,
        *,
        has_replay: bool,
    ) -> None:
        contents = None if replay is None else encode(replay)
        tree = encode({**state, "has_replay": has_replay})
        _refuse_not_finite(tree)
        replay_path = path.with_suffix(".replay")
        try:
            if contents is not None:
                write_tree(replay_path, contents)
            faults.at("save.after_replay")
            write_tree(path, tree, verify=True)
        except BaseException:
            # It may be in its place, though the disk does not vouch for its name: then it needs
            # its contents.
            with contextlib.suppress(OSError):  # the first failure is what matters
                if not path.exists():
                    disk().unlink(replay_path)
            raise
        faults.at("save.after_pt")

    def save_best(self, state: Mapping[str, Any], *, score: float) -> Path:
        """Save `best.pt` in place of the previous one; it is never dropped and has no replay.

        `score`, which makes these weights the best, is kept with them (`Checkpoint.score`).

        Raises:
          CheckpointError: as `save`; the previous `best.pt` is intact.
        """
        path = self.folder / BEST
        tree = encode({**state, "has_replay": False, "score": score})
        _refuse_not_finite(tree)
        write_tree(path, tree, verify=True)
        return path

    def best_score(self) -> float | None:
        """Return the score of the present `best.pt`; None if there is none to beat."""
        path = self.folder / BEST
        if not path.is_file():
            return None
        from ritornello.agent.stored.checkpoint import load

        try:
            return load(path).score
        except CheckpointError:
            return None

    def set_best_aside(self) -> None:
        """Rename a `best.pt` whose score cannot be compared; the next one replaces none then."""
        path = self.folder / BEST
        if not path.is_file():
            return
        with contextlib.suppress(OSError):  # the save that follows has the same trouble
            aside = set_aside(path, datetime.now())
            logger.info("the best model over another number of games is now %s", aside)

    def _drop_old(self, updates: int, *, replay_follows: bool = False) -> None:
        """Drop regular checkpoints beyond K, the newest being `updates`, and stray replay contents.

        Checkpoints of later updates, which agent/stored/run_rewind.py has not set aside, stay. If
        `replay_follows`, so does the newest one that has contents.
        """
        held = numbered(self.folder, UPDATE_NAME)
        until_now = sorted(n for n in held if n <= updates)
        old = set(until_now[: -self._keep_last])
        if replay_follows:
            contents = numbered(self.folder, REPLAY_NAME)
            old.discard(max((n for n in until_now if n in contents), default=-1))
        for n in sorted(old):
            _drop(held.pop(n))
        self._drop_replay(of=set(held))

    def _drop_replay(self, of: set[int]) -> None:
        """Remove replay contents whose checkpoint is not in `of`, such as a failed save leaves."""
        for number_, path in numbered(self.folder, REPLAY_NAME).items():
            if number_ not in of:
                _drop(path)


def _drop(path: Path) -> None:
    """Remove a file that nobody needs; nothing is lost if it stays."""
    try:
        disk().unlink(path)
    except OSError as error:
        logger.debug("%s cannot be removed and stays: %s", path, error.strerror or error)


def _refuse_not_finite(tree: Any) -> None:
    """Raise CheckpointError if an encoded tree holds NaN or infinity, which `load` would refuse."""
    found = first_not_finite(tree, MAY_BE_NOT_FINITE)
    if found is not None:
        raise CheckpointError(
            f"{found}, expected finite numbers: this state is not saved, and the checkpoint before "
            "it is intact."
        )


def give_second_name(source: Path, target: Path) -> None:
    """Give a checkpoint a second name."""
    with atomic_path(target) as temporary:
        disk().link(source, temporary)
