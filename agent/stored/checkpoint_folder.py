"""The names in a `checkpoints` folder, and which file is meant by a folder.

agent/stored/checkpoint.py has the table of the files. Numbers in names decide what is newer, never
the times of files; and a name that leads to another folder is never followed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from ritornello.core.errors import CheckpointError
from ritornello.core.project import as_typed
from ritornello.core.run_layout import CHECKPOINTS

MODEL_WEIGHTS = "model.safetensors"  # name of the file in a model folder (model_file.py)
SHIPPED_MODELS = Path("models")
MAX_SHOWN = 5  # runs or models in a message
LATEST = "latest"
BEST = "best.pt"
UPDATE_NAME = re.compile(r"update_([0-9]{1,18})\.pt")
# A second save of the same update does not write over the contents that the first one refers to.
REPLAY_NAME = re.compile(r"update_([0-9]{1,18})(?:_[0-9]{1,9})?\.replay")
MILESTONE_NAME = re.compile(r"step_([0-9]{1,18})\.pt")


def update_name(updates: int) -> str:
    """Return the name of the regular checkpoint of an update."""
    return f"update_{updates:09d}.pt"


def newest_update(run: Path) -> int:
    """Return the update of the newest regular checkpoint in a run folder; -1 if there is none."""
    try:
        return max(numbered(run / CHECKPOINTS, UPDATE_NAME), default=-1)
    except OSError:  # it has no such folder, or none that can be read
        return -1


def unused_replay_path(path: Path) -> Path:
    """Return a name beside a checkpoint for its replay contents that no file has."""
    unused, number = path.with_suffix(".replay"), 1
    while unused.exists():
        number += 1
        unused = path.with_name(f"{path.stem}_{number}.replay")
    return unused


def inode_of(path: Path) -> int | None:
    """Return what tells a file from the one that took its place; None if there is none."""
    try:
        return path.stat().st_ino
    except OSError:
        return None


class Sight(NamedTuple):
    """What `url` means first at a moment. It is another one once a session has saved there."""

    url: Path | str
    first: Path | None  # None: nothing
    inode: int | None  # of `first`: the same update can be saved again

    @classmethod
    def of(cls, url: Path | str) -> Sight:
        """Look now."""
        try:
            first = resolve(url)[0]
        except CheckpointError:
            return cls(url, None, None)
        return cls(url, first, inode_of(first))


def run_of(file: Path) -> Path | None:
    """Return the run folder that a checkpoint file lies in; None if it lies elsewhere."""
    return file.parent.parent if file.parent.name == CHECKPOINTS else None


def resolve(url: Path | str) -> list[Path]:
    """Return the checkpoint files that `url` means, the best guess first.

    That is the one that `latest` names, then the others by their updates, the highest first, then
    milestones and `best.pt`.

    Args:
      url: a run folder, its checkpoints folder, or a checkpoint file.

    Raises:
      CheckpointError: if there is none.
    """
    return candidates(url)[0]


def candidates(url: Path | str) -> tuple[list[Path], list[str]]:
    """Return the files that `url` means, the best guess first, and what is odd about them."""
    path = Path(url).absolute()  # an environment may change the working directory
    try:
        if path.is_file():
            return [path], []
        folder = path / CHECKPOINTS if (path / CHECKPOINTS).is_dir() else path
        is_there = folder.is_dir()
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise CheckpointError(f"{str(path)[:200]} cannot be read: {error.strerror}.") from error
    if not is_there:
        raise CheckpointError(
            f"{url} does not exist. Expected a run folder (results/<run>), its checkpoints "
            "folder, a checkpoint file (.pt), a model folder (models/<name>), or a model on the "
            f"hub (hf:<owner>/<name>).{_what_is_nearby(path)}"
        )
    notes: list[str] = []
    found = [
        *_latest(folder, notes),
        *_newest_first(folder, UPDATE_NAME),
        *_newest_first(folder, MILESTONE_NAME),
        *([folder / BEST] if (folder / BEST).is_file() else []),
    ]
    if not found:
        runs = _runs_in(folder) or _runs_in(folder, "*/*")  # those of a sequence lie deeper
        for what, inside in (("run", runs), ("model", _models_in(folder))):
            if inside:
                raise CheckpointError(
                    f"{as_typed(folder)} holds {what}s, not a {what}: give one of "
                    f"{', '.join(inside)}."
                )
        raise CheckpointError(
            f"No checkpoint in {folder}. Expected update_*.pt, step_*.pt or best.pt there: the run "
            "may have ended before its first save (--save_model_period)."
        )
    return list(dict.fromkeys(found)), notes


def _latest(folder: Path, notes: list[str]) -> list[Path]:
    """Return the file that `latest` names, or none, and a note of why not."""
    pointer = folder / LATEST
    if not pointer.exists():
        return []
    try:
        with pointer.open("rb") as file:
            name = file.read(100).decode("utf-8", "replace").strip()
    except OSError as error:
        notes.append(f"{pointer} cannot be read ({error.strerror}).")
        return []
    if not UPDATE_NAME.fullmatch(name):
        notes.append(f"{pointer} holds {name!r}, expected a name like update_000000100.pt.")
        return []
    if not (folder / name).is_file():
        notes.append(f"{pointer} names {name}, which is not there.")
        return []
    return [folder / name]


def numbered(folder: Path, pattern: re.Pattern[str]) -> dict[int, Path]:
    """Return number -> file of the files whose names match."""
    matches = ((path, pattern.fullmatch(path.name)) for path in folder.iterdir())
    return {int(match[1]): path for path, match in matches if match and path.is_file()}


def _newest_first(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    """Sort by the numbers in the names: the clock that dates the files may have been wrong."""
    return [path for _, path in sorted(numbered(folder, pattern).items(), reverse=True)]


def _what_is_nearby(path: Path) -> str:
    """Return a hint that lists the newest runs beside what is not there, and the models."""
    models = dict.fromkeys([*_models_in(path.parent), *_models_in(SHIPPED_MODELS)])
    names = ", ".join([*_runs_in(path.parent), *models])
    return f" There are: {names}." if names else ""


def _runs_in(folder: Path, runs: str = "*") -> list[str]:
    """Return the newest runs in a folder, the newest first."""
    try:
        found = sorted(folder.glob(f"{runs}/{CHECKPOINTS}"), key=os.path.getmtime)
    except OSError:
        return []
    return [as_typed(run.parent) for run in reversed(found[-MAX_SHOWN:])]


def _models_in(folder: Path) -> list[str]:
    """Return the first models in a folder, by name."""
    try:
        files = sorted(folder.glob(f"*/{MODEL_WEIGHTS}"))[:MAX_SHOWN]
    except OSError:
        return []
    return [as_typed(file.parent) for file in files]
