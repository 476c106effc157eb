from __future__ import annotations

import re
from functools import cache

import pytest

from tests.figures import CLAIMS, Claim
from tests.house import ROOT

FIGURE = r"(-?\d[\d,]*(?:\.\d+)?)"
# Wherever a document says one of these, the figure must be one of a claim.
MUST_BE_CLAIMED = (r"\*\*-?\d[\d,.]*\*\*", r"\b\d+ test games")


@cache
def text_of(document: str) -> str:
    return " ".join((ROOT / document).read_text(encoding="utf-8").split())


def matches(claim: Claim) -> list[re.Match[str]]:
    sentence = " ".join(claim.sentence.split())
    pattern = FIGURE.join(re.escape(part) for part in sentence.split("{}"))
    return list(re.finditer(pattern, text_of(claim.document)))


def is_shown(shown: str, value: float) -> bool:
    """Whether `shown` is `value`, rounded to as many decimals."""
    decimals = len(shown.partition(".")[2])
    return abs(float(shown.replace(",", "")) - value) <= 0.5 * 10**-decimals + 1e-9


@pytest.mark.parametrize(
    "claim", CLAIMS, ids=lambda claim: f"{claim.document}: {claim.sentence}"[:70]
)
def test_a_figure_of_the_documents_is_that_of_its_file(claim: Claim) -> None:
    found = matches(claim)
    assert found, f"{claim.document} does not say: {claim.sentence}"
    values = [value() for value in claim.values]
    said = [
        all(map(is_shown, match.groups(), values))
        for match in found
        if len(match.groups()) == len(values)
    ]
    # Two tables may have rows of the same name; each of them has a claim of its own.
    assert any(said), (
        f"{claim.document} says {[match.groups() for match in found]} in {claim.sentence!r}, "
        f"the files say {[round(value, 4) for value in values]}"
    )


@pytest.mark.parametrize("document", ["README.md", "docs/results.md"])
def test_no_figure_that_needs_a_file_is_without_a_claim(document: str) -> None:
    spans = [
        match.span() for claim in CLAIMS if claim.document == document for match in matches(claim)
    ]
    text = text_of(document)
    for pattern in MUST_BE_CLAIMED:
        for match in re.finditer(pattern, text):
            assert any(low <= match.start() and match.end() <= high for low, high in spans), (
                f"{document}: {text[max(0, match.start() - 80) : match.end() + 20]!r} has no claim "
                "in tests/figures/"
            )


@pytest.mark.parametrize(
    "summary", ["What we know about replay", "What was tried to learn more from each frame"]
)
def test_a_summary_repeats_figures_of_its_sections(summary: str) -> None:
    page = (ROOT / "docs" / "results.md").read_text("utf-8")
    table, sections = page.partition(f"\n## {summary}\n")[2].split("\n## ", 1)
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if "](#" in line]
    assert len(rows) > 5
    figure = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.]*\d)")
    for _, _, figures, link in rows:
        linked = re.fullmatch(r"\[(.+)\]\(#(.+)\)", link)
        assert linked, f"{link!r} is no link to a section, [its name](#its-heading)"
        section, anchor = linked.groups()
        heading, _, rest = sections.partition(f"### {section}")[2].partition("\n")
        assert rest, f"{section} is no section"
        words = re.sub(r"[^\w -]", "", f"{section}{heading}".lower())
        assert anchor == words.replace(" ", "-"), f"the heading of {section} has another anchor"
        of_section = rest.partition("\n### ")[0]
        stated = figure.findall(re.sub(r"\d+(\.\d+)? M (steps|frames)", "", figures))
        assert stated
        missing = set(stated) - set(figure.findall(of_section))
        assert not missing, f"{section} does not have {missing}"


@pytest.mark.parametrize(
    ("shown", "value", "right"),
    [
        ("84", 84.1, True),
        ("84.1", 84.1, True),
        ("84.1", 84.16, False),
        ("102.0", 102.025, True),
        ("80", 100.0, False),
        ("-17.0", -17.04, True),
        ("-17.0", 17.0, False),
        ("2,946", 2946.4, True),
    ],
)
def test_a_figure_is_compared_at_the_decimals_that_it_shows(
    shown: str, value: float, right: bool
) -> None:
    assert is_shown(shown, value) is right
