"""Programs that a benchmark starts end with it, however it ends.

A benchmark measures within `leaving_by_exception`, so that a signal leaves through every `finally`,
and starts the programs of this repository within `running`. They also ask to be told when the
benchmark is gone (core/process_death.py), which covers a SIGKILL.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from ritornello.core.process_death import environment_for_child
from ritornello.core.stop_signals import handled_by

ROOT = Path(__file__).resolve().parent.parent


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


@contextlib.contextmanager
def running(
    command: Sequence[str], *, grace_s: float = 0.0, **options: Any
) -> Iterator[subprocess.Popen[Any]]:
    """Run a program of this repository within the block. Main thread only.

    It must call `end_with_starter`, as main.py does.

    Args:
      command: program and arguments; it runs in the root of the repository.
      grace_s: after the block it is asked to end (SIGTERM), and killed after so long; 0: killed at
        once.
      options: more arguments of subprocess.Popen.
    """
    process = subprocess.Popen(list(command), cwd=ROOT, env=environment_for_child(), **options)
    try:
        yield process
    finally:
        with undisturbed():
            if grace_s:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(grace_s)
            process.kill()
            process.wait()
