"""What comes from outside is bounded, or refused with one message."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import MAX_SHOWN, check_plain, parse_json, read_text, shown

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def nested(depth):
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


@settings(max_examples=15)
@given(ANYTHING)
def test_what_is_short_is_shown_as_it_is_and_nothing_is_shown_at_length(value):
    text = shown(value)
    assert len(text) <= MAX_SHOWN
    assert "\n" not in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    "value",
    ["x" * 10**7, [[0] * 10**4] * 10**3, 10**5000, nested(10**5), {"k" * 10**6: 1}],
    ids=["text", "table", "number", "nested", "key"],
)
def test_large_values_are_shown_in_one_line_that_says_so(value):
    text = shown(value)
    assert len(text) <= MAX_SHOWN
    assert "..." in text or "too large" in text


class Painter:
    def __repr__(self):
        return "\x1b[2J two\nlines"


def test_whatever_writes_itself_is_shown_on_one_line_that_no_terminal_obeys():
    assert shown(Painter()) == "\\x1b[2J two lines"
    assert shown([Painter()] * 30).isprintable()
    assert len(shown([Painter()] * 30)) <= MAX_SHOWN


CIRCLE: list = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (nested(60), "nested too deeply"),
        (CIRCLE, "nested too deeply"),
        ({"a": b"bytes"}, "type bytes"),
        ({1: "a"}, "key of the file is 1, of type int.*quotes"),
        ([2**63], "more than 64 bits"),
        (["\ud800"], "no text in Unicode"),
        (["x" * 100_001], "100,001 characters"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_than_plain_data_is_refused(value, message):
    with pytest.raises(ConfigError, match=message):
        check_plain(value, "the file")


def test_a_bomb_of_aliases_is_refused_before_it_is_unfolded():
    bomb: list = ["boom"]
    for _ in range(30):
        bomb = [bomb, bomb, bomb]  # 3^30 texts in 30 lists
    with pytest.raises(ConfigError, match="more than 500,000 values"):
        check_plain(bomb, "the file")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1, column 2"),
        ("9" * 5000, "number that is too long"),
        ("[" * 200_000, "nested too deeply|line 1"),
        ('{"lr": 1, "lr": 2}', "the file gives 'lr' twice in one object.*Delete one"),
        ('[{"a": {"b": 1, "c": 2, "b": 1}}]', "the file gives 'b' twice"),
    ],
    ids=["cut", "number", "unclosed", "twice", "twice below"],
)
def test_json_that_is_none_or_too_much_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_json(text, "the file")


def test_files_that_are_no_small_text_are_refused(tmp_path):
    binary, large, pipe = tmp_path / "binary", tmp_path / "large", tmp_path / "pipe"
    binary.write_bytes(b"name: \xff\xfe")
    large.write_bytes(b"#" * 5_000_000)
    cases = [(binary, "byte 6 is 0xff"), (large, "longer than 4 MB"), (tmp_path, "not a regular")]
    cases += [(tmp_path / "absent", "No such file"), ("a\0b", "null"), ("x" * 300, "too long")]
    os.mkfifo(pipe)
    cases.append((pipe, "not a regular"))
    for path, message in cases:
        with pytest.raises(ConfigError, match=f"the plan.*{message}"):
            read_text(path, "the plan")
