"""Parts of a benchmark that run in processes of their own, each of which answers once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from benchmarks.programs import undisturbed
from ritornello.core.process_death import die_with_parent, ignore_interrupts

START_S = 400.0  # a busy machine takes minutes to start some processes with torch
END_S = 20.0


def answers(
    work: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], limit_s: float
) -> list[Any]:
    """Call a function in as many processes at once as there are arguments. Main thread only.

    Args:
      work: a function of a module; what it returns is pickled.
      arguments: of each call.
      limit_s: for all to answer, from their start on.

    Returns:
      What each call returned, in the order of the arguments.

    Raises:
      SystemExit: a call failed, its process died, or it took too long; the message says what. All
        processes have ended.
    """
    context = multiprocessing.get_context("spawn")
    children: dict[Connection, BaseProcess] = {}
    found: dict[Connection, Any] = {}
    try:
        for each in arguments:
            ours, theirs = context.Pipe(duplex=False)
            child = context.Process(target=_answer, args=(theirs, work, each))
            child.start()
            children[ours] = child
            theirs.close()  # so that the death of the child is an end of file, not silence
        deadline = time.monotonic() + limit_s
        while waiting := [end for end in children if end not in found]:
            ready = wait(waiting, max(0.0, deadline - time.monotonic()))
            if not ready:
                sys.exit(f"{len(waiting)} processes did not answer within {limit_s:g} s")
            for end in ready:
                assert isinstance(end, Connection)
                found[end] = _received(end, children[end])
        return [found[end] for end in children]
    finally:
        with undisturbed():
            for process in children.values():
                process.kill()
            for process in children.values():
                process.join(END_S)


def _received(end: Connection, child: BaseProcess) -> Any:
    try:
        failure, answer = end.recv()
    except EOFError:
        child.join(END_S)
        sys.exit(f"a process ended with status {child.exitcode} before it had an answer")
    if failure:
        sys.exit(failure)
    return answer


def _answer(end: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Child process: send (failure, answer)."""
    ignore_interrupts()  # the parent is interrupted, too, and ends this process
    die_with_parent(os.getppid(), signal.SIGKILL)
    try:
        answer = work(*arguments)
    except SystemExit as leaving:
        end.send((str(leaving), None))
    except Exception as error:
        end.send((f"{type(error).__name__}: {error}", None))
    else:
        end.send(("", answer))
