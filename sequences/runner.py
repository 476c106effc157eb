"""Runs a plan: one child process after the other; folder.py says how far it came.

Each run is a process of its own, so that one that fails, leaks or is killed cannot touch the next.
A run holds the lock of its folder together with this process. If this process is killed, its run
may live on a while; whoever resumes the sequence waits until that one is gone (`_claim_run`).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType

from agent.stored.run_folder import PROJECT_ROOT
from core.atomic_file import write_json
from core.file_lock import FileLock
from core.leaving import wait_for_killed
from core.process_death import environment_for_child
from core.stop_signals import handled_by
from sequences.folder import RUN_LOCK_FILE, STATE_FILE, RunState, SequenceFolder
from sequences.plan import is_test

__all__ = ["STATE_FILE", "Interrupts", "RunState", "SequenceFolder", "command", "run_sequence"]

MAIN_PROGRAM = PROJECT_ROOT / "main.py"
STOP_WINDOW_S = 5.0  # a second Ctrl-C within this time means: stop everything
GRACE_S = 120.0  # for a run to save its checkpoint after SIGINT, before it is killed
POLL_S = 0.5
ORPHAN_WAIT_S = 600.0  # for a run that has outlived its multi_train.py; it saves and ends by itself


class Interrupts:
    """Ctrl-C, told apart: once skips the current run, twice within 5 s stops the sequence.

    SIGTERM and SIGHUP stop the sequence. Used as a context manager around the runs; it only notes
    what was asked, the runner acts on it.
    """

    def __init__(self) -> None:
        """Nothing asked yet."""
        self.skip = False
        self.stop = False
        self._last_s = -float("inf")

    def note(self, signal_number: int, frame: FrameType | None = None) -> None:
        """Note one signal. Python calls it in the main thread, between two instructions."""
        now_s = time.monotonic()
        self.skip = True
        if signal_number != signal.SIGINT or now_s - self._last_s <= STOP_WINDOW_S:
            self.stop = True
        self._last_s = now_s

    @contextlib.contextmanager
    def installed(self) -> Iterator[Interrupts]:
        """Install the handlers, and put the previous ones back at the end."""
        with handled_by(self.note):
            yield self


def run_sequence(
    folder: SequenceFolder,
    interrupts: Interrupts,
    progress: Callable[[RunState, float], None] = lambda run, seconds: None,
) -> None:
    """Run everything that is not done. Failures are recorded and passed over.

    Args:
      folder: the sequence; its state is kept up to date on disk.
      interrupts: what the user asks for meanwhile.
      progress: called with (run, seconds so far) at each change and twice a second in between.
    """
    for index, run in enumerate(folder.runs):
        if run.status == "done":
            continue
        interrupts.skip = False
        if interrupts.stop:
            return
        source = folder.source(run)
        if source is not None and (source.status != "done" or not folder.run_folders(source)):
            # Not a failure of its own: when the sequence is resumed, the other is tried first.
            run = folder.update(index, status="waiting")
            progress(run, run.seconds)
            continue
        started_s = time.monotonic()
        lock = _claim_run(folder, run, interrupts, progress)
        if lock is None:
            run = folder.update(index, status=_unfinished(interrupts) or "waiting")
            progress(run, run.seconds)
            continue
        run = folder.update(index, status="running", exit_code=None)

        def tick(run: RunState = run, started_s: float = started_s) -> None:
            progress(run, run.seconds + time.monotonic() - started_s)

        tick()
        try:
            exit_code = _run_child(folder, run, lock, interrupts, tick)
        finally:
            lock.release()
        seconds = run.seconds + time.monotonic() - started_s
        status = _unfinished(interrupts) or ("done" if exit_code == 0 else "failed")
        run = folder.update(index, status=status, exit_code=exit_code, seconds=round(seconds, 1))
        progress(run, run.seconds)


def run_one(
    folder: SequenceFolder, run: RunState, interrupts: Interrupts, tick: Callable[[], None]
) -> int | None:
    """Run, or resume, a run that is in no list; return its exit status.

    Args:
      folder: folder in which it has a folder of its own.
      run: its name and flags.
      interrupts: `skip` has it saved and ended.
      tick: called twice a second.

    Returns:
      None if an earlier process of this run lives on, and the user does not want to wait for it.
    """
    lock = _claim_run(folder, run, interrupts, lambda run, seconds: tick())
    if lock is None:
        return None
    try:
        return _run_child(folder, run, lock, interrupts, tick)
    finally:
        lock.release()


def _unfinished(interrupts: Interrupts) -> str:
    """Return the status of a run that the user ended, "" if it may go on."""
    if not interrupts.skip:
        return ""
    return "stopped" if interrupts.stop else "skipped"


def _run_child(
    folder: SequenceFolder,
    run: RunState,
    lock: FileLock,
    interrupts: Interrupts,
    tick: Callable[[], None],
) -> int:
    """Run main.py to its end, or until it has stopped cleanly after an interrupt."""
    path = folder.path / run.name
    line = command(folder, run)
    write_json(path / "overrides.json", folder.resolved_flags(run))
    with open(path / "output.log", "ab", opener=_open_no_link) as log:
        log.write(f"$ {shlex.join(line)}\n".encode())
        log.flush()
        # A session of its own: the terminal sends Ctrl-C to every process in its group, and a run
        # must get exactly one, from us. It holds the lock as well, for when we are killed.
        child = subprocess.Popen(
            line,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=PROJECT_ROOT,
            start_new_session=True,
            pass_fds=(lock.descriptor,),
            env=environment_for_child(),
        )
    lock.name_holder(child.pid)
    kill_at_s: float | None = None
    try:
        while kill_at_s is None or time.monotonic() < kill_at_s:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(timeout=POLL_S)
            tick()
            if interrupts.skip and kill_at_s is None:
                child.send_signal(signal.SIGINT)
                kill_at_s = time.monotonic() + GRACE_S
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)  # its workers too
    return wait_for_killed(child)


def _open_no_link(path: str, flags: int) -> int:
    """Open a file for appending; a link, which a stranger could have put there, is an error."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o644)


def _claim_run(
    folder: SequenceFolder,
    run: RunState,
    interrupts: Interrupts,
    progress: Callable[[RunState, float], None],
) -> FileLock | None:
    """Take a run's folder; wait if its last process has outlived the multi_train.py of then.

    Returns:
      The lock, or None if the other did not end in time, or the user does not want to wait.
    """
    path = folder.path / run.name
    path.mkdir(exist_ok=True)
    lock = FileLock(path / RUN_LOCK_FILE)
    began_s = time.monotonic()

    def waiting() -> bool:
        shown = replace(run, status=f"waiting: {lock.holder()} of an earlier multi_train.py is at")
        progress(shown, run.seconds + time.monotonic() - began_s)
        return not interrupts.skip

    return lock if lock.wait(ORPHAN_WAIT_S, waiting) else None


def command(folder: SequenceFolder, run: RunState) -> list[str]:
    """Return the command line of a run: a new one, or the resume of its last checkpoint."""
    path = folder.path / run.name
    # What was typed comes first: of a flag that is given twice, the last one counts.
    line = [sys.executable, str(MAIN_PROGRAM), *folder.arguments]
    resumable = [made for made in folder.run_folders(run) if made.has_checkpoint()]
    if is_test(run.flags):
        line += ["--op_mode=test"]
    elif resumable:
        line += ["--op_mode=train_w_load", f"--load_model_url={resumable[-1].path}"]
    else:
        line += ["--op_mode=train"]
    return [
        *line,
        f"--results_dir={path}",
        f"--multi_train_overrides={path / 'overrides.json'}",
    ]
