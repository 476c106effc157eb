"""Which configuration learned best? A table, a figure and small CSV files of many runs.

Runs of one configuration are grouped over seeds and games. The score of a run is the mean raw
return of its last games (--avg_buff_size); the score of a configuration is the interquartile mean
over its runs with a 95 % bootstrap interval, at equal agent steps and at equal running time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ritornello.analysis.compare_scores import read_tables, scores_figure, scores_page
from ritornello.analysis.comparison import (
    about_scores,
    compare,
    games_figure,
    notes_of,
    page,
    runs_of,
)
from ritornello.analysis.options import (
    at_least,
    command_parser,
    places_in,
    results_folder,
    say_written,
)
from ritornello.analysis.profiles import profiles_figure, profiles_page, scored_of
from ritornello.analysis.runs import find_runs, write_csv
from ritornello.analysis.to_score import to_score_page
from ritornello.core.atomic_file import write_text
from ritornello.core.command_line import counted, reader_may_leave
from ritornello.core.errors import ConfigError
from ritornello.metrics.charts import save
from ritornello.sequences.folder import STATE_FILE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXAMPLES = """  python -m ritornello.analysis compare --sequence_folder=results/elite_<time>
  python -m ritornello.analysis compare --runs='results/Pong*' --by=batch_size,lr --at_steps=1000000
  python -m ritornello.analysis compare --runs='plain=results/a,replay=results/b' --output=tables/ab
  python -m ritornello.analysis compare --runs=tables/ab        the same table from the CSV files
  python -m ritornello.analysis compare --scores='single=results/Pong_a,multi=results/6games_b'

A run of several games counts in each of them: with the returns of that game, and with its share of
the agent steps (--env_shares). Without --at_steps, each game is scored where the shortest finished
run of it ended. "Equal time" is when the fastest run reached those steps. Compare times only of
runs that had the same machine, to themselves (column "undisturbed").

