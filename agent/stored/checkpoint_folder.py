"""The names in a `checkpoints` folder, and which file is meant by a folder.

agent/stored/checkpoint_writer.py has the table of the files. Numbers in names decide what is newer,
never the times of files.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from ritornello.core.errors import CheckpointError
from ritornello.core.project import as_typed, sequence_command
from ritornello.core.run_layout import CHECKPOINTS, MODEL_WEIGHTS, SEQUENCE

SHIPPED_MODELS = Path("models")
ON_HUB = "hf:"  # how the name of a model on the hub begins (hub.py)
MAX_SHOWN = 5  # runs or models in a message
BEST = "best.pt"
UPDATE_NAME = re.compile(r"update_([0-9]{1,18})\.pt")
REPLAY_NAME = re.compile(r"update_([0-9]{1,18})\.replay")
MILESTONE_NAME = re.compile(r"step_([0-9]{1,18})\.pt")


def update_name(updates: int) -> str:
    """Return the name of the regular checkpoint of an update."""
    return f"update_{updates:09d}.pt"


def replay_name(updates: int) -> str:
    """Return the name of the replay contents of an update."""
    return f"update_{updates:09d}.replay"


def run_of(file: Path) -> Path | None:
    """Return the run folder that a checkpoint file lies in; None if it lies elsewhere."""
    return file.parent.parent if file.parent.name == CHECKPOINTS else None


def resolve(url: Path | str) -> list[Path]:
    """Return the checkpoint files that `url` means, the best guess first.

    `url` is a run folder, its checkpoints folder, or a checkpoint file. Regular checkpoints come
    first, those of more updates before others, then milestones and `best.pt`. A session that goes
    on from an older checkpoint has set aside the later ones (agent/stored/run_rewind.py).

    Raises:
      CheckpointError: if there is none.
    """
    path = Path(url).absolute()  # an environment may change the working directory
    try:
        if path.is_file():
            return [path]
        folder = path / CHECKPOINTS if (path / CHECKPOINTS).is_dir() else path
        is_there = folder.is_dir()
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise CheckpointError(f"{str(path)[:200]} cannot be read: {error.strerror}.") from error
    if not is_there:
        near = [*_agents_in(path.parent), *_agents_in(SHIPPED_MODELS)]
        raise CheckpointError(
            f"{url} does not exist. Expected a run folder (results/<run>), its checkpoints "
            "folder, a checkpoint file (.pt), a model folder (models/<name>), or a model on the "
            "hub (hf:<owner>/<name>)." + f" There are: {_listed(near)}." * bool(near)
        )
    found = [
        *_newest_first(folder, UPDATE_NAME),
        *_newest_first(folder, MILESTONE_NAME),
        *([folder / BEST] if (folder / BEST).is_file() else []),
    ]
    inside = [] if found else _agents_in(folder)
    if (folder / SEQUENCE).is_file():
        place = as_typed(folder)
        raise CheckpointError(
            f"{place} is a sequence, and {sequence_command()} --resume={place} goes on with it. "
            + (
                f"To take one of its runs: {_listed(inside)}."
                if inside
                else "No run has saved yet."
            )
        )
    if inside:
        raise CheckpointError(
            f"{as_typed(folder)} is no agent itself. There are: {_listed(inside)}."
        )
    if not found and (folder / MODEL_WEIGHTS).is_file():
        raise CheckpointError(
            f"{as_typed(folder)} is a model folder already: copy it. Expected a run folder, or a "
            "checkpoint file (.pt)."
        )
    if not found:
        raise CheckpointError(
            f"No checkpoint in {as_typed(folder)}. Expected update_*.pt, step_*.pt or best.pt "
            "there: this is no run folder, or the run ended before its first save "
            "(--save_model_period)."
        )
    return found


def numbered(folder: Path, pattern: re.Pattern[str]) -> dict[int, Path]:
    """Return number -> file for the files whose names match `pattern`."""
    matches = ((path, pattern.fullmatch(path.name)) for path in folder.iterdir())
    return {int(match[1]): path for path, match in matches if match and path.is_file()}


def _newest_first(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    """Sort by the numbers in the names: the clock that dates the files may have been wrong."""
    return [path for _, path in sorted(numbered(folder, pattern).items(), reverse=True)]


def _agents_in(folder: Path) -> list[Path]:
    """Return the newest runs (those of a sequence lie deeper) and models in a folder."""
    patterns = (f"*/{CHECKPOINTS}/*.pt", f"*/*/{CHECKPOINTS}/*.pt", f"*/{MODEL_WEIGHTS}")
    try:
        found = [path for pattern in patterns for path in folder.glob(pattern)]
        found.sort(key=os.path.getmtime, reverse=True)
    except OSError:
        return []
    homes = (path.parent if path.name == MODEL_WEIGHTS else path.parents[1] for path in found)
    return list(dict.fromkeys(homes))[:MAX_SHOWN]


def _listed(agents: list[Path]) -> str:
    return ", ".join(dict.fromkeys(map(as_typed, agents)))
