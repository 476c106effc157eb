"""Tables and texts in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ritornello.core.plain_data import shown_text

MAX_CELL = 5000  # characters


def plain(text: str) -> str:
    """Return Markdown that shows `text`: no image, link, code or HTML of a stranger's begins."""
    return re.sub(r"([\\`<\[])", r"\\\1", text)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, with a text per heading in each row.

    A cell may hold whatever a stranger wrote: it stays one cell on one line, without control
    characters for a terminal.
    """
    cells = [headings, ["---"] * len(headings), *rows]
    return [f"| {' | '.join(map(_cell, row))} |" for row in cells]


def _cell(text: str) -> str:
    return shown_text(text, MAX_CELL).replace("|", "\\|")
