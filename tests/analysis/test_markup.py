from __future__ import annotations

import base64
import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ritornello.analysis.markup import (
    MAX_ROWS,
    STYLE,
    Markup,
    beside,
    code,
    data,
    el,
    facts,
    folded,
    join,
    page,
    picture,
    table,
    text,
    within,
)
from ritornello.core.plain_data import shown_text
from tests.analysis.page import Page

HOSTILE = "</td></table><script>alert(1)</script><img src=x onerror=alert(2)> \" ' & \u202e \x00"


@given(
    st.text(min_size=1, max_size=50)
    | st.sampled_from([HOSTILE, "javascript:alert(1)", "-->", "]]>"])
)
def test_text_of_any_kind_stays_text(given_text: str) -> None:
    content = page(
        given_text,
        given_text,
        [
            (given_text, table([given_text], [[given_text], [given_text]], given_text)),
            ("facts", facts([(given_text, given_text)], given_text)),
            ("code", code([given_text, given_text])),
            ("folded", folded(given_text, given_text)),
            ("picture", picture(b"png", given_text)),
            ("link", el("a", given_text, href=beside(given_text))),
        ],
        given_text,
    )
    found = Page(content).check()
    without = Page(page("a", "a", [("a", table(["a"], [["a"], ["a"]], "a")), *PARTS], "a")).tags
    assert found.tags == without, "no text makes or unmakes an element"
    if given_text.strip() == given_text != "":
        assert shown_text(given_text) in found.text


PARTS = [
    ("facts", facts([("a", "a")], "a")),
    ("code", code(["a", "a"])),
    ("folded", folded("a", "a")),
    ("picture", picture(b"png", "a")),
    ("link", el("a", "a", href=beside("a"))),
]


def test_what_turns_the_direction_of_writing_is_shown_by_its_number() -> None:
    assert "\\u202e" in text("a\u202eb")
    assert text("a\nb") == "a\\nb"


@given(st.text(min_size=1, max_size=30))
def test_an_address_leads_nowhere_else(path: str) -> None:
    for address in (beside(path), within(path)):
        assert re.fullmatch(r"(\./|#)[A-Za-z0-9_.~/%-]*", address), address
    assert beside("javascript:alert(1)") == "./javascript%3Aalert%281%29"
    assert beside("\udc80.mp4") == "./%80.mp4"
    assert beside("//elsewhere/a") == ".///elsewhere/a"  # below this page's folder


def test_only_known_elements_are_made() -> None:
    for tag in ("script", "iframe", "form", "style", "object", "a onclick"):
        with pytest.raises(ValueError, match="is not made here"):
            el(tag, "text")
    for name in ("onclick", "style", "srcdoc", "formaction"):
        with pytest.raises(ValueError, match="is not made here"):
            el("p", "text", **{name: "x"})
    for value in ("https://elsewhere/", "javascript:alert(1)", Markup("x")):
        with pytest.raises(ValueError, match="an address made here"):
            el("a", "text", href=value)


def test_content_is_part_of_the_page() -> None:
    address = data(b"\x89PNG\x00", "image/png")
    assert base64.b64decode(address.removeprefix("data:image/png;base64,")) == b"\x89PNG\x00"


def test_the_browser_is_told_which_style_is_ours() -> None:
    content = page("a", None, [], "b")
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in content
    assert content.count("<style>") == content.count(f"<style>{STYLE}</style>") == 1


def test_long_tables_end_and_empty_ones_are_a_sentence() -> None:
    shown = table(["a"], [[n] for n in range(MAX_ROWS + 3)], "numbers")
    assert shown.count("<tr>") == MAX_ROWS + 1
    assert "3 more rows are left out." in shown
    assert table(["a"], [], "nothing") == facts([("a", None), ("b", "")], "nothing")
    assert join([None, "a<", Markup("<p>")]) == "a&lt;<p>"
