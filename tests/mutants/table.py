"""The table of mutants, as Markdown and in docs/mutants.md."""

from __future__ import annotations

from collections.abc import Sequence

from tests.house import ROOT
from tests.mutants.mutant import Mutant

Row = tuple[Mutant, str]  # and the test that killed it, empty if it survived
PAGE = ROOT / "docs" / "mutants.md"
SURVIVED = "**survived**"
BEGIN, END = "<!-- mutants: begin -->\n", "<!-- mutants: end -->\n"


HEAD = ("| mutant | what it does wrong | killed by |", "|---|---|---|")


def of(rows: Sequence[Row]) -> str:
    """Return the table."""
    return "\n".join([*HEAD, *map(_line, rows), ""])


def _line(row: Row) -> str:
    mutant, killed_by = row
    path, _, test = killed_by.partition("::")
    by = f"`{path.rpartition('/')[2]}`: {test.replace('_', ' ')}" if test else killed_by
    return f"| {mutant.name} | {mutant.fault} | {by or SURVIVED} |"


def in_page() -> dict[str, str]:
    """Return the lines of docs/mutants.md by the name of the mutant."""
    lines = [line for line in _parts()[1].splitlines() if line not in HEAD]
    return {line.split("|")[1].strip(): line for line in lines}


def write(rows: Sequence[Row], all_mutants: Sequence[Mutant]) -> None:
    """Put verdicts into docs/mutants.md; others there stay, unless their mutant is gone."""
    before, _, after = _parts()
    lines = in_page() | {row[0].name: _line(row) for row in rows}
    known = [lines[mutant.name] for mutant in all_mutants if mutant.name in lines]
    PAGE.write_text(before + "\n".join([*HEAD, *known, ""]) + after, encoding="utf-8")


def _parts() -> tuple[str, str, str]:
    text = PAGE.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    table, end, after = rest.partition(END)
    assert begin, f"{PAGE} has no line {BEGIN.strip()}"
    assert end, f"{PAGE} has no line {END.strip()}"
    return before + begin, table, end + after
