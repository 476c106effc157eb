"""Runs a plan: child processes, one after the other or several at once; folder.py has its state.

Each run is a process of its own, so that one that fails, leaks or is killed cannot touch the next.
A run holds the lock of its folder together with this process. If this process is killed, its run
may live on a while; whoever resumes the sequence waits until that one is gone (`_Attempt`).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from ritornello.core.atomic_file import write_json
from ritornello.core.file_lock import FileLock
from ritornello.core.leaving import wait_for_killed
from ritornello.core.process_death import environment_for_child
from ritornello.core.project import IS_CLONE, PROJECT_ROOT, main_program
from ritornello.core.stop_signals import StopRequests, handled_by
from ritornello.sequences.folder import OUTPUT_FILE, RUN_LOCK_FILE, RunState, SequenceFolder
from ritornello.sequences.plan import goes_on, is_test

GRACE_S = 120.0  # for a run to save its checkpoint after SIGINT, before it is killed
POLL_S = 0.5
LEFT_BEHIND = ("load_replay", "load_optimizer_save")  # by which a resume may leave something out
ORPHAN_WAIT_S = 600.0  # for a run that has outlived its multi_train.py; it saves and ends by itself


class Interrupts:
    """What the user asks for while runs go on, as in main.py.

    The first Ctrl-C, SIGTERM or SIGHUP has the runs save and end, and begins no other one; a second
    one kills them. It only notes what was asked, the runner acts on it.
    """

    def __init__(self) -> None:
        """Nothing asked yet."""
        self.ends_run = False  # whether the program itself wants the present run to save and end
        self._requests = StopRequests()

    @property
    def stop(self) -> bool:
        """Whether everything is to be saved and ended."""
        return self._requests.count > 0

    @property
    def at_once(self) -> bool:
        """Whether it is to be ended without being saved."""
        return self._requests.count > 1

    def note(self, signal_number: int, frame: FrameType | None = None) -> None:
        """Note one signal. Python calls it in the main thread, between two instructions."""
        self._requests.is_new(signal_number)

    @contextlib.contextmanager
    def installed(self) -> Iterator[Interrupts]:
        """Install the handlers, and put the previous ones back at the end."""
        with handled_by(self.note):
            yield self


def run_sequence(
    folder: SequenceFolder,
    interrupts: Interrupts,
    progress: Callable[[RunState, float], None] = lambda run, seconds: None,
    only: Sequence[int] | None = None,
) -> None:
    """Run everything that is not done. Failures are recorded and passed over.

    Args:
      folder: the sequence; its state is kept up to date on disk.
      interrupts: what the user asks for meanwhile.
      progress: called with (run, seconds so far) at each change and twice a second in between.
      only: indices of the runs to look at; None: all.
    """
    indices = range(len(folder.runs)) if only is None else only
    waiting = [index for index in indices if folder.runs[index].status != "done"]
    active: list[_Attempt] = []
    try:
        while waiting or active:
            if interrupts.stop or interrupts.ends_run:
                waiting = []
            for index in _due(folder, waiting, [attempt.index for attempt in active]):
                waiting.remove(index)
                source = folder.source(folder.runs[index])
                if source is None or (source.status == "done" and folder.run_folders(source)):
                    active.append(_Attempt(folder, index, _free_slot(active), progress))
                else:
                    # Not a failure of its own: on a resume, the other is tried first.
                    run = folder.update(index, status="waiting")
                    progress(run, run.seconds)
            active = [attempt for attempt in active if attempt.step(interrupts)]
            if active:
                active[0].wait(POLL_S)
    finally:
        # Only if something failed here, such as the disk: what is under way saves and ends.
        for attempt in active:
            with contextlib.suppress(OSError):
                attempt.interrupt()
        for attempt in active:
            attempt.end()


def _due(folder: SequenceFolder, waiting: Sequence[int], active: Sequence[int]) -> list[int]:
    """Return which of the waiting runs are begun now, or given up, in their order.

    A run that starts from another one, which is under way or waits itself, waits for it.
    """
    due: list[int] = []
    pending = [folder.runs[index].name for index in (*active, *waiting)]
    for index in waiting:
        source = folder.source(folder.runs[index])
        if len(active) + len(due) < folder.at_once and (
            source is None or source.name not in pending
        ):
            due.append(index)
    return due


def _free_slot(active: Sequence[_Attempt]) -> int:
    """Return the number of a run among those at once: the first free one."""
    taken = {attempt.slot for attempt in active}
    return next(slot for slot in range(len(active) + 1) if slot not in taken)


class _Attempt:
    """One run under way: its process, its state, and the wait for an earlier process of it."""

    def __init__(
        self,
        folder: SequenceFolder,
        index: int,
        slot: int,
        progress: Callable[[RunState, float], None],
    ) -> None:
        """Start nothing; `step` does.

        Args:
          folder: the sequence.
          index: of the run in it.
          slot: its number among the runs at once.
          progress: see `run_sequence`.
        """
        self.index = index
        self.slot = slot
        self._folder = folder
        self._progress = progress
        self._before_s = folder.runs[index].seconds  # of earlier attempts
        self._began_s = time.monotonic()
        self._path = folder.path / folder.runs[index].name
        self._path.mkdir(exist_ok=True)
        self._lock = FileLock(self._path / RUN_LOCK_FILE)
        self._process: subprocess.Popen[bytes] | None = None
        self._kill_at_s: float | None = None

    def step(self, interrupts: Interrupts) -> bool:
        """Do what is due; return whether the attempt goes on. Never waits for the run."""
        run = self._folder.runs[self.index]
        if self._process is None:
            return self._begin(run, interrupts)
        code = self._look(interrupts)
        if code is None:
            return self._goes_on(run)
        # A training leaves with 0 only at its own end; a test that is interrupted does so, too.
        has_ended = (code == 0 and not is_test(run.flags)) or self._folder.has_ended(run)
        is_over = has_ended or (code == 0 and not interrupts.stop)
        stopped = interrupts.stop or interrupts.ends_run
        status = "done" if is_over else "stopped" if stopped else "failed"
        seconds = round(self._before_s + self._seconds, 1)
        return self._finish(status=status, exit_code=code, seconds=seconds)

    def _begin(self, run: RunState, interrupts: Interrupts) -> bool:
        """Start the run, unless an earlier process of it is still there."""
        if self._lock.acquire():
            if self._folder.has_ended(run):  # and whoever ran it could not note it any more
                return self._finish(status="done", exit_code=None)
            run = self._folder.update(self.index, status="running", exit_code=None)
            self._start(run)
        elif interrupts.stop or self._seconds >= ORPHAN_WAIT_S:
            return self._finish(status="stopped" if interrupts.stop else "waiting")
        else:
            state = f"waiting: {self._lock.holder()} of an earlier multi_train.py is at"
            run = run.model_copy(update={"status": state})
        return self._goes_on(run)

    def _goes_on(self, run: RunState) -> bool:
        self._progress(run, self._before_s + self._seconds)
        return True

    def _finish(self, **changes: Any) -> bool:
        self.end()
        run = self._folder.update(self.index, **changes)
        self._progress(run, run.seconds)
        return False

    @property
    def _seconds(self) -> float:
        """How long it has been, waiting included."""
        return time.monotonic() - self._began_s

    def _start(self, run: RunState) -> None:
        """Start main.py; the folder is ours."""
        line = command(self._folder, run, self.slot)
        write_json(self._path / "overrides.json", self._folder.resolved_flags(run))
        with open(self._path / OUTPUT_FILE, "ab", opener=_open_no_link) as log:
            log.write(f"$ {shlex.join(line)}\n".encode())
            log.flush()
            # A session of its own: the terminal sends Ctrl-C to every process in its group, and a
            # run must get exactly one, from us. It holds the lock too, for when we are killed.
            self._process = subprocess.Popen(
                line,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=PROJECT_ROOT if IS_CLONE else None,
                start_new_session=True,
                pass_fds=(self._lock.descriptor,),
                env=environment_for_child(),
            )
        self._lock.name_holder(self._process.pid)

    def _look(self, interrupts: Interrupts) -> int | None:
        """Return the exit status, None while the process goes on; pass on what the user asks."""
        assert self._process is not None
        code = self._process.poll()
        if code is None and (interrupts.stop or interrupts.ends_run):
            self.interrupt()
            if interrupts.at_once:
                self._kill_at_s = time.monotonic()
        return self._kill() if code is None and self._is_overdue() else code

    def wait(self, seconds: float) -> None:
        """Return when the process ends, or after so many seconds."""
        if self._process is None:
            threading.Event().wait(seconds)
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=seconds)

    def interrupt(self) -> None:
        """Ask the process to save and end, once; it has GRACE_S for it."""
        if self._process is not None and self._kill_at_s is None:
            self._process.send_signal(signal.SIGINT)
            self._kill_at_s = time.monotonic() + GRACE_S

    def end(self) -> None:
        """Let the process save and end, or kill it; give the folder back. Idempotent."""
        if self._process is not None and self._process.poll() is None:
            self.interrupt()
            while self._process.poll() is None and not self._is_overdue():
                self.wait(POLL_S)
            self._kill()
        self._lock.release()

    def _kill(self) -> int:
        """Kill the process and its workers, if it has not ended; return its exit status."""
        assert self._process is not None
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        return wait_for_killed(self._process)

    def _is_overdue(self) -> bool:
        return self._kill_at_s is not None and time.monotonic() >= self._kill_at_s


def _open_no_link(path: str, flags: int) -> int:
    """Open a file for appending; a link, which a stranger could have put there, is an error."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o644)


