"""Input that nobody would write on purpose, which is honoured, or refused in one message."""

from contextlib import contextmanager
from typing import Any

from hypothesis import strategies as st

from ritornello.core.errors import PlatformError

MAX_MESSAGE = 6000  # characters: a screen, and a list of games in it
DROP, BEND = object(), object()  # in the place of a value: the place goes, or is a little changed

# fmt: off
NASTY_TEXTS = (
    "", " ", "\0", "\n", "\x1b[31m", "[/]", "[red]", "$x^{", "|", "'", '"', "\\", "%s", "../..",
    "/", "~", ".", "-", "--", "=", ",", ",,", ":", "a:b", "/dev/zero", "nan", "inf", "1e999", "-1",
    "1_000", "0x10", "True", "None", "null", "[]", "9" * 30, "9" * 5000, "x" * 20_000, "[" * 500,
    "\u202e", "\U0001f40d", "ß",
)
NASTY_VALUES = (
    None, True, False, 0, -1, 1, 2, 2**31, 2**63, -(2**70), 0.5, 1e-320, 1e308, float("nan"),
    float("inf"), [], {}, [[]], [None], {"a": 1}, {"run": "a"}, *NASTY_TEXTS,
)
# fmt: on
nasty = st.sampled_from(NASTY_VALUES)


def places(tree, path=()):
    """Yield every place in a tree, the leaves included, the root not."""
    children: list[tuple[Any, Any]] = []
    if isinstance(tree, dict):
        children = list(tree.items())
    elif isinstance(tree, (list, tuple)):
        children = list(enumerate(tree))
    for key, child in children:
        yield (*path, key)
        yield from places(child, (*path, key))


def changed(tree, path, change):
    """Return a copy of a tree with another value at a place; DROP leaves the place out."""
    key, *rest = path
    value = changed(tree[key], tuple(rest), change) if rest else change(tree[key])
    if isinstance(tree, dict):
        return {
            k: value if k == key else v for k, v in tree.items() if k != key or value is not DROP
        }
    found = [value if n == key else v for n, v in enumerate(tree) if n != key or value is not DROP]
    return type(tree)(found)


@st.composite
def damaged_tree(draw, tree, values=nasty, sound=""):
    """Draw a tree of which one or two places are left out, hold something else, or nearly.

    Nothing is changed below the key `sound`.
    """
    for _ in range(draw(st.integers(1, 2))):
        where = [path for path in places(tree) if sound not in path]
        if where:
            value = draw(st.one_of(values, st.sampled_from((DROP, BEND))))
            bend = bent if value is BEND else lambda _, value=value: value
            tree = changed(tree, draw(st.sampled_from(where)), bend)
    return tree


def bent(value):
    """Return nearly the same value: a larger number, a longer list, other numbers in an array."""
    if isinstance(value, (list, tuple, str, bytes)):
        return value + value[:1]
    if isinstance(value, dict):
        return {**value, "more": 1}
    return not value if value is None or isinstance(value, bool) else value + 1


@st.composite
def damaged_text(draw, text):
    """Draw a text from which a piece is cut out, with another in its place."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = start + draw(st.sampled_from((0, 1, 3, 20)))
        piece = draw(st.sampled_from((*NASTY_TEXTS, text[start:end] * 2)))
        text = text[:start] + piece + text[end:]
    return text


@st.composite
def damaged_bytes(draw, data):
    """Draw bytes of which some are flipped, cut off, doubled or put in."""
    place = draw(st.integers(0, len(data)))
    kind = draw(st.sampled_from(("flip", "zero", "cut", "double", "insert")))
    if kind == "flip":
        flipped = bytes(byte ^ draw(st.integers(1, 255)) for byte in data[place : place + 1])
        return data[:place] + flipped + data[place + 1 :]
    length = draw(st.sampled_from((1, 16, 512)))
    if kind == "zero":
        return data[:place] + b"\0" * length + data[place + length :]
    if kind == "cut":
        return data[:place]
    more = data[place : place + length] if kind == "double" else draw(st.binary(max_size=64))
    return data[:place] + more + data[place:]


@contextmanager
def honoured_or_refused(folder=None):
    """Assert that the block goes well or raises one plain message, and leaves no half file."""
    try:
        yield
    except PlatformError as error:
        message = str(error)
        assert message.strip()
        assert len(message) <= MAX_MESSAGE, message[:300]
        assert all(line.isprintable() for line in message.splitlines()), message[:500]
    if folder is not None:
        assert not list(folder.rglob("*.tmp"))
