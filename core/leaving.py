"""The end of a program: with the status that is known, whatever the terminal does."""

from __future__ import annotations

import os
import sys
import threading
from typing import NoReturn

from core.process_death import PARENT_WATCH
from core.stop_signals import LISTENER, ignore_from_now_on


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
