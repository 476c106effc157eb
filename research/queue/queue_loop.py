"""The loop: takes the first unfinished run by priority, trains it, books it, takes the next.

Nothing is held in memory that a kill could lose: which runs are done is read from their folders
(store.py) at each choice, and queue.yaml is read again, so that an experiment may be added while
the queue runs.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from research.queue import index
from research.queue.curve_file import export_curve, export_metrics
from research.queue.plan import PlannedRun, load_queue
from research.queue.room import check_room
from research.queue.store import OUTPUT_FILE, RunState, Store
from research.queue.trainer_process import (
    GRACE_S,
    MAIN_PROGRAM,
    Ending,
    run_trainer,
)
from research.queue.watch import SILENCE_S, Watch
from ritornello.core.errors import ConfigError
from ritornello.core.stop_signals import INTERRUPTED, handled_by
from ritornello.metrics.curve import RETURN
from ritornello.metrics.run_files import last_record

log = logging.getLogger(__name__)

LINE_INTERVAL_S = 60.0  # between lines on where a run is
BOOKING_INTERVAL_S = 600.0  # between rows of the index on a run that is under way


@dataclass(frozen=True)
class Places:
    """Where the queue reads and writes, and what it starts."""

    queue_file: Path
    store: Path
    results: Path  # research/results: index.csv, and a folder with curves for each experiment
    main_program: Path = MAIN_PROGRAM
    background: bool = True  # runs give way to everything else on the machine


class StopRequests:
    """SIGINT, SIGTERM and SIGHUP: one stops the queue cleanly, a second one at once."""

    def __init__(self) -> None:
        """Nothing asked yet."""
        self.count = 0

    def note(self, number: int, frame: FrameType | None = None) -> None:
        """Note one signal."""
        self.count += 1

    @contextmanager
    def installed(self) -> Iterator[StopRequests]:
        """Install the handlers, and put the previous ones back at the end."""
        with handled_by(self.note):
            yield self


class QueueLoop:
    """Works through the queue until its time is over. Use once, with the store locked."""

    def __init__(self, places: Places, store: Store, seconds: float | None) -> None:
        """Read the queue; start nothing.

        Args:
          places: the files and folders that the queue works with.
          store: the store of run folders; this process holds its lock.
          seconds: wall-clock time for all runs together; None: until nothing is left to do.

        Raises:
          ConfigError: if queue.yaml, the index or the store cannot be used as they are.
        """
        self._places = places
        self._store = store
        self._deadline_s = None if seconds is None else time.monotonic() + seconds
        self._index_file = places.results / index.INDEX_FILE
        self._read_queue()
        self._known = index.read_index(self._index_file)  # as it could be read last
        self.failed = 0  # runs that failed in this session

    def run(self, requests: StopRequests) -> None:
        """Train one run after the other; returns when told to, at the time limit, or at the end.

        Raises:
          OSError: if the store cannot be written to, or has no room for a checkpoint (StoreFull).
        """
        self._book()
        while not self._is_over(requests):
            self._reread()
            run = next_run(self._runs, self._store, self._known)
            if run is None:
                log.info("nothing is left to do")
                break
            try:
                self._train(run, requests)
            finally:
                self._book()

    def _is_over(self, requests: StopRequests) -> bool:
        return bool(requests.count) or (
            self._deadline_s is not None and time.monotonic() >= self._deadline_s
        )

    def _train(self, run: PlannedRun, requests: StopRequests) -> None:
        store = self._store
        check_room(run, store, self._alike(run))
        before = store.state(run) or RunState(dict(run.flags))
        store.write_state(run, before)
        arguments = [*command(run, store), f"--background={self._places.background}"]
        update_before = store.newest_update(run)
        log.info("%s starts: %s", run.name, _where(run, store))
        watch = Watch(run, store)
        next_line_s = time.monotonic() + LINE_INTERVAL_S
        next_booking_s = time.monotonic()
        hangs = False

        def wants_stop() -> bool:
            nonlocal next_line_s, next_booking_s, hangs
            if time.monotonic() >= next_booking_s and has_begun(run, store):
                next_booking_s = time.monotonic() + BOOKING_INTERVAL_S
                self._book([run.name])  # a killed queue leaves the row of a new run behind as well
            if time.monotonic() >= next_line_s:
                next_line_s = time.monotonic() + LINE_INTERVAL_S
                log.info("%s: %s", run.name, _where(run, store))
            if not hangs and watch.silence_s() >= SILENCE_S:
                hangs = True
                log.warning("%s: no record for %.0f s: it is stopped", run.name, SILENCE_S)
            return hangs or self._is_over(requests)

        ending = run_trainer(
            arguments,
            store.folder(run) / OUTPUT_FILE,
            lock=store.trainer_lock,
            started=store.book_trainer,
            wants_stop=wants_stop,
            wants_kill=lambda: requests.count > 1,
            main_program=self._places.main_program,
            grace_s=GRACE_S,
        )
        store.book_trainer(None)
        if hangs:  # as if somebody else had killed it
            ending = Ending(-signal.SIGKILL, False, f"no record for {SILENCE_S:.0f} s")
        progressed = store.newest_update(run) > update_before
        if failed(ending, is_done=store.is_done(run), progressed=progressed):
            check_room(run, store, self._alike(run), ending)
            self._note_failure(run, before, ending)
        log.info("%s: %s", run.name, _where(run, store))
        self._export(run)

    def _alike(self, run: PlannedRun) -> list[PlannedRun]:
        """Return the runs whose checkpoints are as large as those of `run`."""
        arm = (run.experiment, run.arm)
        return [each for each in self._runs if (each.experiment, each.arm) == arm]

    def _note_failure(self, run: PlannedRun, before: RunState, ending: Ending) -> None:
        self.failed += 1
        message = ending.message or f"ended with status {ending.status} and no message"
        state = replace(before, failures=before.failures + 1, message=message)
        self._store.write_state(run, state)
        last = ": it is passed over from now on" if state.has_failed else ""
        log.warning("%s failed (%s)%s", run.name, message, last)

    def _export(self, run: PlannedRun) -> None:
        try:
            for path in export_curve(run, self._store, self._places.results):
                log.info("wrote %s", path)
            export_metrics(run, self._store, self._places.results)
        except (ConfigError, OSError) as error:
            log.warning("the curve of %s was not written: %s", run.name, error)

    def _book(self, running: Collection[str] = ()) -> None:
        """Bring index.csv up to date. A full disk must not end a run that trains."""
        try:
            known = index.read_index(self._index_file)
            rows = index.refresh(known, self._runs, self._store, running)
            index.write_index(self._index_file, rows.values())
        except (ConfigError, OSError) as error:
            log.warning("index.csv was not written: %s", error)

    def _read_queue(self) -> None:
        queue = load_queue(self._places.queue_file)
        check_unchanged(queue.runs, self._store)
        self._runs = queue.runs

    def _reread(self) -> None:
        try:
            self._read_queue()
        except ConfigError as error:
            log.warning("going on with the queue as it was: %s", error)
        try:
            self._known = index.read_index(self._index_file)
        except ConfigError as error:
            log.warning("going on with the index as it was: %s", error)


def next_run(
    runs: Sequence[PlannedRun], store: Store, rows: Mapping[str, index.Row]
) -> PlannedRun | None:
    """Return the first run that is not done, here or by the index, and has not failed for good."""
    for run in runs:
        state = store.state(run)
        if state is not None and state.has_failed:
            continue
        if not store.is_done(run) and not index.is_done(rows, run):
            return run
    return None


def has_begun(run: PlannedRun, store: Store) -> bool:
    """Whether main.py has made the folder of a run and said in it which code and machine it has."""
    return any(folder.run_file.exists() for folder in store.run_folders(run))


def command(run: PlannedRun, store: Store) -> list[str]:
    """Return the arguments of main.py: a new run, or the resume of its last checkpoint."""
    folder = store.present_folder(run)
    if folder is not None and folder.has_checkpoint():
        mode = ["--op_mode=train_w_load", f"--load_model_url={folder.path}"]
    else:
        mode = ["--op_mode=train", f"--results_dir={store.folder(run)}"]
    return [*mode, *run.arguments()]


def failed(ending: Ending, *, is_done: bool, progressed: bool) -> bool:
    """Whether an ending counts as a failed attempt.

    One that was asked for does not, however it came about; nor does a death by a signal (it was
    killed by somebody) after a new checkpoint, since the next attempt goes on from there. Without
    one it does, or a run that the machine has no memory for would be tried for ever.
    """
    if ending.asked or is_done:
        return False
    by_signal = ending.status < 0 or ending.status == INTERRUPTED
    return not (by_signal and progressed)


def check_unchanged(runs: Sequence[PlannedRun], store: Store) -> None:
    """Raise ConfigError if a run that was begun would now go on with other flags."""
    changed = []
    for run in runs:
        state = store.state(run)
        if state is not None and state.flags != run.flags:
            changed.append(f"  {run.name}: {dict(state.flags)}, now {dict(run.flags)}")
    if changed:
        raise ConfigError(
            "these runs were begun with other flags than the queue has now:\n"
            + "\n".join(changed)
            + f"\nGive the changed arm a new name, or remove the runs from {store.path}."
        )


def _where(run: PlannedRun, store: Store) -> str:
    folder = store.present_folder(run)
    record = None if folder is None else last_record(folder.path)
    if record is None:
        return "no record yet"
    text = f"{record.agent_steps:,} of {run.steps:,} agent steps"
    mean = record.values.get(RETURN)
    return text if mean is None else f"{text}, mean return {mean:.1f}"
