"""Ends that wait for nothing: of this program, whatever its terminal does, and of its children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import NoReturn

from ritornello.core.process_death import PARENT_WATCH
from ritornello.core.stop_signals import LISTENER, ignore_from_now_on

KILL_WAIT_S = 10.0  # a process that was killed is gone at once, unless a device holds it


def wait_for_killed(child: subprocess.Popen[bytes]) -> int:
    """Return the exit status of a child that was killed or has ended; do not wait for ever.

    A device or a file system may hold it in the kernel. Then it ends later, and keeps its locks
    until then, so that nobody takes its place.
    """
    try:
        return child.wait(KILL_WAIT_S)
    except subprocess.TimeoutExpired:
        child.returncode = -signal.SIGKILL  # or Python would complain that it still runs
        return child.returncode


def leave(status: int) -> NoReturn:
    """End the process with `status`, also where a terminal is closed or frozen."""
    ignore_from_now_on()
    names = {thread.name for thread in threading.enumerate()}
    if names - {threading.main_thread().name, PARENT_WATCH, LISTENER}:
        # Their deadline has passed: they hang in a write to a terminal or a disk that does not
        # answer, and the interpreter's own way out would wait for the locks that they hold.
        os._exit(status)
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # the program may have been started with closed descriptors
                stream.flush()
    except OSError:
        os._exit(status)  # nobody reads any more: all has been said in train.log
    sys.exit(status)
