"""Lines to the standard error stream, even if nobody reads it any more."""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

WARNINGS_OF_A_LINE = 5


def say(text: str) -> None:
    """Write a line at once; if nobody can read it any more, do nothing.

    A program that is started with closed descriptors has no stream at all (None).
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def limit_warnings() -> None:
    """Show WARNINGS_OF_A_LINE warnings of each line of code, and then that there are more.

    Python shows a text once; an environment that warns of each step by number would fill a log.
    """
    show, counts = warnings.showwarning, Counter[tuple[str, int]]()

    def show_some(
        message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        counts[filename, lineno] += 1
        if counts[filename, lineno] > WARNINGS_OF_A_LINE:
            return
        show(message, category, filename, lineno, file, line)
        if counts[filename, lineno] == WARNINGS_OF_A_LINE:
            say(f"{filename}:{lineno}: further warnings of this line are not shown")

    warnings.showwarning = show_some


@contextlib.contextmanager
def told_while_waiting(
    text: Callable[[float], str],
    first_s: float,
    *,
    progress: Callable[[], object] = lambda: None,
    tell: Callable[[str], None] | None = None,
) -> Iterator[None]:
    """Report from time to time why a block takes so long, so that no terminal stays empty.

    `text` returns a line from the seconds waited so far. The first line comes after `first_s`, and
    each later one after twice as long. All begins anew when `progress` returns something else than
    when it was last asked, which is as often. `tell` takes the lines, by default `say`.
    """
    is_over = threading.Event()

    def watch() -> None:
        waited_s, wait_s, seen = 0.0, first_s, progress()
        while not is_over.wait(wait_s):
            before, seen = seen, progress()
            if seen != before:
                waited_s, wait_s = 0.0, first_s
                continue
            waited_s, wait_s = waited_s + wait_s, 2 * wait_s
            (tell or say)(text(waited_s))

    thread = threading.Thread(target=watch, name="patience", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(1.0)  # longer only if it is writing to a terminal that is frozen
