"""Which configuration learned best? A table, a figure and small CSV files of many runs.

Runs of one configuration are grouped over seeds and games. The score of a run is the mean raw
return of its last games (--avg_buff_size); the score of a configuration is the interquartile mean
over its runs with a 95 % bootstrap interval, at equal agent steps and at equal running time. Next
to read: analysis/comparison.py.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from math import isfinite
from pathlib import Path

from ritornello.analysis.area import areas_by_game, areas_markdown
from ritornello.analysis.compare_scores import draw_scores, read_tables, scores_markdown
from ritornello.analysis.comparison import compare, draw_games, page
from ritornello.analysis.figure import save
from ritornello.analysis.options import command_parser, results_folder
from ritornello.analysis.profiles import (
    Scored,
    at_equal_steps,
    of_areas,
    profiles_figure,
    profiles_markdown,
)
from ritornello.analysis.runs import Run, find_runs, write_csv
from ritornello.analysis.to_score import arrivals, arrivals_markdown
from ritornello.core.atomic_file import write_text
from ritornello.core.command_line import reader_may_leave
from ritornello.core.errors import ConfigError
from ritornello.sequences.folder import STATE_FILE

EPILOG = """examples:
  python -m ritornello.analysis compare --sequence_folder=results/elite_claim_small_<time>
  python -m ritornello.analysis compare --runs='results/Pong*' --by=batch_size,lr --at_steps=1000000
  python -m ritornello.analysis compare --runs='plain=results/a,replay=results/b' --output=tables/ab
  python -m ritornello.analysis compare --runs=tables/ab        the same table from the CSV files
  python -m ritornello.analysis compare --scores='single=results/Pong_a,multi=results/6games_b'

A run of several games counts in each of them: with the returns of that game, and with its share of
the agent steps (--env_shares), so that it stands beside runs of that game alone. --scores compares
agents by games in test mode instead, from the scores.csv that
`python main.py --op_mode=test --test_all_checkpoints=True --load_model_url=<run>` writes.

