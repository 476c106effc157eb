"""Lines to the standard error stream, whatever has become of it."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator


def say(text: str) -> None:
    """Write a line, now; where nobody can read it any more, nothing happens.

    A program that is started with closed descriptors has no stream at all (None).
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


@contextlib.contextmanager
def told_while_waiting(text: Callable[[float], str], first_s: float) -> Iterator[None]:
    """Say from time to time why a block takes so long, so that no terminal stays empty.

    Args:
      text: seconds waited so far -> line.
      first_s: seconds until the first line; each later one comes after twice as long.
    """
    is_over = threading.Event()

    def watch() -> None:
        waited_s, wait_s = 0.0, first_s
        while not is_over.wait(wait_s):
            waited_s, wait_s = waited_s + wait_s, 2 * wait_s
            say(text(waited_s))

    thread = threading.Thread(target=watch, name="patience", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(1.0)  # longer only if it is writing to a terminal that is frozen
