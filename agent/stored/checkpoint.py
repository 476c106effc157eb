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
* Weights come first, contents of the buffers second, and older checkpoints go last: a process that
  is killed meanwhile goes on from the newest weights with the contents of an earlier checkpoint.
  Only of a reproducible run, which both have to fit exactly, contents come first.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from ritornello.agent.stored.checkpoint_file import DamagedFile, read_tree, write_tree
from ritornello.agent.stored.checkpoint_folder import (
    BEST,
    REPLAY_NAME,
    UPDATE_NAME,
    numbered,
    replay_name,
    resolve,
    run_of,
    update_name,
)
from ritornello.agent.stored.checkpoint_tree import encode, first_not_finite
from ritornello.core import faults
from ritornello.core.atomic_file import atomic_path, remove_temporaries
from ritornello.core.errors import CheckpointError, ConfigError
from ritornello.core.files import disk
from ritornello.core.plain_data import check_plain, shown_text
from ritornello.core.saved_state import StateError, expect, item, number, whole, within
from ritornello.core.spec import MODEL_DECIDING_FIELDS, EnvSpec

# What environments gave and what the user chose need not be finite: a reward may be infinite, and
# a threshold too. Such an update is not made (agent/learning/learner.py), so the weights stay
# sound.
MAY_BE_NOT_FINITE = ("flags", "env_spec", "replay", "serial", "tally")
MAX_SHOWN = 3  # damaged files in one message

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
        """Prepare the folder; removes what a killed process left half-written.

        Args:
          folder: the run's `checkpoints` folder; made if missing. Nobody else writes into it
            (`RunFolder.lock`).
          keep_last: K >= 1, how many regular checkpoints to keep.
          milestone_steps: keep one checkpoint for ever per this many agent steps; 0 for none.
          start_steps: agent steps already done, when a run is resumed.
        """
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_temporaries(self.folder)
        self._keep_last = keep_last
        self._milestone_steps = milestone_steps
        self._milestones_done = start_steps // milestone_steps if milestone_steps else 0
        self._drop_replay(of=set(numbered(self.folder, UPDATE_NAME)))

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
          updates: optimiser steps done; names the file.
          agent_steps: agent steps done; names the milestone.
          replay: contents of the buffers, kept in a file of their own and written before the state;
            None to leave them out.
          replay_follows: `save_replay` comes next, and drops what is beyond K.

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
            if self.milestone_due(agent_steps):
                give_second_name(path, self.folder / f"step_{agent_steps:012d}.pt")
                self._milestones_done = agent_steps // self._milestone_steps
            if not replay_follows:
                self._drop_old(updates)
        except OSError as error:
            raise CheckpointError(
                f"{path} or a milestone is not saved: {error.strerror or error}"
            ) from error
        return path

    def save_replay(self, updates: int, contents: Mapping[str, Any]) -> Path:
        """Save the contents of the buffers to the checkpoint of an update, and drop those beyond K.

        Raises:
          CheckpointError: if the disk is full or refuses. The weights of the update, and all
            earlier checkpoints with their contents, stay.
        """
        path = self.folder / replay_name(updates)
        if not path.exists():
            write_tree(path, encode(contents))
        self._drop_old(updates)
        return path

    def _write(
        self,
        path: Path,
        state: Mapping[str, Any],
        replay: Mapping[str, Any] | None,
        *,
        has_replay: bool,
    ) -> None:
        """Write the replay contents, if they are given, and then the state."""
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

        Args:
          state: see `save`.
          score: what these weights are the best by, kept with them (`Checkpoint.score`).

        Raises:
          CheckpointError: as `save`; the previous `best.pt` is intact.
        """
        path = self.folder / BEST
        tree = encode({**state, "has_replay": False, "score": score})
        _refuse_not_finite(tree)
        write_tree(path, tree, verify=True)
        return path

    def best_score(self) -> float | None:
        """Return the score of the `best.pt` that is there; None if there is none to beat."""
        path = self.folder / BEST
        try:
            return Checkpoint(path, _read(path)).score
        except CheckpointError:
            return None

    def _drop_old(self, updates: int) -> None:
        """Drop regular checkpoints beyond K, the newest being `updates`, and stray replay contents.

        Those of later updates, which nobody set aside (agent/stored/run_rewind.py), are not ours to
        drop.
        """
        held = numbered(self.folder, UPDATE_NAME)
        for old in sorted(n for n in held if n <= updates)[: -self._keep_last]:
            _drop(held.pop(old))
        self._drop_replay(of=set(held))

    def _drop_replay(self, of: set[int]) -> None:
        """Remove replay contents of no checkpoint in `of`, such as a failed save leaves."""
        for number_, path in numbered(self.folder, REPLAY_NAME).items():
            if number_ not in of:
                _drop(path)


def _drop(path: Path) -> None:
    """Remove a file that nobody needs; nothing is lost if it stays."""
    try:
        disk().unlink(path)
    except OSError as error:
        logger.debug("%s cannot be removed and stays: %s", path, error.strerror or error)


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint: the state that was given to `save`, and where it came from."""

    path: Path
    state: dict[str, Any]
    notes: tuple[str, ...] = ()  # what was passed over to find it, and why; for the run's log
    asked: Path | str = ""  # what `load` was asked for
    first: Path | None = None  # the file that this meant first
    can_resume: ClassVar[bool] = True  # False: there are weights alone

    @property
    def home(self) -> Path:
        """The run folder that it is of, or else the folder that it lies in."""
        return run_of(self.path) or self.path.parent

    def output_folder(self, results: Path | str) -> Path:
        """Return where to write what is made with it, such as the scores of a test.

        Args:
          results: parent folder for a shipped model's: that is a source, perhaps not writable.
        """
        return self.home

    @property
    def agent_steps(self) -> int:
        """Number of agent steps that were done."""
        return whole(self.state["tally"], "agent_steps")

    @property
    def updates(self) -> int:
        """Number of updates that were made."""
        return whole(self.state["tally"], "updates")

    @property
    def score(self) -> float | None:
        """What a `best.pt` is the best by; None of others, and of files of earlier versions."""
        return number(self.state, "score", default=None)

    def load_replay(self) -> dict[str, Any] | None:
        """Return the saved contents of the buffers, or None if there are none.

        Those of the newest checkpoint before, if this one's are not there: whoever saved it was
        ended between the weights and the contents.

        Raises:
          CheckpointError: if the file is damaged.
        """
        if not self.state.get("has_replay"):
            return None
        replay_path = self.replay_path
        if not replay_path.exists():
            found = numbered(self.path.parent, REPLAY_NAME)
            earlier = max((n for n in found if n < self.updates), default=None)
            logger.warning(
                "%s is not there: the replay buffers start %s", replay_path,
                "empty." if earlier is None else f"with the contents of update {earlier}.",
            )  # fmt: skip
            if earlier is None:
                return None
            replay_path = found[earlier]
        try:
            return read_tree(replay_path)
        except DamagedFile as error:
            raise CheckpointError(
                f"{error} The model in {self.path.name} is sound: give --load_replay=False to "
                "resume it with empty buffers."
            ) from error

    @property
    def replay_path(self) -> Path:
        """The file with the contents of the buffers, of a milestone as well, if there are any."""
        is_regular = UPDATE_NAME.fullmatch(self.path.name)
        return self.path.with_name(
            f"{self.path.stem}.replay" if is_regular else replay_name(self.updates)
        )

    def check_spec(self, current: EnvSpec) -> None:
        """Raise CheckpointError, with every difference, unless state["env_spec"] fits `current`."""
        saved = EnvSpec.from_dict(self.state["env_spec"])
        differences = [
            f"  {name}: {getattr(saved, name)} in the checkpoint, {getattr(current, name)} now"
            for name in MODEL_DECIDING_FIELDS
            if getattr(saved, name) != getattr(current, name)
        ]
        if differences:
            raise CheckpointError(
                f"{self.path} was trained on {shown_text(saved.env_id)} and does not fit "
                f"{current.env_id}:\n"
                + "\n".join(differences)
                + "\nGive the flags of that run (its flags.json), or start a new one."
            )


