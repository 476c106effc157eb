"""Hints for names that are typed wrongly."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "did you mean <the known name that is nearest>?", or "" if none is near."""
    names = list(known)
    near = difflib.get_close_matches(name, names, 1)
    near = near or [each for each in names if name and each.startswith(name)]
    return f"did you mean {near[0]}?" if near else ""


def american(name: str) -> str:
    """Return a name in American spelling, so that both spellings of it compare equal."""
    return (
        name.replace("isation", "ization")
        .replace("ormalise", "ormalize")
        .replace("timiser", "timizer")
        .replace("ioritise", "ioritize")
    )
