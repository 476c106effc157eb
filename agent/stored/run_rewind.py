"""Takes a run folder back to the checkpoint that a session goes on from, and keeps what that cuts.

A resumed run goes on from a checkpoint, and what the folder holds about later updates is the future
of another run by then: lines in journals, checkpoints, tests, films, perhaps the best weights. It
is moved to names that nothing reads, so that no later session can fall back into it:

    <run>/metrics.jsonl.20261122-134500.cut            lines of each journal (metrics/rewind.py)
    <run>/checkpoints/cut_20261122-134500/*.pt         checkpoints of later updates
    <run>/best_evaluated.20261122-134500.cut           the best model, if it is of later updates
    <run>/test_<model>.json.20261122-134500.cut        tests of later weights
    <run>/films/update_<n>.mp4.20261122-134500.cut     films of later updates

The caller holds the lock of the folder (`RunFolder.lock`).
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from ritornello.agent.stored.best_evaluated import set_later_aside
from ritornello.agent.stored.checkpoint import Checkpoint, load
from ritornello.agent.stored.checkpoint_folder import (
    BEST,
    MILESTONE_NAME,
    REPLAY_NAME,
    UPDATE_NAME,
    numbered,
    resolve,
    update_name,
)
from ritornello.agent.stored.checkpoint_writer import give_second_name
from ritornello.agent.stored.run_folder import RunFolder, create_exclusively
from ritornello.agent.testing.model_card import read_test
from ritornello.core.atomic_file import remove_temporaries
from ritornello.core.errors import CheckpointError, ConfigError
from ritornello.core.files import disk
from ritornello.core.run_layout import FILMS, REPORT
from ritornello.core.saved_state import item, whole
from ritornello.metrics.rewind import Cut, Point, rewind
from ritornello.metrics.run_files import set_aside

CUT_FOLDER = "cut_{:%Y%m%d-%H%M%S}"
FILM_NAME = re.compile(r"update_([0-9]+)\.mp4")


def check_not_saved_since(checkpoint: Checkpoint) -> None:
    """Check that a checkpoint is still the newest of its folder, now that nobody else writes there.

    It was read before the lock was taken. Meanwhile the session before may have written its last
    save, which would be set aside as the future of another run. An older checkpoint that the user
    named by its file is always accepted, whatever comes after it.

    Raises:
      ConfigError: if there is a newer one, or its file is gone; nothing is touched then.
    """
    if checkpoint.first is None:
        return  # nobody looked for it
    try:
        first = resolve(checkpoint.asked)[0]
    except CheckpointError:
        first = None
    if first == checkpoint.first and checkpoint.path.is_file():
        return
    raise ConfigError(
        f"{checkpoint.home} was saved to by another session "
        f"while this one started: it has read {checkpoint.path.name}, which is no longer what "
        "there is to go on from. Nothing was changed. Give the same command again."
    )


def take_back(folder: RunFolder, checkpoint: Checkpoint, now: datetime | None = None) -> list[str]:
    """Take the files of a run back to `checkpoint`, which lies in its folder.

    If this is cut short, the run can be resumed from the newest checkpoint that is left, and the
    same command does the rest. New names contain the time `now`, by default the present time.

    Returns:
      Sentences for the log that say what was set aside, and where; empty if nothing was.

    Raises:
      ConfigError: if the folder cannot be written to.
    """
    at = now or datetime.now()
    tally, then = checkpoint.state["tally"], checkpoint.state["flags"]
    # As they lie in the file: what was checked are the flags of the session.
    per_update = [whole(then, name, default=None) for name in ("batch_size", "r_f_steps")]
    updates = checkpoint.updates
    evaluation = item(checkpoint.state, "evaluation", dict, default={})
    point = Point(
        updates,
        checkpoint.agent_steps,
        training_steps=None if None in per_update else updates * math.prod(per_update),
        wall_s=float(tally.get("wall_s", math.inf)),
        evaluated_at=whole(evaluation, "looked_at", default=None),
    )
    try:
        remove_temporaries(folder.path)  # of a session that was killed
        disk().unlink(folder.summary_file)  # of an earlier session's end: the run goes on
        moved = _set_later_aside(checkpoint, at)
        point = replace(point, has_best=(checkpoint.path.parent / BEST).exists())
        cuts = rewind(folder.path, point, at)
        shown = [set_aside(path, at) for path in _later_films_and_tests(folder.path, point)]
        best = set_later_aside(folder.path, updates, at)
    except OSError as error:
        raise ConfigError(
            f"cannot take {folder.path} back to its checkpoint: {error.strerror or error} "
            f"({error.filename}). Expected a folder that you may write to, with some room; "
            "--new_run_folder=True goes on elsewhere."
        ) from error
    notes = _described(cuts, moved, updates)
    if shown:
        notes.append(f"films and files of tests of later weights are *.cut now: {len(shown)}")
    if best is not None:
        notes.append(f"the best model of the evaluations is of a later update: it is {best} now")
    return notes


def _set_later_aside(checkpoint: Checkpoint, at: datetime) -> list[Path]:
    """Move checkpoints of later updates out of the way; return where they are now.

    If the run goes on from a milestone or `best.pt`, that also gets the name of a regular
    checkpoint.
    """
    folder, later = checkpoint.path.parent, _later(checkpoint)
    regular = folder / update_name(checkpoint.updates)
    if not UPDATE_NAME.fullmatch(checkpoint.path.name) and not regular.exists():
        give_second_name(checkpoint.path, regular)
    if not later:
        return []
    aside = create_exclusively(folder, CUT_FOLDER.format(at))
    for path in later:
        disk().replace(path, aside / path.name)
    for made_in in (aside, folder):  # or a power cut could bring them back after the journals' cut
        disk().sync_folder(made_in)
    return [aside / path.name for path in later]


def _later(checkpoint: Checkpoint) -> list[Path]:
    """Return checkpoints of later updates and their replay contents, in the order of their move."""
    folder, updates = checkpoint.path.parent, checkpoint.updates
    later = [
        path
        for pattern, most in (
            (UPDATE_NAME, updates),
            (REPLAY_NAME, updates),
            (MILESTONE_NAME, checkpoint.agent_steps),
        )
        for number, path in numbered(folder, pattern).items()
        if number > most and path != checkpoint.path
    ]
    try:
        is_later = load(folder / BEST).updates > updates
    except CheckpointError:  # there is none, or nothing can be gone on from it
        is_later = False
    later += [folder / BEST] if is_later else []
    newest_first = sorted(later, reverse=True)
    # Contents last: what is still there if this is cut short has its own.
    return sorted(newest_first, key=lambda path: path.suffix == ".replay")


def _later_films_and_tests(folder: Path, point: Point) -> list[Path]:
    """Return the films of evaluations, and the files of tests, that show later weights."""
    films = numbered(folder / FILMS, FILM_NAME) if (folder / FILMS).is_dir() else {}
    later = [film for updates, film in films.items() if updates > point.updates]
    for report in sorted(folder.glob(f"{REPORT}*.json")):
        tested = read_test(report)
        if not tested:
            continue
        checkpoint = Path(tested[0].checkpoint)  # which has played each of the games
        if not point.follows_model(checkpoint.stem, tested[0].agent_steps):
            # The report last: it says of which weights the others are.
            files = (report.with_suffix(".csv"), report.with_suffix(".mp4"), report)
            later += [file for file in files if file.exists()]
    return later


def _described(cuts: list[Cut], moved: list[Path], updates: int) -> list[str]:
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
