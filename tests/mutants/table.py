"""The table of mutants, as Markdown and in docs/testing.md."""

from __future__ import annotations

from collections.abc import Sequence

from tests.house import ROOT
from tests.mutants.mutant import Mutant

Row = tuple[Mutant, str]  # and the test that killed it, empty if it survived
PAGE = ROOT / "docs" / "testing.md"
BEGIN, END = "<!-- mutants: begin -->\n", "<!-- mutants: end -->\n"


def of(rows: Sequence[Row]) -> str:
    """Return the table."""
    return "\n".join(
        ["| mutant | what it does wrong | killed by |", "|---|---|---|", *(map(_line, rows)), ""]
    )


def _line(row: Row) -> str:
    mutant, killed_by = row
    path, _, test = killed_by.partition("::")
    by = f"`{path.rpartition('/')[2]}`: {test.replace('_', ' ')}" if test else killed_by
    return f"| {mutant.name} | {mutant.fault} | {by or '**survived**'} |"


def names_in_page() -> list[str]:
    """Return the names of the mutants in docs/testing.md."""
    lines = _parts()[1].splitlines()[2:]
    return [line.split("|")[1].strip() for line in lines if line.startswith("|")]


def write(rows: Sequence[Row]) -> None:
    """Put the table into docs/testing.md."""
    before, _, after = _parts()
    PAGE.write_text(before + of(rows) + after, encoding="utf-8")


def _parts() -> tuple[str, str, str]:
    text = PAGE.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    table, end, after = rest.partition(END)
    assert begin, f"{PAGE} has no line {BEGIN.strip()}"
    assert end, f"{PAGE} has no line {END.strip()}"
    return before + begin, table, end + after
