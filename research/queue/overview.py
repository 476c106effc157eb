"""The queue as lines of text: what is done, what is next, and how long it will take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from research.queue import index
from research.queue.plan import Experiment, PlannedRun, planned_runs
from research.queue.queue_loop import next_run
from research.queue.store import Store
from research.queue.trainer_process import MAX_MESSAGE
from ritornello.core.plain_data import shown_text


def queue_lines(
    experiments: Sequence[Experiment], store: Store, rows: Mapping[str, index.Row]
) -> list[str]:
    """Return a heading, a line for each run in the order in which they are taken, and two sums.

    Args:
      experiments: the experiments of queue.yaml, in its order.
      store: the store, which holds the run folders.
      rows: the index, brought up to date (`index.refresh`).
    """
    runs = planned_runs(tuple(experiments))
    following = next_run(runs, store, rows)
    of_run = {row.run: row for row in rows.values() if row.status != index.ABANDONED}
    table = [("run", "state", "agent steps", "minutes", "left", "")]
    total, is_known = 0.0, True
    for run in runs:
        row = of_run.get(run.name)
        state, message = (row.status, row.message) if row else _without_row(run, store)
        left = 0.0 if state == index.FAILED else minutes_left(run, row, of_run.values())
        if run == following and state in ("waiting", index.STOPPED):
            state += ", next"
        is_known = is_known and left is not None
        total += left or 0.0
        done = int(row.steps_done or 0) if row else 0
        table.append(
            (
                run.name,
                state,
                f"{done:,} of {run.steps:,}",
                row.minutes if row else "",
                "?" if left is None else f"{left:.0f}",
                shown_text(message, MAX_MESSAGE),
            )
        )
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]) - 1)]
    lines = ["  ".join(map(str.ljust, line, [*widths, 0])).rstrip() for line in table]
    more = "" if is_known else ", and those of which nothing is known yet"
    return [
        *lines,
        f"about {total:.0f} minutes left by the speed of the runs so far{more}",
        f"{index.steps_played(rows.values()):,} agent steps played in all, by the index",
    ]


def _without_row(run: PlannedRun, store: Store) -> tuple[str, str]:
    """Return status and message of a run that has no run folder: it failed before it made one."""
    state = store.state(run)
    if state is None or not state.failures:
        return "waiting", ""
    return index.FAILED if state.has_failed else "waiting", state.message


def minutes_left(run: PlannedRun, row: index.Row | None, rows: Iterable[index.Row]) -> float | None:
    """Return how long a run will still take, None if no run so far says anything about it."""
    if row is not None and row.status in (index.DONE, index.FAILED):
        return 0.0
    rate = steps_per_minute(run, list(rows))
    done = int(row.steps_done or 0) if row else 0
    return None if rate is None else max(0, run.steps - done) / rate


def steps_per_minute(run: PlannedRun, rows: Sequence[index.Row]) -> float | None:
    """Return how fast a run goes, by what is nearest to it: itself, its arm, or any other."""

    def alike(row: index.Row, kind: int) -> bool:
        same_arm = (row.experiment, row.arm) == (run.experiment, run.arm)
        return (row.run == run.name, same_arm, True)[kind]

    for kind in range(3):
        rates = [
            int(row.steps_done) / float(row.minutes)
            for row in rows
            if alike(row, kind) and float(row.minutes or 0) > 0 and int(row.steps_done or 0) > 0
        ]
        if rates:
            return median(rates)
    return None
