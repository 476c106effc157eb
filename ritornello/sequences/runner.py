"""Runs a plan: child processes, one after the other or several at once; folder.py has its state.

Each run is a process of its own, so that one that fails, leaks or is killed cannot touch the next.
No run is begun after one that others stop (the end of a Slurm job, the live page); those at the
same time go on, and a resume does the rest.

A run holds the lock of its folder together with this process. If this process is killed, its run
may live on a while; whoever resumes the sequence waits until that one is gone (`_attempt`).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from types import FrameType
from typing import Any

from ritornello.core.atomic_file import write_json
from ritornello.core.errors import ConfigError, first_line
from ritornello.core.file_lock import FileLock
from ritornello.core.leaving import wait_for_killed
from ritornello.core.process_death import environment_for_child
from ritornello.core.project import main_program
from ritornello.core.stop_signals import INTERRUPTED, StopRequests, handled_by
from ritornello.sequences.checks import keepable
from ritornello.sequences.folder import OUTPUT_FILE, RUN_LOCK_FILE, RunState, SequenceFolder
from ritornello.sequences.plan import goes_on, is_test

GRACE_S = 120.0  # for a run to save its checkpoint after SIGINT, before it is killed
POLL_S = 0.5
LEFT_BEHIND = ("load_replay", "load_optimizer_save")  # by which a resume may leave something out
ORPHAN_WAIT_S = 600.0  # for a run that has outlived its multi_train.py; it saves and ends by itself

Progress = Callable[[RunState, float], None]  # is called with a run, and its seconds so far
Attempt = Generator[bool, None, None]  # yields as long as it goes on
# Processes that live, and when each is killed; None: it has not been asked to save and end.
Running = dict[subprocess.Popen[bytes], float | None]


class Interrupts(StopRequests):
    """Requests of the user while runs go on, as in main.py.

    After the first Ctrl-C, SIGTERM or SIGHUP the runs save and end, and no other one begins; a
    second one kills them. This object only notes the request; the runner acts on it.
    """

    ends_run = False  # whether the program itself wants the present run to save and end

    @property
    def stop(self) -> bool:
        """Whether everything is to be saved and ended."""
        return self.count > 0

    @property
    def ends(self) -> bool:
        """Whether the present runs are to be saved and ended, whoever asks for that."""
        return self.stop or self.ends_run

    @property
    def at_once(self) -> bool:
        """Whether the runs are to be ended without being saved."""
        return self.count > 1

    def note(self, signal_number: int, frame: FrameType | None = None) -> None:
        """Note one signal. Python calls it in the main thread, between two instructions."""
        self.is_new(signal_number)

    @contextlib.contextmanager
    def installed(self) -> Iterator[Interrupts]:
        """Install the handlers, and restore the previous ones at the end."""
        with handled_by(self.note):
            yield self


def run_sequence(
    folder: SequenceFolder,
    interrupts: Interrupts,
    progress: Progress = lambda run, seconds: None,
    only: Sequence[int] | None = None,
) -> None:
    """Run everything that is not done. Failures are recorded and passed over.

    The state of the sequence is kept up to date on disk as far as that takes it; OSError if it does
    not in the end. `progress` is called with (run, seconds so far) at each change and twice a
    second in between. `only` has the indices of the runs to look at; None: all.
    """
    indices = range(len(folder.runs)) if only is None else only
    waiting = [index for index in indices if folder.runs[index].status != "done"]
    active: dict[int, tuple[int, Attempt]] = {}  # slot -> index of the run, and its attempt
    running: Running = {}
    try:
        while waiting or active:
            if interrupts.ends:
                waiting = []
            for index in _due(folder, waiting, [index for index, _ in active.values()]):
                waiting.remove(index)
                source = folder.source(folder.runs[index])
                if source is None or (source.status == "done" and folder.run_folders(source)):
                    slot = next(slot for slot in range(len(active) + 1) if slot not in active)
                    attempt = _attempt(folder, index, slot, running, interrupts, progress)
                    active[slot] = index, attempt
                else:
                    # Not a failure of its own: on a resume, the other is tried first.
                    run = folder.update(index, status="waiting")
                    progress(run, run.seconds)
            for slot, (index, attempt) in list(active.items()):
                if next(attempt, None) is None:
                    del active[slot]
                    if folder.runs[index].status == "stopped":
                        waiting = []
            if active:
                threading.Event().wait(POLL_S)
        folder.save()  # lest the disk refused it when the last run ended
    finally:
        _save_and_end(running, interrupts)  # some are left if something failed, as a disk


def _due(folder: SequenceFolder, waiting: Sequence[int], active: Sequence[int]) -> list[int]:
    """Return which of the waiting runs are begun now, or given up, in their order.

    A run that starts from another one waits for it.
    """
    pending = [folder.runs[index].name for index in (*active, *waiting)]
    sources = {index: folder.source(folder.runs[index]) for index in waiting}
    ready = [index for index, of in sources.items() if of is None or of.name not in pending]
    return ready[: max(0, folder.at_once - len(active))]


def _attempt(
    folder: SequenceFolder,
    index: int,
    slot: int,
    running: Running,
    interrupts: Interrupts,
    progress: Progress,
) -> Attempt:
    """Run one run, or go on with it; yield at each look at it, as long as it goes on.

    `slot` is its number among the runs at the same time; `running` holds its process while that
    lives.
    """
    run, began_s = folder.runs[index], time.monotonic()
    path, before_s = folder.path / run.name, folder.seconds_of(run)  # of earlier attempts
    lock = FileLock(path / RUN_LOCK_FILE)

    def seconds() -> float:
        return before_s + time.monotonic() - began_s

    def finish(reason: str = "", **changes: Any) -> None:
        run = folder.update(index, **changes)
        shown = {"status": f"{run.status}: {reason}: "} if reason else {}
        progress(run.model_copy(update=shown), run.seconds)

    try:
        path.mkdir(exist_ok=True)
        lock.acquire()
    except (OSError, ConfigError) as error:  # something else lies there
        return finish(first_line(error), status="failed")
    while not lock.acquire():
        if interrupts.stop or time.monotonic() - began_s >= ORPHAN_WAIT_S:
            return finish(status="stopped" if interrupts.stop else "waiting")
        state = f"waiting: {lock.holder()} of an earlier multi_train.py is at "
        progress(run.model_copy(update={"status": state}), seconds())
        yield True
    try:
        if folder.has_ended(run):  # and whoever ran it could not note it any more
            return finish(status="done", exit_code=None, seconds=folder.seconds_of(run))
        typed = keepable(folder.arguments)
        run = folder.update(index, status="running", exit_code=None, arguments=typed)
        try:
            process = _start(folder, run, slot, lock)
        except OSError as error:
            return finish(first_line(error), status="failed")
        running[process] = None
        for _ in _until_ended(process, running, interrupts):
            progress(run, seconds())
            yield True
        del running[process]
    finally:
        lock.release()
    code = process.returncode
    # A training leaves with 0 only at its own end; a test that is interrupted does so, too.
    has_ended = (code == 0 and not is_test(run.flags)) or folder.has_ended(run)
    is_over = has_ended or (code == 0 and not interrupts.stop)
    is_stopped = interrupts.ends or code == INTERRUPTED
    status = "done" if is_over else "stopped" if is_stopped else "failed"
    finish(status=status, exit_code=code, seconds=round(seconds(), 1))
    return None


def _until_ended(
    process: subprocess.Popen[bytes], running: Running, interrupts: Interrupts
) -> Attempt:
    """Yield as long as a process goes on, and pass on requests of the user."""
    while process.poll() is None:
        if interrupts.ends:
            _ask_to_save(process, running)
        kill_at_s = running[process]
        if interrupts.at_once or (kill_at_s and time.monotonic() >= kill_at_s):
            break
        yield True
    _kill(process)


def _ask_to_save(process: subprocess.Popen[bytes], running: Running) -> None:
    """Ask a process once to save and end: a second signal would have it leave without saving."""
    if running[process] is None:
        process.send_signal(signal.SIGINT)
        running[process] = time.monotonic() + GRACE_S


def _save_and_end(running: Running, interrupts: Interrupts) -> None:
    """Let all processes save and end at the same time; kill what is left after GRACE_S."""
    for process in running:
        _ask_to_save(process, running)
    for process in running:
        for _ in _until_ended(process, running, interrupts):
            threading.Event().wait(POLL_S)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, with its workers, and wait until it is gone."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    wait_for_killed(process)


def _start(
    folder: SequenceFolder, run: RunState, slot: int, lock: FileLock
) -> subprocess.Popen[bytes]:
    """Start main.py; the folder is ours."""
    line, path = command(folder, run, slot), folder.path / run.name
    write_json(path / "overrides.json", folder.resolved_flags(run))
    with open(path / OUTPUT_FILE, "ab", opener=_open_no_link) as log:
        log.write(f"$ {shlex.join(line)}\n".encode())
        log.flush()
        # A session of its own: the terminal sends Ctrl-C to every process in its group, and a run
        # must get exactly one, from us. It holds the lock too, for when we are killed.
        process = subprocess.Popen(
            line,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(lock.descriptor,),
            env=environment_for_child(),
        )
    lock.name_holder(process.pid)
    return process


def _open_no_link(path: str, flags: int) -> int:
    """Open a file for appending; a link, which a stranger could have put there, is an error."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o644)


def command(folder: SequenceFolder, run: RunState, slot: int = 0) -> list[str]:
    """Return the command line of a run: its beginning, or the resume of its last checkpoint."""
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
    return [*line, f"--results_dir={path}", f"--multi_train_overrides={path / 'overrides.json'}"]
