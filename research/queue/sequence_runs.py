"""Whole sequences in the queue: multi_train.py runs them, and is stopped and resumed like a run.

What a sequence has reached is read from its sequence.json, in `<store>/<experiment>/<game>/`, or in
`<store>/<experiment>/<sequence>/` where its runs name their games. At each end, its tables and
figures are copied to the folder of the same name below `research/results`. Its trainings are in the
index and have their curves in `research/results/<experiment>/`, as those of other entries.
"""

from __future__ import annotations

import logging
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from research.queue import index
from research.queue.plan import PlannedSequence, SequencedRun
from research.queue.room import check_room
from research.queue.store import OUTPUT_FILE, RunState, Store
from research.queue.trainer_process import SEQUENCE_PROGRAM, Ending, run_trainer
from research.queue.watch import SILENCE_S, SequenceWatch
from ritornello.agent.stored.run_folder import safe_name
from ritornello.core.errors import ConfigError
from ritornello.flags.parsing import parse
from ritornello.sequences.folder import STATE_FILE, SequenceFolder
from ritornello.sequences.folder import RunState as SavedRun
from ritornello.sequences.plan import goes_on, is_test, load_plan, source_of
from ritornello.sequences.runner import GRACE_S

log = logging.getLogger(__name__)

# What multi_train.py writes at the end of a sequence, small enough for git.
REPORTS = (
    *("table.md", "table.csv", "comparison.png"),
    *("scores.md", "test_games.csv", "population.md", "population.png"),
)
# All its agents save at once, and it waits for them.
SEQUENCE_GRACE_S = GRACE_S + 30.0


class SequenceRuns:
    """The whole sequences of a queue. Used by the loop, in its thread."""

    def __init__(
        self,
        sequences: Sequence[PlannedSequence],
        store: Store,
        results: Path,
        *,
        program: Path = SEQUENCE_PROGRAM,
        background: bool = True,
    ) -> None:
        """Start nothing.

        Args:
          sequences: what is planned, in the order in which it is taken.
          store: the store of run folders.
          results: research/results, where reports are copied to.
          program: path of multi_train.py.
          background: runs give way to everything else on the machine.
        """
        self._sequences = sequences
        self._store = store
        self._results = results
        self._program = program
        self._background = background

    def next(self, rows: Mapping[str, index.Row]) -> PlannedSequence | None:
        """Return the first that is not done, here or by the index, and has not failed for good."""
        for sequence in self._sequences:
            state = self._store.state(sequence)
            if state is not None and state.has_failed:
                continue
            if not is_done(sequence, self._store) and not is_done_by_index(sequence, rows):
                return sequence
        return None

    def trainings(self) -> list[SequencedRun]:
        """Return all trainings of all sequences that were begun in this store."""
        return [run for each in self._sequences for run in trainings(each, self._store)]

    def train(
        self,
        sequence: PlannedSequence,
        *,
        wants_stop: Callable[[], bool],
        wants_kill: Callable[[], bool],
    ) -> bool:
        """Run a sequence until it ends or is told to; return False if it failed.

        Raises:
          OSError: if the store cannot be written to, or has no room for a checkpoint (StoreFull).
        """
        store = self._store
        check_room(sequence, store, trainings(sequence, store))
        before = store.state(sequence) or RunState(sequence.flags)
        store.write_state(sequence, before)
        done_before = runs_done(sequence, store)
        log.info("%s: sequence %s, %s", sequence.name, sequence.sequence, _progress(done_before))
        watch = SequenceWatch(store.folder(sequence))
        silence = f"no run wrote anything for {SILENCE_S:g} s"
        hangs = False

        def is_to_stop() -> bool:
            nonlocal hangs
            if not hangs and watch.silence_s() >= SILENCE_S:
                hangs = True
                log.warning("%s: %s: it is stopped", sequence.name, silence)
            return hangs or wants_stop()

        ending = run_trainer(
            [*command(sequence, store), "--", f"--background={self._background}"],
            store.folder(sequence) / OUTPUT_FILE,
            lock=store.trainer_lock,
            started=store.book_trainer,
            wants_stop=is_to_stop,
            wants_kill=wants_kill,
            main_program=self._program,
            grace_s=SEQUENCE_GRACE_S,
            stop_signal=signal.SIGTERM,
        )
        store.book_trainer(None)
        self._copy_reports(sequence)
        done = runs_done(sequence, store)
        log.info("%s: %s", sequence.name, _progress(done))
        if hangs:  # what it wrote when it was told to end does not count
            ending = replace(ending, asked=False, message=silence)
        if ending.asked or is_done(sequence, store) or done[0] > done_before[0]:
            return True
        check_room(sequence, store, trainings(sequence, store), ending)
        self._note_failure(sequence, before, ending)
        return False

    def _note_failure(self, sequence: PlannedSequence, before: RunState, ending: Ending) -> None:
        message = ending.message or f"ended with status {ending.status} and no message"
        state = replace(before, failures=before.failures + 1, message=message)
        self._store.write_state(sequence, state)
        last = ": it is passed over from now on" if state.has_failed else ""
        log.warning("%s failed (%s)%s", sequence.name, message, last)

    def _copy_reports(self, sequence: PlannedSequence) -> None:
        folder = sequence_folder(sequence, self._store)
        if folder is None:
            return
        target = self._results / sequence.name
        try:
            target.mkdir(parents=True, exist_ok=True)
            for name in REPORTS:
                if (folder / name).is_file():
                    shutil.copyfile(folder / name, target / name)
        except OSError as error:
            log.warning("the reports of %s were not copied: %s", sequence.name, error)


