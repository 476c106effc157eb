"""The metrics of a run as CSV, a piece at a time."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from ritornello.live.journal import Journal
from ritornello.live.json_text import encoded

ROWS_AT_ONCE = 500


def csv_of(journal: Journal) -> Iterator[bytes]:
    """Yield a table of all records: agent_steps, minutes, then each metric; empty if not measured.

    A number is written with 12 digits, and a name that a spreadsheet would take for a formula with
    an apostrophe before it.
    """
    names = journal.names()
    yield _line(["agent_steps", "minutes", *map(safe_cell, names)])
    generation, total = journal.read()
    begin = 0
    while begin < total:
        # Rows of another generation are of another history: the table ends where that begins.
        rows = journal.exactly(names, begin, min(total, begin + ROWS_AT_ONCE), generation)
        if rows is None:
            return
        columns = [rows.minutes, *(rows.columns[name] for name in names)]
        for index, steps in enumerate(rows.steps):
            cells = [f"{c[index]:.12g}" if c[index] == c[index] else "" for c in columns]
            yield _line([str(int(steps)), *cells])
        begin += ROWS_AT_ONCE


def safe_cell(text: str) -> str:
    """Return text that a spreadsheet does not take for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _line(cells: list[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return encoded(text.getvalue())
