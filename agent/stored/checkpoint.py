"""`load` returns what agent/stored/checkpoint_writer.py has saved, if it is sound."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from ritornello.agent.stored.checkpoint_file import DamagedFile, read_tree
from ritornello.agent.stored.checkpoint_folder import (
    REPLAY_NAME,
    UPDATE_NAME,
    numbered,
    replay_name,
    resolve,
    run_of,
)
from ritornello.agent.stored.checkpoint_tree import first_not_finite
from ritornello.agent.stored.checkpoint_writer import MAY_BE_NOT_FINITE
from ritornello.core.errors import CheckpointError, ConfigError
from ritornello.core.plain_data import check_plain, shown_text
from ritornello.core.saved_state import StateError, expect, item, number, whole, within
from ritornello.core.spec import MODEL_DECIDING_FIELDS, EnvSpec

MAX_SHOWN = 3  # damaged files in one message

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint: the state that was given to `save`, and where it came from."""

    path: Path
    state: dict[str, Any]
    notes: tuple[str, ...] = ()  # files passed over to find it, and why; for the run's log
    asked: Path | str = ""  # argument of `load`
    first: Path | None = None  # the file that this meant first
    can_resume: ClassVar[bool] = True  # False: there are weights alone

    @property
    def home(self) -> Path:
        """The run folder that the checkpoint belongs to, or else the folder that it lies in."""
        return run_of(self.path) or self.path.parent

    @property
    def name(self) -> str:
        """Name in the files of tests, which no other model with its `output_folder` has."""
        return self.path.stem

    def output_folder(self, results: Path | str) -> Path:
        """Return the folder for what is made with the checkpoint, such as the scores of a test.

        For a shipped model, and for a run that may not be written to, this is one in `results`.
        """
        if os.access(self.home, os.W_OK):
            return self.home
        place = self.home.resolve()
        mark = hashlib.sha256(str(place).encode()).hexdigest()[:8]  # other runs may have its name
        return Path(results) / f"{place.name}_{mark}"

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
        """Score by which a `best.pt` is the best; None for other files and earlier versions."""
        return number(self.state, "score", default=None)

    def load_replay(self, *, exact: bool = False) -> dict[str, Any] | None:
        """Return the saved contents of the buffers, or None if there are none.

        If those of this checkpoint are missing, because its process was killed after it wrote the
        weights, or damaged, they are those of the newest checkpoint before that are sound, and a
        warning says so.

        Args:
          exact: the contents have to fit the weights: no others will do.

        Raises:
          CheckpointError: if `exact` and the file is damaged, or if a file may not be read.
        """
        if not self.state.get("has_replay"):
            return None
        saved, notes = numbered(self.path.parent, REPLAY_NAME), list[str]()
        earlier = sorted((n for n in saved if n < self.updates), reverse=True)
        paths = {self.updates: self.replay_path, **{n: saved[n] for n in earlier}}
        for updates, path in paths.items():
            try:
                contents = read_tree(path)
            except DamagedFile as error:
                if exact:
                    raise CheckpointError(
                        f"{error} The model in {self.path.name} is sound: give "
                        "--load_replay=False to resume it with empty buffers."
                    ) from error
                notes.append(str(error))
                continue
            if notes:
                start = f"The replay buffers start with the contents of update {updates}."
                logger.warning("%s %s", _in_short(notes), start)
            return contents
        logger.warning("%s The replay buffers start empty.", _in_short(notes))
        return None

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
    raise CheckpointError(f"{_in_short(notes)} Nothing sound is left at {url}.")


def _in_short(notes: list[str]) -> str:
    others = len(notes) - MAX_SHOWN
    more = [f"{others} others are no better."] if others > 0 else []
    return " ".join([*notes[:MAX_SHOWN], *more])


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
    """Raise StateError unless a state has what both tests and resumes of a run need.

    Of all other parts only the type is checked here; their owners check the contents when they load
    them.
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
