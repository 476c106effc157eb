"""One `main.py` as a child process: started apart, stopped cleanly, never left behind.

The child leads a session and a process group of its own. So the terminal's Ctrl-C reaches the queue
alone, which tells the child; `--background` can make the whole session give way; and what a child
that was killed leaves running is found by its group.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ritornello.core.file_lock import FileLock
from ritornello.core.leaving import wait_for_killed
from ritornello.core.plain_data import shown_text
from ritornello.core.process_death import environment_for_child
from ritornello.core.project import MAIN_PROGRAM as MAIN_PROGRAM  # queue_loop takes it from here
from ritornello.core.project import PROJECT_ROOT

GRACE_S = 120.0  # for a run to save its checkpoint after SIGINT, before it is killed
POLL_S = 0.5
MAX_MESSAGE = 300  # characters of the last line that are kept


@dataclass(frozen=True)
class Ending:
    """How a child ended. `status` is negative if a signal killed it, as in subprocess."""

    status: int
    asked: bool  # it was told to stop
    message: str  # the last line that it printed, fit for a terminal


def run_trainer(
    arguments: Sequence[str],
    output_file: Path,
    *,
    lock: FileLock,
    started: Callable[[int], None],
    wants_stop: Callable[[], bool],
    wants_kill: Callable[[], bool],
    main_program: Path = MAIN_PROGRAM,
    grace_s: float = GRACE_S,
) -> Ending:
    """Run main.py until it ends by itself or is told to, and return how it ended.

    Args:
      arguments: the command line of main.py, without the program's name.
      output_file: file to which its output is added.
      lock: held by this process, and by the child for as long as that lives, also beyond it.
      started: function that is called once with its process id.
      wants_stop: function that is asked twice a second; True: save and stop (SIGINT). If it
        raises, the child is told to as well, and the error goes on after its end.
      wants_kill: function that is asked after that; True: do not wait for the checkpoint.
      main_program: path of main.py.
      grace_s: seconds for which a child that was told to stop is waited for.
    """
    command = [sys.executable, str(main_program), *arguments]
    with open(output_file, "ab+") as output:
        output.write(f"$ {shlex.join(command)}\n".encode())
        output.flush()
        began_at = output.seek(0, os.SEEK_END)
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=PROJECT_ROOT,
            start_new_session=True,
            pass_fds=[lock.descriptor],
            env=environment_for_child(),
        )
        try:
            started(child.pid)
            asked = _wait(child, wants_stop, wants_kill, grace_s)
        finally:
            # All of its group: workers that a killed trainer left behind, and itself if it hangs.
            with suppress(ProcessLookupError, PermissionError):  # macOS: none but zombies
                os.killpg(child.pid, signal.SIGKILL)
            status = wait_for_killed(child)
        return Ending(status, asked, _last_line(output, began_at))


def _wait(
    child: subprocess.Popen[bytes],
    wants_stop: Callable[[], bool],
    wants_kill: Callable[[], bool],
    grace_s: float,
) -> bool:
    """Wait for the end, or until waiting makes no sense; return whether the child was told to."""
    kill_at_s: float | None = None
    problem: Exception | None = None
    while child.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=POLL_S)
            break
        if kill_at_s is None:
            try:
                is_to_stop = wants_stop()
            except Exception as error:  # no reason to lose what was learned since the checkpoint
                problem, is_to_stop = error, True
            if is_to_stop:
                child.send_signal(signal.SIGINT)
                kill_at_s = time.monotonic() + grace_s
        elif wants_kill() or time.monotonic() >= kill_at_s:
            break
    if problem is not None:
        raise problem
    return kill_at_s is not None


def _last_line(output: IO[bytes], began_at: int) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(began_at, size - 4096))
    # Also at a carriage return: with it, a bar of progress writes over itself.
    lines = output.read().decode("utf-8", "replace").splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return shown_text(last, MAX_MESSAGE)
