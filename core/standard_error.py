"""One line to the standard error stream, whatever has become of it."""

from __future__ import annotations

import contextlib
import sys


def say(text: str) -> None:
    """Write a line, now; where nobody can read it any more, nothing happens.

    A program that is started with closed descriptors has no stream at all (None).
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