def load(url: Path | str) -> Checkpoint:
    """Load the checkpoint that `url` means (see `checkpoint_folder.resolve`) onto the CPU.

    If `url` is a folder and its file is damaged, or has weights that are not finite, the next file
    is used, with a warning that names both. If `url` is a file, no other file is used instead.

    Raises:
      CheckpointError: if there is none, none is sound, or it is of another format version.
    """
    paths, notes = resolve(url), list[str]()
    for path in paths:
        try:
            state = _read(path)
        except DamagedFile as error:
            notes.append(str(error))
            continue
        if notes:
            notes.append(f"Falling back to {path}.")
            logger.warning("%s", " ".join(notes))
        return Checkpoint(path, state, tuple(notes), asked=url, first=paths[0])
    if len(notes) > MAX_SHOWN:
        notes[MAX_SHOWN:] = [f"{len(notes) - MAX_SHOWN} others are no better."]
    raise CheckpointError(" ".join(notes) + f" Nothing sound is left at {url}.")


def _read(path: Path) -> dict[str, Any]:
    state = read_tree(path)
    try:
        check_run(state)
    except StateError as error:
        raise DamagedFile(f"{path} is not what this program saves: {error}.") from error
    found = first_not_finite(state, MAY_BE_NOT_FINITE)
    if found is not None:
        raise DamagedFile(f"{path} cannot be gone on from: {found}, expected finite numbers.")
    return state


def check_run(state: Mapping[str, Any]) -> None:
    """Raise StateError unless a state has what tests and resumes of a run both need.

    Of all other parts the type is checked here, and what they hold by their owners, when loaded.
    """
    flags = item(state, "flags", dict)
    try:
        check_plain(flags, "state['flags']")
    except ConfigError as error:
        raise StateError(str(error), "flags") from error
    with within("env_spec"):
        EnvSpec.from_dict(item(state, "env_spec", dict))
    with within("learner"):
        weights = item(item(state, "learner", dict), "model", dict)
        item(state["learner"], "optimiser", dict, default=None)
        with within("model"):
            for name in weights:
                item(weights, name, torch.Tensor)
                expect(type(name) is str, "names of weights")
    with within("tally"):
        whole(item(state, "tally", dict), "agent_steps")
        whole(state["tally"], "updates")
        item(state["tally"], "games", dict, default=None)
    for part in ("replay", "serial", "bad_updates", "control", "evaluation"):
        item(state, part, dict, default=None)
    item(state, "has_replay", bool, default=None)
    number(state, "score", default=None)


def _refuse_not_finite(tree: Any) -> None:
    """Raise CheckpointError if an encoded tree holds NaN or infinity: `load` refuses it."""
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
