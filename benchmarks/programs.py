"""Processes and signals of a benchmark: what it has started ends with it, however it ends.

A benchmark measures within `leaving_by_exception`, so that a signal leaves through every `finally`.
The processes that it starts also ask to be ended when it is gone (core/process_death.py), which
covers a SIGKILL.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from ritornello.core.process_death import die_with_parent, ignore_interrupts
from ritornello.core.stop_signals import handled_by

START_S = 400.0  # a busy machine takes minutes to start some processes with torch


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


def answers(
    work: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], limit_s: float
) -> list[Any]:
    """Call a function in as many processes at once as there are arguments.

    Args:
      work: a function of a module. It may call `all_started`.
      arguments: of each call.
      limit_s: for all to answer, from their start on.

    Returns:
      What each call returned, in the order of the arguments. The processes have ended.

    Raises:
      TimeoutError: if one of them took too long, or died.
      BaseException: whatever a call raised.
    """
    context, count = multiprocessing.get_context("spawn"), len(arguments)
    with context.Pool(count, _begin, (os.getpid(), context.Barrier(count))) as pool:
        return pool.starmap_async(work, arguments, chunksize=1).get(limit_s)


def all_started() -> None:
    """Wait, in a process of `answers`, until each of them is here."""
    _barrier.wait(timeout=START_S)


def _begin(parent: int, barrier: Any) -> None:
    global _barrier
    _barrier = barrier
    ignore_interrupts()  # the parent is interrupted, too, and ends this process
    die_with_parent(parent, signal.SIGKILL)


_barrier: Any = None
