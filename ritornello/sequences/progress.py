"""How far a run of a sequence is, as a line for people."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from ritornello.core.durations import duration
from ritornello.core.plain_data import shown_text
from ritornello.metrics.curve import RETURN
from ritornello.metrics.run_files import last_record
from ritornello.sequences.folder import RunState, SequenceFolder


def line_on(folder: SequenceFolder, run: RunState, seconds: float) -> str:
    """Return a line on a run that has taken so long, and on how long those ahead will take."""
    number = next(n for n, each in enumerate(folder.runs, start=1) if each.name == run.name)
    made = folder.run_folders(run)
    record = last_record(made[-1].path) if made else None
    group = shown_text(run.group)
    line = f"{number}/{len(folder.runs)} {group}, seed {run.seed}: {duration(seconds)}"
    if record is not None:
        line += f", {record.agent_steps:,} agent steps"
        if RETURN in record.values:
            line += f", mean return {record.values[RETURN]:.1f}"
    if folder.at_once > 1:
        return line
    is_running = run.status == "running"
    ahead = folder.runs[number - 1 if is_running else number :]
    to_go = seconds_to_go(folder, ahead)
    if to_go is not None:
        to_go -= seconds if is_running else 0.0
        line += f"; about {duration(max(0.0, to_go))} to go"
    return line


def seconds_to_go(folder: SequenceFolder, ahead: Sequence[RunState]) -> float | None:
    """Return how long those of the runs `ahead` will take that are not done; None: who knows.

    Each as long as those of its group that are done, or else as long as all that are done.
    """
    done = [run for run in folder.runs if run.status == "done"]
    if not done:
        return None

    def expected(run: RunState) -> float:
        of_group = [each.seconds for each in done if each.group == run.group]
        return fmean(of_group or [each.seconds for each in done])

    return sum(expected(run) for run in ahead if run.status != "done")
