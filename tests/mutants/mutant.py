"""A mutant: the program with a single fault, planted by exact replacement of text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.house import ROOT, product_files


class DoesNotApply(Exception):
    """The text that a mutant replaces, or a test that it names, is not there (any more)."""


@dataclass(frozen=True)
class Place:
    """A text, and what stands there instead.

    Files are named without their folder, so that a mutant survives a move. The text must be found
    exactly once in all files of these names together.
    """

    files: str  # names, separated by blanks: "vtrace.py"
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A fault, and the few tests that are asked whether they notice it."""

    name: str
    fault: str  # what the program does wrong, for the table
    place: Place
    tests: tuple[str, ...]  # "test_vtrace.py", or "test_vtrace.py::test_float32_agrees..."

    def apply(self, root: Path = ROOT) -> tuple[Path, str]:
        """Return the file below `root` that has the fault, and its text with it.

        Raises:
          DoesNotApply: if the text to be replaced is not there, or more than once.
        """
        names = self.place.files.split()
        paths = [root / p.relative_to(ROOT) for p in _product_files() if p.name in names]
        found = [(p, text) for p in paths if self.place.old in (text := p.read_text("utf-8"))]
        count = sum(text.count(self.place.old) for _, text in found)
        if count != 1:
            raise DoesNotApply(
                f"mutant {self.name}: expected once in {' or '.join(names)}, found {count} times:\n"
                f"{self.place.old}\n"
                "The source has changed: give the mutant its present text (tests/mutants)."
            )
        path, text = found[0]
        return path, text.replace(self.place.old, self.place.new)

    def test_ids(self, root: Path = ROOT) -> list[str]:
        """Return the tests as pytest takes them, relative to `root`.

        Raises:
          DoesNotApply: if there is no such test.
        """
        return [_test_id(self.name, test, root) for test in self.tests]


@cache
def _product_files() -> list[Path]:
    return product_files()


def _test_id(mutant: str, test: str, root: Path) -> str:
    name, _, function = test.partition("::")
    paths = [path for path in sorted((root / "tests").rglob(name)) if path.is_file()]
    if len(paths) != 1:
        raise DoesNotApply(f"mutant {mutant}: {len(paths)} files are called {name}, expected one.")
    if function and not re.search(rf"^def {function}\(", paths[0].read_text("utf-8"), re.MULTILINE):
        raise DoesNotApply(f"mutant {mutant}: {paths[0]} has no test {function}.")
    return paths[0].relative_to(root).as_posix() + (f"::{function}" if function else "")


def named(mutants: Iterable[Mutant], wanted: str) -> list[Mutant]:
    """Return the mutants whose name contains one of these, separated by commas; all if empty."""
    parts = [part.strip() for part in wanted.split(",") if part.strip()]
    return [m for m in mutants if not parts or any(part in m.name for part in parts)]