Without --at_steps, each game is scored where the shortest finished run of it ended. "Equal time" is
when the fastest run reached those steps: there, runs that cost more time have seen fewer steps.
Compare times only of runs that had the machine to themselves (see the column "undisturbed", and in
brackets the least of a configuration's runs), and the same machine.

--area_to scores a run by the area under its curve instead: its mean return over 0 to N agent steps,
which varies less from seed to seed than the return at N (see analysis/area.py).

--to_score asks how many agent steps and minutes it takes to get to a raw score, or with a % to this
share of human play. Runs that never get there count as what they are (see analysis/to_score.py).
--profiles shows the whole distribution of the scores, and how often one configuration beats another
(see analysis/profiles.py); with --area_to of areas.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    places = _places(options)
    with results_folder(Path(options.output)) if options.output else nullcontext():
        return _compare(options, places)


def _compare(options: argparse.Namespace, places: Sequence[str]) -> int:
    """Compare what the options name."""
    if options.scores:
        return _compare_scores(options)
    runs, notes = find_runs(places, options.by)
    if options.to_score:
        return _compare_times(options, runs, notes)
    if options.area_to:
        return _compare_areas(options, runs, notes)
    if options.profiles:
        compared = compare(runs, options.at_steps)
        left_out = [note for game in compared for note in game.left_out]
        return _compare_profiles(options, at_equal_steps(compared), [*notes, *left_out])
    games = compare(runs, options.at_steps)
    text = page(games, notes)
    _print(text)
    if options.output:
        folder = Path(options.output)
        write_text(folder / "table.md", text)
        thin = [run for game in games for row in game.rows for run in row.runs]
        for run in thin:
            write_csv(run, folder)
        draw_games(games, folder / "curves.png")
        files = f"table.md, curves.png, {len(thin)} CSV files"
        _print(f"written to {folder}: {files}\n")
    return 0


def _places(options: argparse.Namespace) -> list[str]:
    """Return where runs are looked for; refuse options that do not go together."""
    places = [place for place in options.runs.split(",") if place]
    if options.scores and (places or options.sequence_folder):
        raise ConfigError("--scores are of test mode, other runs of training: give one kind.")
    if options.sequence_folder:
        if not (Path(options.sequence_folder) / STATE_FILE).exists():
            raise ConfigError(
                f"--sequence_folder={options.sequence_folder}: there is no {STATE_FILE} in it. "
                "Give a folder that multi_train.py made, or use --runs."
            )
        places.append(options.sequence_folder)
    of_areas_only = options.against or options.pool_games
    if of_areas_only and (options.area_to is None or options.profiles):
        raise ConfigError(
            "--against and --pool_games are of areas: give --area_to=<steps> too, no --profiles."
        )
    if options.to_score and (options.area_to or options.profiles or options.at_steps):
        raise ConfigError("--to_score stands alone: leave --area_to, --profiles, --at_steps out.")
    if options.scores and (options.area_to or options.profiles or options.to_score):
        raise ConfigError(
            "--area_to, --to_score and --profiles are of trainings: give --runs, not --scores."
        )
    if not places and not options.scores:
        raise ConfigError("nothing to compare: give --runs or --sequence_folder, or --scores.")
    return places


def _compare_areas(options: argparse.Namespace, runs: Sequence[Run], notes: Sequence[str]) -> int:
    """Compare the areas under the curves, and write them beside the table of an `--output`."""
    games = areas_by_game(runs, options.area_to)
    if options.profiles:
        left_out = [note for game in games for note in game.left_out]
        return _compare_profiles(options, of_areas(games), [*notes, *left_out])
    text = areas_markdown(games, notes, options.against, options.pool_games)
    _say(options, "areas.md", text)
    return 0


def _compare_times(options: argparse.Namespace, runs: Sequence[Run], notes: Sequence[str]) -> int:
    """Compare how long it takes to get to a score."""
    score, human = options.to_score
    games, without = arrivals(runs, score, human)
    if not games:
        raise ConfigError(f"--to_score={100 * score:g}%: no game here has a score of human play.")
    _say(options, "to_score.md", arrivals_markdown(games, [*notes, *without], human))
    return 0


def _compare_profiles(options: argparse.Namespace, scored: Scored, notes: Sequence[str]) -> int:
    """Compare the distributions of the scores."""
    _say(options, "profiles.md", profiles_markdown(scored, notes))
    figure = profiles_figure(scored) if options.output else None
    if figure is not None:
        save(figure, Path(options.output) / "profiles.png")
        _print(f"written to {options.output}: profiles.png\n")
    return 0


def _print(text: str) -> None:
    """Print to whoever still reads."""
    with reader_may_leave():
        sys.stdout.write(text)


def _say(options: argparse.Namespace, name: str, text: str) -> None:
    """Print a page, and write it into the folder of `--output`."""
    _print(text)
    if options.output:
        folder = Path(options.output)
        write_text(folder / name, text)
        _print(f"written to {folder}: {name}\n")


def _compare_scores(options: argparse.Namespace) -> int:
    """Compare tables of tested agents."""
    tables = read_tables([place for place in options.scores.split(",") if place])
    text = scores_markdown(tables, options.at_steps)
    _print(text)
    if options.output:
        folder = Path(options.output)
        write_text(folder / "scores.md", text)
        draw_scores(tables, folder / "scores.png")
        _print(f"written to {folder}: scores.md, scores.png\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("compare", __doc__, EPILOG)
    parser.add_argument(
        "--runs",
        default="",
        metavar="PLACE,...",
        help="run folders, sequence folders, CSV files of an earlier comparison, folders or "
        "patterns of these; label=place names the configuration",
    )
    parser.add_argument(
        "--sequence_folder", metavar="FOLDER", help="all runs of a sequence, results/<name>_<time>"
    )
    parser.add_argument(
        "--scores",
        default="",
        metavar="PLACE,...",
        help="tables of tested agents: scores.csv, run folders with one, or patterns of these; "
        "label=place names the agent, and several places of one label are its seeds",
    )
    parser.add_argument(
        "--by",
        default="label",
        metavar="label|FLAG,...",
        help="what makes a configuration: its label (given above, or the group of the sequence, or "
        "the flags that differ), or the values of these flags alone (default: %(default)s)",
    )
    parser.add_argument(
        "--at_steps",
        type=_steps,
        metavar="N",
        help="number of agent steps at which scores are taken; with --scores the newest "
        "checkpoint up to there counts",
    )
    parser.add_argument(
        "--area_to",
        type=_steps,
        metavar="N",
        help="score by the area under the curve instead: the mean return over 0 to N agent steps, "
        "game by game (writes areas.md with --output)",
    )
    parser.add_argument(
        "--to_score",
        type=_score,
        metavar="SCORE|SHARE%",
        help="show how many agent steps and minutes it takes until the mean return first reaches "
        "this raw score, or such a share of human play, e.g. 50%% (writes to_score.md with "
        "--output)",
    )
    parser.add_argument(
        "--profiles",
        action="store_true",
        help="show performance profiles over runs and games, and the probability of improvement "
        "(writes profiles.md and profiles.png with --output)",
    )
    parser.add_argument(
        "--against",
        default="",
        metavar="LABEL",
        help="with --area_to: also show the difference of each configuration to this one",
    )
    parser.add_argument(
        "--pool_games",
        action="store_true",
        help="with --area_to: also show human-normalised areas over all games together",
    )
    parser.add_argument(
        "--output",
        metavar="FOLDER",
        help="write table.md, curves.png and one CSV of at most 200 rows per run, fit for git "
        "(with --scores: scores.md and scores.png)",
    )
    return parser


def _steps(text: str) -> float:
    try:
        steps = float(text.replace("_", ""))
    except ValueError:
        steps = 0.0
    if not 0 < steps < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of agent steps above 0")
    return steps


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