def command(folder: SequenceFolder, run: RunState, slot: int = 0) -> list[str]:
    """Return the command line of a run: its beginning, or the resume of its last checkpoint.

    Args:
      folder: the sequence.
      run: the run.
      slot: its number among the runs at once.
    """
    path = folder.path / run.name
    # What was typed comes first: of a flag that is given twice, the last one counts.
    line = [*main_program(), *folder.arguments]
    resumable = [made for made in folder.run_folders(run) if made.has_checkpoint()]
    if is_test(run.flags):
        line += ["--op_mode=test"]
    elif resumable:
        line += ["--op_mode=train_w_load", f"--load_model_url={resumable[-1].path}"]
        if goes_on(run.flags):
            # What it leaves behind is of the run from which it went on, and nothing of its own.
            line += [f"--{name}=True" for name in LEFT_BEHIND if run.flags.get(name) is False]
    elif goes_on(run.flags):
        line += ["--op_mode=train_w_load", "--new_run_folder=True"]  # from the run that it names
    else:
        line += ["--op_mode=train"]
    if folder.at_once > 1 and not is_test(run.flags):
        line.append(f"--machine_share={slot}/{folder.at_once}")
    return [
        *line,
        f"--results_dir={path}",
        f"--multi_train_overrides={path / 'overrides.json'}",
    ]
