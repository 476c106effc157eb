"""That the files which carry the idea can be read in an evening, one after the other."""

from __future__ import annotations

import ast
import re
from itertools import pairwise

import pytest

from tests.house import ROOT

CORE = (
    "core/unroll.py",
    "agent/acting/rollout.py",
    "transport/ring.py",
    "replay/buffer.py",
    "replay/mixing.py",
    "agent/algorithms/vtrace.py",
    "agent/algorithms/impala.py",
    "agent/learning/learner.py",
)
MAX_LINES = 1600  # less than that of all of them together, as the documents say
AFTER_THEM = "agent/run/experience.py"


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_files_that_carry_the_idea_are_short_together() -> None:
    lengths = {name: len(text_of(name).splitlines()) for name in CORE}
    assert sum(lengths.values()) < MAX_LINES, f"move parts to files next to them: {lengths}"


def test_the_architecture_page_lists_them_in_the_order_of_reading() -> None:
    page = text_of("docs/architecture.md")
    listed = re.findall(r"^\d\. \[([\w/]+\.py)\]\(\.\./([\w/]+\.py)\)", page, re.MULTILINE)
    assert listed == [(name, name) for name in CORE]
    assert f"{MAX_LINES:,} lines" in page


def test_the_page_for_contributors_leads_there_and_says_how_long_they_may_be() -> None:
    page = text_of("CONTRIBUTING.md")
    assert "[docs/architecture.md](docs/architecture.md)" in page
    assert f"{MAX_LINES:,} lines" in page


@pytest.mark.parametrize(("name", "following"), [*pairwise(CORE), (CORE[-1], AFTER_THEM)])
def test_each_ends_its_docstring_with_the_next(name: str, following: str) -> None:
    docstring = ast.get_docstring(ast.parse(text_of(name)))
    assert docstring is not None
    match = re.search(r"Next to read: ([\w/]+\.py)[^.]*\.$", " ".join(docstring.split()))
    assert match is not None, f"{name} does not end with a sentence on what to read next"
    assert match[1] == following