def sequence_folder(sequence: PlannedSequence, store: Store) -> Path | None:
    """Return the folder that multi_train.py made, the newest; None if there is none."""
    found = sorted(store.folder(sequence).glob(f"*/{STATE_FILE}"))  # names end in the time
    return found[-1].parent if found else None


def command(sequence: PlannedSequence, store: Store) -> list[str]:
    """Return the arguments of multi_train.py: a new sequence, or the rest of it."""
    folder = sequence_folder(sequence, store)
    if folder is not None:
        return [f"--resume={folder}"]
    where = f"--results_dir={store.folder(sequence)}"
    env = [f"--env={sequence.env}"] if sequence.env else []
    return [f"--sequence={sequence.sequence}", where, *env]


def runs_done(sequence: PlannedSequence, store: Store) -> tuple[int, int]:
    """Return how many of how many runs are done; (0, 0) before the beginning."""
    runs = _saved_runs(sequence, store)
    return sum(run.status == "done" for _, run in runs), len(runs)


def is_done(sequence: PlannedSequence, store: Store) -> bool:
    """Whether every run of a sequence is done."""
    done, planned = runs_done(sequence, store)
    return planned > 0 and done == planned


def trainings(sequence: PlannedSequence, store: Store) -> list[SequencedRun]:
    """Return the trainings of a sequence, in their order; none before the beginning."""
    saved = _saved_runs(sequence, store)
    steps = {run.group: _steps(run.flags) for _, run in saved}
    return [
        SequencedRun(
            experiment=sequence.experiment,
            arm=safe_name(run.group),
            env=sequence.env_of(run.flags),
            seed=run.seed,
            steps=_steps(run.flags),
            flags=run.flags,
            folder=folder.relative_to(store.path).as_posix(),
            status=run.status,
            earlier_steps=_earlier_steps(run.flags, steps),
        )
        for folder, run in saved
        if not is_test(run.flags)
    ]


def _saved_runs(sequence: PlannedSequence, store: Store) -> list[tuple[Path, SavedRun]]:
    folder = sequence_folder(sequence, store)
    try:
        runs = [] if folder is None else SequenceFolder.open(folder).runs
    except ConfigError as error:
        log.warning("%s", error)
        return []
    return [(folder / run.name, run) for run in runs if folder is not None]


def is_done_by_index(sequence: PlannedSequence, rows: Mapping[str, index.Row]) -> bool:
    """Whether the index knows every training of a sequence as done, perhaps in another store."""
    done = {
        (row.experiment, row.arm, row.env, row.seed): int(row.steps_done or 0)
        for row in rows.values()
        if row.status == index.DONE
    }
    wanted = [run for run in load_plan(sequence.sequence).runs if not is_test(run.flags)]
    steps = {run.group: _steps(run.flags) for run in wanted}
    # Of a sequence of tests alone the index knows nothing.
    return bool(wanted) and all(
        done.get(
            (
                sequence.experiment,
                safe_name(run.group),
                sequence.env_of(run.flags),
                str(run.seed),
            ),
            -1,
        )
        >= steps[run.group] - _earlier_steps(run.flags, steps)
        for run in wanted
    )


def _steps(flags: Mapping[str, Any]) -> int:
    if "environment_max_steps" in flags:
        return int(flags["environment_max_steps"])
    return parse([]).environment_max_steps  # the default


def _earlier_steps(flags: Mapping[str, Any], steps: Mapping[str, int]) -> int:
    """Return how many steps of a run another run did before, from which it goes on."""
    return steps.get(source_of(flags) or "", 0) if goes_on(flags) else 0


def sequence_lines(
    sequences: Sequence[PlannedSequence], store: Store, rows: Mapping[str, index.Row]
) -> list[str]:
    """Return a line on each sequence: how far it is, here or by the rows of the index."""
    lines = []
    for sequence in sequences:
        state = store.state(sequence)
        done = runs_done(sequence, store)
        text = _progress(done)
        if not done[1] and is_done_by_index(sequence, rows):
            count = len(load_plan(sequence.sequence).runs)
            text = f"{count} of {count} runs done, by the index"
        if state is not None and state.has_failed:
            text += f", failed: {state.message}"
        lines.append(f"{sequence.name}  sequence {sequence.sequence}: {text}")
    return lines


def _progress(done: tuple[int, int]) -> str:
    return f"{done[0]} of {done[1]} runs done" if done[1] else "not begun"
