"""What environments may do to the process they live in. Needs the standard library only."""

import ctypes
import os
import signal
import time


def hang_in_python():
    while True:
        time.sleep(3600)


def hang_in_c():
    """Hang so that no line of Python runs any more, in no thread: PyDLL keeps the interpreter."""
    while True:
        ctypes.PyDLL(None).sleep(3600)  # ends at a signal


def crash():
    ctypes.string_at(8)


def fork_and_die():
    """Leave a copy of the process that holds its pipes open, and be killed."""
    if os.fork() == 0:
        time.sleep(3600)
    os.kill(os.getpid(), signal.SIGKILL)
