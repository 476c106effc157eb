"""One page about a run or a sequence, in one file that can be passed on.

The page holds what was run, how it went, figures, films, tables and the command that does the same
again. It is one HTML file with its pictures in it (analysis/page.py). It asks nothing of any other
machine and runs no script. It can be made of a run that goes on, that was killed, or whose files
are damaged: what cannot be shown says so in its place.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from ritornello.analysis.compare_sequence import (
    PROGRESS_HEADINGS,
    SequenceComparison,
    compare_sequence,
)
from ritornello.analysis.comparison import SCORE, game_table, run_table
from ritornello.analysis.figure import learning_curves, png
from ritornello.analysis.options import command_parser
from ritornello.analysis.page import (
    Markup,
    Page,
    code,
    folded,
    heading,
    paragraph,
    picture,
    table,
)
from ritornello.analysis.profiles import (
    IMPROVEMENT,
    at_equal_steps,
    improvement_table,
    profiles_figure,
)
from ritornello.analysis.report_run import COMPARE, add_run, films
from ritornello.core.atomic_file import write_text
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.core.run_layout import (
    FLAGS,
    RECORDS,
    SESSIONS,
)
from ritornello.core.version import VERSION
from ritornello.sequences.checks import is_inside
from ritornello.sequences.folder import STATE_FILE, SequenceFolder

EXAMPLES = """  python -m ritornello.analysis report results/Pong_<time>
  python -m ritornello.analysis report results/elite_claim_small_<time> --output=elite.html
"""
FILE = "report.html"
FILM_BYTES = 8_000_000  # of films that become part of the page, the newest first
RUN_FILES = (RECORDS, FLAGS, SESSIONS)  # one of them makes a folder a run
MAX_FIGURES = 12  # games of a sequence with a figure each


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    parser = command_parser("report", __doc__, EXAMPLES)
    parser.add_argument("place", metavar="PLACE", help="folder of a run or of a sequence")
    about = f"the page (default: {FILE} in the folder of the run or sequence)"
    parser.add_argument("--output", metavar="FILE", help=about)
    options = parser.parse_args(arguments)
    place = Path(options.place)
    output = Path(options.output) if options.output else place / FILE
    page = report(place)
    command = shlex.join(["python", "-m", "ritornello.analysis", "report", str(place)])
    made = f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}"
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_text(output, page.html(f"Made on {made} by version {VERSION} with: {command}"))
    except OSError as error:
        raise ConfigError(
            f"{shown_text(str(output))} cannot be written: {error.strerror}. Give another place, "
            "e.g. --output=/tmp/report.html."
        ) from error
    for problem in page.problems:
        sys.stderr.write(f"cannot be shown: {problem}\n")
    size = f"{output.stat().st_size / 1e6:.1f} MB"
    sys.stdout.write(f"written: {shown_text(str(output))} ({size})\n")
    return 0


def report(place: Path) -> Page:
    """Return the page about a run or a sequence.

    Raises:
      ConfigError: if the place is neither.
    """
    page = Page(place.resolve().name)
    if (place / STATE_FILE).is_file():
        _add_sequence(page, place)
    elif any((place / name).is_file() for name in RUN_FILES):
        add_run(page, place, FILM_BYTES)
    else:
        raise ConfigError(
            f"{shown_text(str(place))} is no run and no sequence. Expected a folder with "
            f"{', '.join(RUN_FILES[:-1])} or {RUN_FILES[-1]} (a run), or with {STATE_FILE} (a "
            "sequence)."
        )
    return page


def _add_sequence(page: Page, place: Path) -> None:
    """Add the parts about a sequence; one whose runs lie elsewhere is not read."""
    if not is_inside(place / STATE_FILE, (place,)):
        raise ConfigError(f"{STATE_FILE} is a link that leads out of the folder.")
    folder = SequenceFolder.open(place)
    for run in folder.runs:
        for each in folder.run_folders(run):
            for path in (each.path, each.metrics_file, each.flags_file, each.run_file):
                if not is_inside(path, (place,)):
                    raise ConfigError(f"{path} is a link that leads out of the sequence.")
    compared = compare_sequence(folder)
    page.add("Progress", lambda: _progress(compared))
    page.add("Scores", lambda: _scores(compared))
    page.add("Learning curves", lambda: _curves(compared))
    page.add("Runs", lambda: _runs(folder, compared))
    page.add("Films", lambda: _films_of(folder))
    page.add("The same again", lambda: _again(folder, place))


def _progress(compared: SequenceComparison) -> Iterator[Markup]:
    """Yield how far each group came, and what was left out."""
    yield table(PROGRESS_HEADINGS, compared.progress())
    yield from map(paragraph, compared.notes)
    yield from (paragraph(note) for game in compared.games for note in game.left_out)


def _scores(compared: SequenceComparison) -> Iterator[Markup]:
    """Yield the scores of each game, and how often each configuration beats each other one."""
    yield paragraph(SCORE if compared.games else "No run has finished a game yet.")
    for game in compared.games:
        yield heading(game.env)
        yield table(*game_table(game))
        if len(game.rows) > 1:
            yield paragraph(IMPROVEMENT)
            yield table(*improvement_table({row.label: [row.scores] for row in game.rows}))
    if compared.games:
        figure = profiles_figure(at_equal_steps(compared.games))
        yield from [picture(png(figure), "Figure: performance profiles")] if figure else []


def _curves(compared: SequenceComparison) -> Iterator[Markup]:
    """Yield the learning curves, a figure for each game."""
    for game in compared.games[:MAX_FIGURES]:
        groups = {row.label: [run.curve for run in row.runs] for row in game.rows}
        yield picture(png(learning_curves({game.env: groups})), f"Figure: curves in {game.env}")


def _runs(folder: SequenceFolder, compared: SequenceComparison) -> Iterator[Markup]:
    """Yield a line for each run, its flags and its scores."""
    rows = [
        (run.name, run.group, run.seed, run.status, f"{run.seconds / 60:.1f}")
        for run in folder.runs
    ]
    yield table(("run", "group", "seed", "status", "minutes"), rows)
    flags = [(run.name, *pair) for run in folder.runs for pair in run.flags.items()]
    yield folded("Flags of each run", table(("run", "flag", "value"), flags))
    if compared.games:
        yield folded("Scores of each run", table(*run_table(compared.games)))


def _films_of(folder: SequenceFolder) -> Iterator[Markup]:
    """Yield the films of all runs."""
    for run in folder.runs:
        for each in folder.run_folders(run):
            yield heading(run.name)
            yield from films(each.path, FILM_BYTES // len(folder.runs))


def _again(folder: SequenceFolder, place: Path) -> Iterator[Markup]:
    """Yield the commands that made the sequence, continue it, and compare it."""
    resume = shlex.join(["python", "multi_train.py", f"--resume={place}"])
    compare = shlex.join([*COMPARE, f"--sequence_folder={place}"])
    yield code([folder.command, f"{resume}   # what is not done yet", compare])
