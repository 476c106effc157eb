"""Signals in a benchmark: what it has started ends with it, however it ends.

A benchmark measures within `leaving_by_exception`, so that a signal leaves through every `finally`.
The programs that it starts also ask to be told when it is gone (core/process_death.py), which
covers a SIGKILL.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType

from ritornello.core.stop_signals import handled_by


@contextlib.contextmanager
def leaving_by_exception() -> Iterator[None]:
    """Let a signal that asks to stop raise an exception in the block. Main thread only.

    Ctrl-C raises KeyboardInterrupt; SIGTERM and SIGHUP raise SystemExit with the status that shells
    give to a program that such a signal has ended.
    """
    with handled_by(_leave):
        yield


def _leave(number: int, _: FrameType | None) -> None:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let no signal interrupt the block, in which programs are ended. Main thread only.

    The first one that came meanwhile is answered afterwards. It decorates functions, too.
    """
    heard: list[int] = []
    with handled_by(lambda number, _: heard.append(number)):
        yield
    if heard:
        signal.raise_signal(heard[0])
