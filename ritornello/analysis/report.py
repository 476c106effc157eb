"""One page about a run or a sequence, in one file that can be passed on.

The page holds what was run, how it went, figures, films, tables and the command that does the same
again. It is one HTML file with its pictures in it. It asks nothing of any other machine, runs no
script, and can be opened without a network in ten years. It can be made of a run that goes on, that
was killed, or whose files are damaged: what cannot be shown says so in its place.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from shlex import join as shell_line

from ritornello.analysis import markup
from ritornello.analysis.markup import Markup, el
from ritornello.analysis.options import command_parser
from ritornello.core.atomic_file import write_text
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.core.run_layout import FLAGS, RECORDS, SESSIONS
from ritornello.core.version import VERSION
from ritornello.sequences.folder import STATE_FILE

FILE = "report.html"
# One of them is enough: a run that was killed at once has no records.
RUN_FILES = (RECORDS, FLAGS, SESSIONS)
EMBEDDED_MB = 8.0

EPILOG = """examples:
  python -m ritornello.analysis report results/Pong_<time>
  python -m ritornello.analysis report results/elite_claim_small_<time> --output=elite.html

A film is part of the page while all films of the page together are not larger than --embed_films
megabytes, the newest first; for others there is a link to the file, which must then be passed on
with the page. With --embed_films=0 the page has links only.
"""


@dataclass
class Maker:
    """What the parts of a page are made with, and what went wrong meanwhile."""

    output: Path
    film_bytes: int  # that may still be embedded
    problems: list[str] = field(default_factory=list)

    def part(self, about: str, make: Callable[[], Markup]) -> Markup:
        """Return what `make` returns, or a sentence that says why there is nothing.

        Whatever a stranger's or a broken file makes of any part, the others are shown, and the
        user hears of it.
        """
        try:
            return make()
        except Exception as error:
            reason = shown_text(str(error) or type(error).__name__, 500)
            self.problems.append(f"{about}: {reason}")
            return el("p", f"This cannot be shown: {reason}", class_="soft")


Part = tuple[str, Callable[[], Markup]]


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    place = Path(options.place)
    output = Path(options.output) if options.output else place / FILE
    maker = Maker(output, int(options.embed_films * 1e6))
    text = report(place, maker)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_text(output, text)
    except OSError as error:
        raise ConfigError(
            f"{shown_text(str(output))} cannot be written: {error.strerror}. Give another place, "
            "e.g. --output=/tmp/report.html."
        ) from error
    for problem in maker.problems:
        sys.stderr.write(f"cannot be shown: {problem}\n")
    size = f"{output.stat().st_size / 1e6:.1f} MB"
    sys.stdout.write(f"written: {shown_text(str(output))} ({size})\n")
    return 0


def report(place: Path, maker: Maker) -> str:
    """Return the page about a run or a sequence.

    Raises:
      ConfigError: if the place is neither.
    """
    # Imported here: what draws takes a second, which a wrong name should not cost.
    if (place / STATE_FILE).is_file():
        from ritornello.analysis.report_sequence import parts_of_sequence as parts_of
    elif any((place / name).is_file() for name in RUN_FILES):
        from ritornello.analysis.report_run import parts_of_run as parts_of
    else:
        raise ConfigError(
            f"{shown_text(str(place))} is no run and no sequence. Expected a folder with "
            f"{', '.join(RUN_FILES[:-1])} or {RUN_FILES[-1]} (a run), or with {STATE_FILE} (a "
            "sequence)."
        )
    title = place.resolve().name
    parts = [*_made(parts_of(place, maker), maker)]
    made = f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}"
    end = f"Made on {made} by version {VERSION} with: "
    command = shell_line(["python", "-m", "ritornello.analysis", "report", str(place)])
    return markup.page(title, None, parts, end + command)


def _made(parts: Iterator[Part], maker: Maker) -> Iterator[tuple[str, Markup]]:
    for heading, make in parts:
        yield heading, maker.part(heading, make)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("report", __doc__, EPILOG)
    parser.add_argument("place", metavar="PLACE", help="folder of a run or of a sequence")
    parser.add_argument(
        "--output",
        metavar="FILE",
        help=f"the page (default: {FILE} in the folder of the run or sequence)",
    )
    parser.add_argument(
        "--embed_films",
        type=_megabytes,
        default=EMBEDDED_MB,
        metavar="MB",
        help="megabytes of films that become part of the page; larger ones are linked "
        "(default: %(default)g)",
    )
    return parser


def _megabytes(text: str) -> float:
    try:
        size = float(text)
    except ValueError:
        size = -1.0
    if not 0 <= size <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of megabytes from 0 to 1000")
    return size
