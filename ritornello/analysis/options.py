"""The command line that all analyses have in common."""

from __future__ import annotations

import argparse
import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from ritornello.core.command_line import WrappedHelp
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown_text

NEXT_TO_READ = re.compile(r"\s*Next\s+to\s+read:\s+\S+\.py\.")  # for readers of the code


def command_parser(command: str, about: str | None, epilog: str) -> argparse.ArgumentParser:
    """Return a parser of `python -m ritornello.analysis <command>` without any option yet.

    Args:
      command: name of the command.
      about: what it answers, the docstring of its module.
      epilog: examples, and how to read the result.
    """
    return argparse.ArgumentParser(
        prog=f"python -m ritornello.analysis {command}",
        description=about and NEXT_TO_READ.sub("", about),
        epilog=epilog,
        formatter_class=WrappedHelp,
        allow_abbrev=False,
    )


def add_place(
    parser: argparse.ArgumentParser, about: str = "run folder, checkpoint file or model folder"
) -> None:
    """Add the option that says which agent, or which agents, a command looks at."""
    parser.add_argument("--load_model_url", required=True, metavar="PLACE", help=about)


def add_output(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the option for the folder of the results; `default` says in words where they go else."""
    about = f"folder for the results (default: {default})"
    parser.add_argument("--output", type=Path, metavar="FOLDER", help=about)


def add(
    parser: argparse.ArgumentParser,
    name: str,
    default: Any,
    about: str,
    *,
    least: int | None = None,
    choices: Sequence[str] | None = None,
) -> None:
    """Add one option `--name` whose type is that of its default.

    Args:
      parser: parser to which it is added.
      name: name of the option, without dashes.
      default: its default; False makes a switch.
      about: help text.
      least: smallest whole number allowed.
      choices: the texts allowed.
    """
    if default is False:
        parser.add_argument(f"--{name}", action="store_true", help=about)
        return
    kind = type(default) if least is None else at_least(least)
    parser.add_argument(
        f"--{name}",
        type=kind,
        default=default,
        choices=choices,
        metavar=None if choices else "X" if isinstance(default, float) else "N",
        help=f"{about} (default: %(default)s)",
    )


@contextmanager
def results_folder(folder: Path) -> Iterator[Path]:
    """Make the folder of the results before the work; yield it.

    What was made here and is still empty at the end is taken away again: nothing was found out.

    Raises:
      ConfigError: if the folder cannot be made, or nothing can be written there.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=folder):  # it may be there, and for reading only
                pass
        except OSError as error:
            reason = "it is a file" if isinstance(error, FileExistsError) else error.strerror
            raise ConfigError(
                f"{shown_text(str(folder))} cannot hold the results: {reason}. Expected a folder, "
                "there or not yet, to write into: give another one, e.g. --output=/tmp/analysis."
            ) from error
        yield folder
    finally:
        for path in made:
            with suppress(OSError):  # there is something in it
                path.rmdir()


def matching(pattern: str) -> list[Path]:
    """Return the paths that a pattern means; one that exists as it was given is taken as it is."""
    return [Path(pattern)] if os.path.lexists(pattern) else sorted(map(Path, glob(pattern)))


def _fits_something(pattern: str) -> bool:
    return bool(matching(pattern))


def split_label(
    place: str, is_there: Callable[[str], bool] = _fits_something
) -> tuple[str | None, str]:
    """Split `label=place` behind the shortest label after which something is there.

    A path may hold "=" too, so a place that is there as it was given has no label.

    Args:
      place: what was given.
      is_there: whether a text names something; by default as a pattern for `glob`.

    Returns:
      The label, None without one, and the place. Where nothing is there, the place is all that was
      given.
    """
    parts = place.split("=")
    for count in range(len(parts)):
        pattern = "=".join(parts[count:])
        if is_there(pattern):
            return ("=".join(parts[:count]) if count else None), pattern
    return None, place


def at_least(least: int, unit: str = "") -> Callable[[str], int]:
    """Return the `type` of an option that is a whole number, such as 2000 or 2_000.

    Args:
      least: smallest number allowed.
      unit: what is counted, for the message.
    """

    def read(text: str) -> int:
        try:
            number = int(text.replace("_", ""))
        except ValueError:
            number = least - 1
        if number < least:
            what = f"number of {unit}" if unit else "whole number"
            raise argparse.ArgumentTypeError(f"{text!r} is not a {what} of at least {least}")
        return number

    return read


def csv_text(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as CSV; None is an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows(rows)
    return text.getvalue()
