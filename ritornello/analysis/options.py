"""What all analyses have in common: options, progress, Ctrl-C, patterns of places."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager, suppress
from glob import glob
from itertools import takewhile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from ritornello.core.atomic_file import writable_folder
from ritornello.core.command_line import whole_number
from ritornello.core.stop_signals import INTERRUPTED

PLACE = "run folder, checkpoint file or model folder"


def command_parser(command: str, about: str | None, examples: str) -> argparse.ArgumentParser:
    """Return a parser of `python -m ritornello.analysis <command>` without any option yet.

    `about` is the description of the command; `examples` come below the options.
    """
    return argparse.ArgumentParser(
        prog=f"python -m ritornello.analysis {command}",
        description=about,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def agent_parser(
    command: str, about: str | None, examples: str, place: str = PLACE
) -> argparse.ArgumentParser:
    """Return a parser with the options of all commands about agents: an agent, a seed, a folder."""
    parser = command_parser(command, about, examples)
    parser.add_argument("--load_model_url", required=True, metavar="PLACE", help=place)
    add(parser, "seed", 0, "seed of the games, and of all that is drawn")
    about = "folder for the results (default: analysis/ below the run)"
    parser.add_argument("--output", type=Path, metavar="FOLDER", help=about)
    return parser


def add(
    parser: argparse.ArgumentParser,
    name: str,
    default: Any,
    about: str,
    *,
    least: int | None = None,
    choices: Sequence[str] | None = None,
) -> None:
    """Add one option `--name` whose type is that of its default; False makes a switch.

    A number is at least `least`, a text one of `choices`.
    """
    if default is False:
        parser.add_argument(f"--{name}", action="store_true", help=about)
        return
    parser.add_argument(
        f"--{name}",
        type=type(default) if least is None else at_least(least),
        default=default,
        choices=choices,
        metavar=None if choices else "X" if isinstance(default, float) else "N",
        help=f"{about} (default: %(default)s)",
    )


def progress() -> Progress:
    """Return bars of progress on standard error, which vanish at the end."""
    return Progress(console=Console(stderr=True), transient=True)


@contextmanager
def results_folder(folder: Path) -> Iterator[Path]:
    """Make a folder for results before the work; if the work fails and wrote nothing, remove it.

    Raises:
      ConfigError: if it cannot be made, or not be written into.
    """
    there = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        yield writable_folder(folder)
    except BaseException:
        with suppress(OSError):  # of the first one that is not empty
            for made in takewhile(lambda path: path != there, (folder, *folder.parents)):
                made.rmdir()
        raise


def say_written(folder: Path, *names: str) -> None:
    """Print which files were written into the folder of the results."""
    sys.stdout.write(f"written to {folder}: {', '.join(names)}\n")


@contextmanager
def until_interrupted(kept: Sized) -> Iterator[list[int]]:
    """Let the first Ctrl-C end the body, so that the results in `kept` can be written.

    If `kept` is empty, the interruption is passed on. Yields a list that holds the exit status of
    the command after the body.
    """
    status = [0]
    try:
        yield status
    except KeyboardInterrupt:
        if not len(kept):
            raise KeyboardInterrupt("there is nothing yet to write") from None
        sys.stderr.write("interrupted: writing what is there\n")
        status[0] = INTERRUPTED


def matching(pattern: str) -> list[Path]:
    """Return the paths that match a pattern; an existing path is taken as it is."""
    path = Path(pattern)
    there = next(place for place in (path, *path.parents) if os.path.lexists(place))
    if there == path:
        return [path]
    return sorted(there / found for found in glob(str(path.relative_to(there)), root_dir=there))


def split_label(place: str, is_there: Callable[[str], object] = matching) -> tuple[str | None, str]:
    """Split `label=place` behind the shortest label after which something is there.

    A path may hold "=" too. So if `place` as a whole is there, or nothing is, the label is None.
    `is_there` says whether a text names something.
    """
    parts = place.split("=")
    for count in range(len(parts)):
        pattern = "=".join(parts[count:])
        if pattern and is_there(pattern):
            return ("=".join(parts[:count]) if count else None), pattern
    return None, place


def places_in(text: str, is_there: Callable[[str], object] = matching) -> list[str]:
    """Split a list of places at its commas, but for those within a path that is there.

    Each place may have a label, without a comma; the arguments are those of `split_label`.
    """

    def is_place(text: str) -> bool:
        label, pattern = split_label(text, is_there)
        return "," not in (label or "") and bool(is_there(pattern))

    parts, places = text.split(","), list[str]()
    while parts:
        joined = [",".join(parts[:count]) for count in range(1, len(parts) + 1)]
        places.append(next(filter(is_place, joined), parts[0]))
        del parts[: places[-1].count(",") + 1]
    return [place for place in places if place]


def at_least(least: int) -> Callable[[str], int]:
    """Return the `type` of an option that is a whole number from `least` on."""

    def read(text: str) -> int:
        try:
            number = whole_number(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return number

    return read
