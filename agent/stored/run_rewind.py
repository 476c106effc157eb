"""Takes a run folder back to the checkpoint that a session goes on from, and keeps what that cuts.

A resumed run goes on from a checkpoint, and what the folder holds about later updates is the future
of another run by then: lines in journals, checkpoints, milestones, perhaps the best weights. It is
moved to names that nothing reads, so that no later session can fall back into it:

    <run>/metrics.jsonl.20261122-134500.cut            lines of each journal (metrics/rewind.py)
    <run>/checkpoints/cut_20261122-134500/*.pt         checkpoints of later updates
    <run>/best_evaluated.20261122-134500.cut           the best model, if it is of later updates

The caller holds the lock of the folder (agent/stored/run_lock.py).
"""

from __future__ import annotations

import logging
import math
import os
from datetime import datetime
from pathlib import Path

from ritornello.agent.stored.best_evaluated import set_later_aside
from ritornello.agent.stored.checkpoint import Checkpoint, give_second_name
from ritornello.agent.stored.checkpoint_file import read_tree
from ritornello.agent.stored.checkpoint_folder import (
    BEST,
    LATEST,
    MILESTONE_NAME,
    REPLAY_NAME,
    UPDATE_NAME,
    Sight,
    run_of,
    update_name,
)
from ritornello.agent.stored.run_folder import RunFolder, create_exclusively
from ritornello.core.atomic_file import remove_temporaries, write_text
from ritornello.core.errors import CheckpointError, ConfigError
from ritornello.core.files import disk
from ritornello.core.saved_state import whole
from ritornello.metrics.rewind import Cut, Point, rewind
from ritornello.metrics.run_files import is_regular, set_aside

log = logging.getLogger(__name__)

CUT_FOLDER = "cut_{:%Y%m%d-%H%M%S}"


def check_not_saved_since(checkpoint: Checkpoint) -> None:
    """Check that a checkpoint is still what its folder means, now that nobody else writes there.

    It was read before the lock was asked for. Meanwhile the session before may have written its
    last save, which would be set aside as the future of another run. An older checkpoint that the
    user named by its file is meant as it is, whatever comes after it.

    Raises:
      ConfigError: if it is not; nothing is touched then.
    """
    seen = checkpoint.sight
    if seen is None or (Sight.of(seen.url) == seen and checkpoint.path.is_file()):
        return
    raise ConfigError(
        f"{run_of(checkpoint.path) or checkpoint.path.parent} was saved to by another session "
        f"while this one started: it has read {checkpoint.path.name}, which is no longer what "
        "there is to go on from. Nothing was changed. Give the same command again."
    )


def make_way(folder: RunFolder, now: datetime | None = None) -> RunFolder:
    """Rename what has the name of a file that a session writes, but is none; return the folder.

    This comes before the log is opened, so it is said wherever messages go at that moment.

    Raises:
      ConfigError: if the folder cannot be written to.
    """
    at = now or datetime.now()
    try:
        for path in folder.session_files:
            if os.path.lexists(path) and not is_regular(path):
                aside = set_aside(path, at)
                log.warning("%s is no file that can be written: it is %s now", path, aside.name)
    except OSError as error:
        raise _cannot(folder, error) from error
    return folder


def take_back(folder: RunFolder, checkpoint: Checkpoint, now: datetime | None = None) -> list[str]:
    """Take the files of a run back to `checkpoint`, which lies in its folder.

    If this is cut short, the next call does the rest: `latest` names the checkpoint first.

    Args:
      folder: folder of the run.
      checkpoint: what the session goes on from.
      now: the time in the names; the present time if None.

    Returns:
      Sentences for the log: what was set aside, and where; empty if nothing was.

    Raises:
      ConfigError: if the folder cannot be written to.
    """
    at = now or datetime.now()
    tally, then = checkpoint.state["tally"], checkpoint.state["flags"]
    # As they lie in the file: what was checked are the flags of the session.
    per_update = [whole(then, name, default=None) for name in ("batch_size", "r_f_steps")]
    updates = checkpoint.updates
    point = Point(
        updates,
        checkpoint.agent_steps,
        training_steps=None if None in per_update else updates * math.prod(per_update),
        wall_s=float(tally.get("wall_s", math.inf)),
    )
    try:
        remove_temporaries(folder.path)  # of a session that was killed
        folder.remove_summary()
        moved = _set_later_aside(checkpoint, at)
        cuts = rewind(folder.path, point, at)
        best = set_later_aside(folder.path, updates, at)
    except OSError as error:
        raise _cannot(folder, error) from error
    notes = _described(cuts, moved, updates)
    if best is not None:
        notes.append(f"the best model of the evaluations is of a later update: it is {best} now")
    return notes


