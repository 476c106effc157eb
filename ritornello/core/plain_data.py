"""Data from outside: how it is read, what may be in it, and how it is shown in a message.

What a user types and what a stranger's file holds comes through these doors before anything is made
of it: a text file is a regular one, of bounded size and UTF-8 (`read_text`); a value is of JSON's
types, bounded in number and depth (`check_plain`); and a message shows one line of it, of bounded
length, in which no terminal finds anything to obey (`shown`).
"""

from __future__ import annotations

import json
import math
import reprlib
from collections import Counter
from pathlib import Path
from typing import Any

from ritornello.core.errors import ConfigError

MAX_SHOWN = 200  # characters of a value in a message
MAX_FILE_BYTES = 4_000_000
# An alias of YAML stands for a whole branch, so a short text can mean more than fits into memory.
MAX_NODES = 500_000
MAX_DEPTH = 50  # far below the limit of Python's own recursion
MAX_TEXT = 100_000  # characters of one text
MAX_INT = 2**63  # beyond it neither NumPy nor pydantic's JSON can follow


def shown(value: Any, limit: int = MAX_SHOWN) -> str:
    """Return `repr(value)` for a message: on one line, at most `limit` characters, cut inside.

    This never fails: a value whose `repr` fails is named by its type.
    """
    if isinstance(value, str):
        # Cut first: the text of a whole file need not be escaped.
        return cut(repr(cut(value, limit)), limit)
    try:
        text = cut(_short_repr(limit).repr(value), limit)
        # An array is written in several lines, and a class of somebody's may write anything.
        return shown_text(" ".join(line.strip() for line in text.splitlines()), limit)
    except (ValueError, RecursionError):  # an int of more than 4300 digits has no repr
        return f"<a {type(value).__name__} that is too large to show>"


def shown_text(text: str, limit: int = MAX_SHOWN) -> str:
    """Return `text` for a message as it was typed, with unprintable characters escaped."""
    short = cut(text, limit)
    if short.isprintable():
        return short
    return cut("".join(c if c.isprintable() else repr(c)[1:-1] for c in short), limit)


def cut(text: str, limit: int = MAX_SHOWN) -> str:
    """Return at most `limit` characters of `text`; where it is longer, its middle is left out."""
    if len(text) <= limit:
        return text
    gap = f" ...[{len(text):,} characters]... "
    kept = max(2, limit - len(gap))
    return text[: kept - kept // 3] + gap + text[len(text) - kept // 3 :]


def read_text(path: Path | str, what: str, limit: int = MAX_FILE_BYTES) -> str:
    """Return the content of a small UTF-8 text file, of at most `limit` bytes.

    `what` names the file in messages, e.g. "the sequence".

    Raises:
      ConfigError: if there is no regular file that can be read, or it is too long or no text.
    """
    try:
        # A named pipe would keep its reader waiting for ever.
        if Path(path).exists() and not Path(path).is_file():
            raise ConfigError(f"cannot read {what}: {shown(str(path))} is not a regular file.")
        with open(path, "rb") as file:
            content = file.read(limit + 1)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read {what} {shown(str(path))}: {reason}.") from error
    if len(content) > limit:
        raise ConfigError(
            f"{what} {shown(str(path))} is longer than {limit / 1e6:g} MB, which is not expected."
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{what} {shown(str(path))} is not text in UTF-8 (byte {error.start} is "
            f"0x{content[error.start]:02x}). Save it as UTF-8."
        ) from error


def parse_json(text: str, where: str) -> Any:
    """Return the data in a JSON text; only plain data, see `check_plain`.

    Raises:
      ConfigError: if the text is no JSON, is too long, or repeats a key in an object.
    """

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
            raise ConfigError(
                f"{where} gives {shown(key)} twice in one object, expected once. Delete one of "
                "the two."
            )
        return found

    try:
        data = json.loads(text, object_pairs_hook=mapping)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{where} is not valid JSON: {error.msg} in line {error.lineno}, column {error.colno}."
        ) from error
    except ValueError as error:
        raise ConfigError(f"{where} is not valid JSON: it holds a number that is too long.") from (
            error
        )
    except RecursionError as error:
        raise ConfigError(f"{where} is nested too deeply: expected at most {MAX_DEPTH}.") from error
    check_plain(data, where)
    return data


def json_text(data: dict[str, Any]) -> str:
    """Return plain data as JSON in ASCII that every reader of JSON takes, browsers too.

    Null stands for a number that is not finite, which Python would write by a word of its own.
    Halves of characters, which stand for the bytes of a file name that is no UTF-8, are escaped.
    """
    return json.dumps(_without_nan(data), allow_nan=False, separators=(",", ":"))


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    is_odd = isinstance(value, float) and not math.isfinite(value)
    return None if is_odd else value


def check_plain(value: Any, where: str, max_nodes: int = MAX_NODES) -> None:
    """Raise ConfigError unless `value` is of JSON's types only, and bounded.

    These are None, bool, int, float, str, lists, and dicts with text as keys. A value that passes
    can be shown, compared, copied and written as JSON without a surprise. `where` is the origin of
    the value, for messages. It has at most `max_nodes` values, counted as often as they are
    referred to.
    """
    waiting: list[tuple[Any, int]] = [(value, 1)]
    nodes = 0
    while waiting:
        node, depth = waiting.pop()
        nodes += 1
        if nodes + len(waiting) > max_nodes:
            raise ConfigError(f"{where} holds more than {max_nodes:,} values.")
        if depth > MAX_DEPTH:
            raise ConfigError(f"{where} is nested too deeply: expected at most {MAX_DEPTH} levels.")
        if isinstance(node, dict):
            for key in node:
                _check_text(key, f"a key of {where}")
            waiting += [(child, depth + 1) for child in node.values()]
        elif isinstance(node, list):
            waiting += [(child, depth + 1) for child in node]
        elif isinstance(node, str):
            _check_text(node, f"a text in {where}")
        elif isinstance(node, int):
            if not -MAX_INT <= node < MAX_INT:
                raise ConfigError(f"{where} holds a whole number of more than 64 bits.")
        elif node is not None and not isinstance(node, float):
            raise ConfigError(
                f"{where} holds {shown(node)}, a value of type {type(node).__name__}: expected "
                "texts, numbers, True, False, nothing, lists and mappings only."
            )


def _check_text(value: Any, where: str) -> None:
    if not isinstance(value, str):
        raise ConfigError(
            f"{where} is {shown(value)}, of type {type(value).__name__}: expected a text. "
            "In YAML, put it in quotes."
        )
    if len(value) > MAX_TEXT:
        raise ConfigError(f"{where} has {len(value):,} characters, expected {MAX_TEXT:,} at most.")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError(f"{where}, {shown(value)}, is no text in Unicode.") from error


def _short_repr(limit: int) -> reprlib.Repr:
    short = reprlib.Repr()
    short.maxlevel = 4
    # Few, because levels multiply: 12 values in each of 4 levels are 20,000 at most.
    short.maxdict = short.maxlist = short.maxtuple = short.maxset = 12
    short.maxstring = short.maxlong = short.maxother = limit
    return short
