"""Options of the programs that read their own command line (main.py's flags: flags/parsing.py)."""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import Any

from ritornello.core.plain_data import shown_text

MAX_LINE = 10_000  # characters that are printed of one line: a list of all games is below


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """Let printing end early, without an error, if the reader has left, as `| head` does.

    Do nothing but print in the block, because any other broken pipe would pass for the reader's.
    What is printed after the block is discarded.
    """
    try:
        yield
        if sys.stdout is not None:  # it is None in a program that was started with a closed one
            sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # else the interpreter complains when it ends
        os.close(nowhere)


def show_what_can_be_shown() -> None:
    """Print ? from now on for what the encoding of the output lacks, in place of an error.

    Latin-1, say, has no bars of a panel and no dash for a missing value. Where the language is C,
    Python lets bytes of a file's name through, and nothing else.
    """
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper) and (out.errors == "strict" or out.encoding == "ascii"):
        out.reconfigure(errors="replace")


def add_switch(
    parser: argparse.ArgumentParser, name: str, about: str, default: bool = False
) -> None:
    """Add an option that is True or False; its name alone means True.

    Args:
      parser: parser to which it is added.
      name: name of the option with its dashes, such as "--list".
      about: help text of the option.
      default: its value where it is not given.
    """
    parser.add_argument(
        name,
        type=_true_or_false,
        nargs="?",
        const=True,
        default=default,
        metavar="True|False",
        help=f"{about} (default: %(default)s)",
    )


def _true_or_false(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither True nor False")
    return text.lower() == "true"


def printable(text: str) -> str:
    """Return lines with control characters escaped, each of bounded length.

    The text may contain names from a stranger's file: tensors, games, files.
    """
    return "\n".join(shown_text(line, MAX_LINE) for line in text.split("\n"))


def counted(count: int, noun: str) -> str:
    """Return a number of things that end with an s, unless there is one: 1 game, 2 games."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def tell(text: str) -> None:
    """Print to stdout as `printable` text; on a terminal, break long lines at blanks only."""
    if sys.stdout is None:  # started with a closed output
        return
    text = printable(text)
    width = shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else len(text)
    for line in text.split("\n"):
        margin = " " * (len(line) - len(line.lstrip()) + 2)
        broken = textwrap.wrap(
            line, width, subsequent_indent=margin, break_on_hyphens=False, break_long_words=False
        )
        sys.stdout.write("\n".join(broken if len(line) > width else [line]) + "\n")
    sys.stdout.flush()


_SHORT_NUMBER = re.compile(r"\d{1,15}(\.\d{1,15})?[eE]\+?\d\d?", re.ASCII)


def whole_number(text: str) -> int:
    """Return a whole number, which may be written as 1_000_000 or 1e6.

    Raises:
      ValueError: if `text` is no whole number.
    """
    number = Decimal(text) if _SHORT_NUMBER.fullmatch(text) else None
    return int(text) if number is None or number != number.to_integral_value() else int(number)


def number_in(value: Any) -> Any:
    """Return the number that a text says (YAML 1.1 takes 1e-4 for text); else the value."""
    for kind in (whole_number, float) if isinstance(value, str) else ():
        with suppress(ValueError):
            return kind(value)
    return value


def with_home(arguments: Sequence[str]) -> list[str]:
    """Return arguments with `~` expanded, which bash does not do in `--name=~/folder`."""
    return [_HOME.sub(lambda m: m[1] + os.path.expanduser("~"), item) for item in arguments]


_HOME = re.compile(r"^((?:--[\w-]+=)?)~(?=/|$)")