def _set_later_aside(checkpoint: Checkpoint, at: datetime) -> list[Path]:
    """Move checkpoints of later updates out of the way; return where they are now."""
    folder = checkpoint.path.parent
    later = sorted(path for path in folder.iterdir() if _is_later(path, checkpoint))
    _name_as_latest(checkpoint, at)
    if not later:
        return []
    aside = create_exclusively(folder, CUT_FOLDER.format(at))
    for path in later:
        disk().replace(path, aside / path.name)
    return [aside / path.name for path in later]


def _is_later(path: Path, checkpoint: Checkpoint) -> bool:
    if path == checkpoint.path or not path.is_file():
        return False
    for pattern in (UPDATE_NAME, REPLAY_NAME, MILESTONE_NAME):
        match = pattern.fullmatch(path.name)
        if match:
            is_of_steps = pattern is MILESTONE_NAME
            return int(match[1]) > (checkpoint.agent_steps if is_of_steps else checkpoint.updates)
    if path.name != BEST:
        return False
    try:
        of_best = read_tree(path)["tally"]["updates"]
    except (CheckpointError, LookupError, TypeError):  # damaged, or of another version
        return False  # nothing can be gone on from it, so it is in nobody's way
    return type(of_best) is int and of_best > checkpoint.updates


def _name_as_latest(checkpoint: Checkpoint, at: datetime) -> None:
    """Make `latest` name the checkpoint; a milestone or `best.pt` gets a regular name besides."""
    folder = checkpoint.path.parent
    checkpoint.path.stat()  # raises OSError if it is gone: `latest` would name nothing
    name = checkpoint.path.name
    if not UPDATE_NAME.fullmatch(name):
        name = update_name(checkpoint.updates)
        if not (folder / name).exists():
            give_second_name(checkpoint.path, folder / name)
    pointer = folder / LATEST
    if pointer.is_dir() and not pointer.is_symlink():
        set_aside(pointer, at)  # no file can take the place of a folder
    if not is_regular(pointer) or pointer.read_bytes() != f"{name}\n".encode():
        write_text(pointer, f"{name}\n")


def _described(cuts: list[Cut], moved: list[Path], updates: int) -> list[str]:
    """Return one sentence for the journals, and one for the checkpoints."""
    notes = []
    if cuts:
        lines = ", ".join(
            f"{cut.lines:,} of {cut.name}" if cut.lines else f"all of {cut.name}" for cut in cuts
        )
        suffix = cuts[0].aside.name.removeprefix(cuts[0].name)
        notes.append(
            f"lines about what came after update {updates} (or that cannot be read) are set aside "
            f"in *{suffix}: {lines}"
        )
    if moved:
        size = sum(path.stat().st_size for path in moved) / 1e6
        count = sum(path.suffix == ".pt" for path in moved)
        notes.append(
            f"{count} later checkpoints ({size:.1f} MB) are set aside in {moved[0].parent}; "
            "nothing reads them, so remove them when you like"
        )
    return notes


def _cannot(folder: RunFolder, error: OSError) -> ConfigError:
    return ConfigError(
        f"cannot take {folder.path} back to its checkpoint: {error.strerror or error} "
        f"({error.filename}). Expected a folder that you may write to, with some room; "
        "--new_run_folder=True goes on elsewhere."
    )