--area_to varies less from seed to seed than the return at N. Runs that never get to --to_score
count as what they are (Kaplan and Meier).
"""


class Answer(NamedTuple):
    """A page, and the figure that belongs to it, if any; their names are without suffix."""

    name: str
    text: str
    figure_name: str = ""
    draw: Callable[[], Figure | None] = lambda: None
    curves: int = 0  # CSV files that are written


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    places = _places(options)
    with results_folder(options.output) if options.output else nullcontext():
        answer = _of_tests(options) if options.scores else _of_trainings(options, places)
    with reader_may_leave():
        sys.stdout.write(answer.text)
    if options.output:
        _write(answer, options.output)
    return 0


def _write(answer: Answer, folder: Path) -> None:
    """Write the page and its figure."""
    write_text(folder / f"{answer.name}.md", answer.text)
    names = [f"{answer.name}.md"]
    figure = answer.draw()
    if figure is not None:
        names.append(f"{answer.figure_name}.png")
        save(figure, folder / names[-1])
    if answer.curves:
        names.append(counted(answer.curves, "CSV file"))
    with reader_may_leave():
        say_written(folder, *names)


def _of_trainings(options: argparse.Namespace, places: Sequence[str]) -> Answer:
    runs, notes = find_runs(places, options.by)
    if options.to_score:
        score, is_human = options.to_score
        return Answer("to_score", to_score_page(runs, score, is_human, notes))
    games = compare(runs, options.area_to or options.at_steps, by_area=bool(options.area_to))
    if options.profiles:
        scored = scored_of(games)
        steps = ", ".join(f"{game.at_steps:,.0f} ({game.env})" for game in games)
        what = f"{about_scores(games)}, to equal agent steps: {steps}"
        text = profiles_page(scored, what, [*notes, *notes_of(games)])
        answer = Answer("profiles", text, "profiles", lambda: profiles_figure(scored))
    else:
        text = page(games, notes, options.against)
        answer = Answer("table", text, "curves", lambda: games_figure(games))
    written = [write_csv(run, options.output) for run in runs_of(games) if options.output]
    return answer._replace(curves=len(written))


def _of_tests(options: argparse.Namespace) -> Answer:
    tables = read_tables(places_in(options.scores))
    text = scores_page(tables, options.at_steps)
    return Answer("scores", text, "scores", lambda: scores_figure(tables))


def _places(options: argparse.Namespace) -> list[str]:
    """Return the places of the runs; refuse options that do not go together."""
    places = places_in(options.runs)
    if options.sequence_folder:
        if not (Path(options.sequence_folder) / STATE_FILE).exists():
            raise ConfigError(
                f"--sequence_folder={options.sequence_folder}: there is no {STATE_FILE} in it. "
                "Give a folder that multi_train.py made, or use --runs."
            )
        places.append(options.sequence_folder)
    other_pages = [options.scores, options.to_score, options.profiles]
    of_trainings = options.area_to or options.against or any(other_pages[1:])
    if options.scores and (places or of_trainings):
        raise ConfigError("--scores are of test mode: leave out what is of trainings.")
    if options.against and any(other_pages):
        raise ConfigError(
            "--against belongs to the table of scores: leave --profiles and --to_score out."
        )
    if options.area_to and options.at_steps:
        raise ConfigError("--area_to says where areas end: leave --at_steps out.")
    if options.to_score and (options.area_to or options.profiles or options.at_steps):
        raise ConfigError("--to_score stands alone: leave --area_to, --profiles, --at_steps out.")
    if not places and not options.scores:
        raise ConfigError("nothing to compare: give --runs or --sequence_folder, or --scores.")
    return places


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("compare", __doc__, EXAMPLES)
    add = parser.add_argument
    about = (
        "run folders, sequence folders, CSV files of an earlier comparison, folders or patterns of "
        "these; label=place names the configuration"
    )
    add("--runs", default="", metavar="PLACE,...", help=about)
    about = "all runs of a sequence, results/<name>_<time>"
    add("--sequence_folder", metavar="FOLDER", help=about)
    about = (
        "tables of tested agents: scores.csv, run folders with one, or patterns of these; "
        "label=place names the agent, and several places of one label are its seeds"
    )
    add("--scores", default="", metavar="PLACE,...", help=about)
    about = (
        "what makes a configuration: its label (given above, or the group of the sequence, or the "
        "flags that differ), or the values of these flags alone (default: %(default)s)"
    )
    add("--by", default="label", metavar="label|FLAG,...", help=about)
    about = "agent steps at which scores are taken; with --scores the newest checkpoint up to there"
    add("--at_steps", type=at_least(1), metavar="N", help=about)
    about = "score by the area under the curve: the mean return over 0 to N agent steps"
    add("--area_to", type=at_least(1), metavar="N", help=about)
    about = (
        "show how many agent steps and minutes it takes until the mean return first reaches this "
        "raw score, or such a share of human play, e.g. 50%%"
    )
    add("--to_score", type=_score, metavar="SCORE|SHARE%", help=about)
    about = "show performance profiles over runs and games, and the probability of improvement"
    add("--profiles", action="store_true", help=about)
    about = "also show the difference of each configuration to this one"
    add("--against", default="", metavar="LABEL", help=about)
    about = (
        "also write the page and its figure and, but for --to_score and --scores, one CSV of at "
        "most 200 rows per run, fit for git"
    )
    add("--output", type=Path, metavar="FOLDER", help=about)
    return parser


def _score(text: str) -> tuple[float, bool]:
    """Return (score, False), or (share of human play, True) for a text that ends with %."""
    is_share = text.endswith("%")
    try:
        score = float(text.removesuffix("%").replace("_", ""))
    except ValueError:
        score = float("nan")
    if not isfinite(score):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no score such as 18.5, and no share of human play such as 50%"
        )
    return (score / 100, True) if is_share else (score, False)
