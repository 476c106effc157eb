"""Which configuration learned best? A table, a figure and small CSV files of many runs.

Runs of one configuration are grouped over seeds and games. The score of a run is the mean raw
return of the last 100 games of training; the score of a configuration is the interquartile mean
over its runs with a 95 % bootstrap interval (analysis/statistics.py), at equal agent steps and at
equal running time. Next to read: analysis/runs.py, where runs come from.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agent.atomic_file import write_text
from agent.human_scores import TABLE, human_normalised
from analysis.area import areas_by_game, areas_markdown
from analysis.compare_scores import draw_scores, read_tables, scores_markdown
from analysis.figure import draw
from analysis.options import command_parser
from analysis.runs import Run, find_runs, return_at_seconds, thinned, write_csv
from analysis.statistics import Estimate, estimate
from core.errors import ConfigError
from sequences.runner import STATE_FILE

EPILOG = """examples:
  python -m analysis compare --sequence_folder=results/elite_claim_small_<time>
  python -m analysis compare --runs='results/Pong*' --by=batch_size,lr --at_steps=1000000
  python -m analysis compare --runs='plain=results/a,with replay=results/b' --output=docs/results/ab
  python -m analysis compare --runs=docs/results/ab        the same table from the CSV files
  python -m analysis compare --scores='single=results/Pong_a,multi=results/6games_b'

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
"""


@dataclass(frozen=True)
class Row:
    """One configuration in one game."""

    label: str
    runs: tuple[Run, ...]  # thinned
    by_steps: tuple[float, ...]  # one score per run
    by_time: tuple[float, ...]


@dataclass(frozen=True)
class GameComparison:
    """The configurations in one game, the best first."""

    env: str
    at_steps: float
    at_seconds: float
    rows: tuple[Row, ...]
    left_out: tuple[str, ...]  # notes about runs that could not be compared


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    places = [place for place in options.runs.split(",") if place]
    if options.scores:
        if places or options.sequence_folder:
            raise ConfigError("--scores are of test mode, other runs of training: give one kind.")
        return _compare_scores(options)
    if options.sequence_folder:
        if not (Path(options.sequence_folder) / STATE_FILE).exists():
            raise ConfigError(
                f"--sequence_folder={options.sequence_folder}: there is no {STATE_FILE} in it. "
                "Give a folder that multi_train.py made, or use --runs."
            )
        places.append(options.sequence_folder)
    if options.area_to is None and (options.against or options.pool_games):
        raise ConfigError("--against and --pool_games are of areas: give --area_to=<steps> too.")
    if not places:
        raise ConfigError("nothing to compare: give --runs or --sequence_folder, or --scores.")
    runs, notes = find_runs(places, options.by)
    if options.area_to:
        return _compare_areas(options, runs, notes)
    games = compare(runs, options.at_steps)
    text = markdown(games, notes)
    sys.stdout.write(text)
    if options.output:
        folder = Path(options.output)
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "table.md", text)
        thin = [run for game in games for row in game.rows for run in row.runs]
        for run in thin:
            write_csv(run, folder)
        draw(
            {
                game.env: {row.label: [run.curve for run in row.runs] for row in game.rows}
                for game in games
            },
            folder / "curves.png",
        )
        files = f"table.md, curves.png, {len(thin)} CSV files"
        sys.stdout.write(f"written to {folder}: {files}\n")
    return 0


def _compare_areas(options: argparse.Namespace, runs: Sequence[Run], notes: Sequence[str]) -> int:
    """Compare the areas under the curves, and write them beside the table of an `--output`."""
    games = areas_by_game(runs, options.area_to)
    text = areas_markdown(games, notes, options.against, options.pool_games)
    sys.stdout.write(text)
    if options.output:
        folder = Path(options.output)
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "areas.md", text)
        sys.stdout.write(f"written to {folder}: areas.md\n")
    return 0


def _compare_scores(options: argparse.Namespace) -> int:
    """Compare tables of tested agents."""
    tables = read_tables([place for place in options.scores.split(",") if place])
    text = scores_markdown(tables, options.at_steps)
    sys.stdout.write(text)
    if options.output:
        folder = Path(options.output)
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "scores.md", text)
        draw_scores(tables, folder / "scores.png")
        sys.stdout.write(f"written to {folder}: scores.md, scores.png\n")
    return 0


def compare(runs: Sequence[Run], at_steps: float | None = None) -> list[GameComparison]:
    """Score the runs, game by game in the order of their names.

    Finished runs are compared; in a game that has none, those that are under way.

    Args:
      runs: labelled, from `find_runs`.
      at_steps: agent steps at which scores are taken; None: where the shortest compared run ended.

    Raises:
      ConfigError: if no run of a game reached `at_steps`.
    """
    games = []
    for env in sorted({run.about.env for run in runs}):
        members = [run for run in runs if run.about.env == env]
        finished = [run for run in members if run.about.finished] or members
        steps = at_steps or min(run.curve.agent_steps[-1] for run in finished)
        # An unfinished run that came far enough says as much as a finished one.
        reached = [r for r in members if r.curve.agent_steps[0] <= steps <= r.curve.agent_steps[-1]]
        if not reached:
            furthest = max(run.curve.agent_steps[-1] for run in members)
            raise ConfigError(
                f"--at_steps={steps:.0f}: no run of {env} has a score there; the furthest ended "
                f"at {furthest:,.0f} agent steps. Give a number up to that."
            )
        left_out = [
            f"{run.source}: {run.about.label}, seed {run.about.seed} has games from "
            f"{run.curve.agent_steps[0]:,.0f} to {run.curve.agent_steps[-1]:,.0f} agent steps."
            for run in members
            if run not in reached
        ]
        seconds = min(_seconds_to(run, steps) for run in reached)
        compared = [thinned(run, steps, seconds) for run in reached]
        rows = [_row(label, compared, steps, seconds) for label in _labels(compared)]
        rows.sort(key=lambda row: -estimate([row.by_steps]).value)
        games.append(GameComparison(env, steps, seconds, tuple(rows), tuple(left_out)))
    return games


def over_games(games: Sequence[GameComparison]) -> dict[str, Estimate]:
    """Return label -> human-normalised estimate over all games that have anchors, best first.

    Only configurations that were run in each of these games; empty for fewer than two games.
    """
    known = [game for game in games if human_normalised(game.env, 0.0) is not None]
    if len(known) < 2:
        return {}
    strata: dict[str, list[list[float]]] = {}
    for game in known:
        for row in game.rows:
            strata.setdefault(row.label, []).append(_normalised(game.env, row.by_steps))
    whole = {label: estimate(s) for label, s in strata.items() if len(s) == len(known)}
    return dict(sorted(whole.items(), key=lambda item: -item[1].value))


def markdown(games: Sequence[GameComparison], notes: Sequence[str] = ()) -> str:
    """Return the comparison as a Markdown page: scores, runs, commands, and what was left out."""
    lines = [
        "Score: mean raw return of the last 100 games of training. Over the runs of a "
        "configuration: interquartile mean [95 % interval, stratified bootstrap]. Human-normalised "
        f"scores by the table of {TABLE}.",
    ]
    for game in games:
        lines += ["", f"## {game.env}", "", *_game_table(game)]
    overall = over_games(games)
    if overall:
        lines += ["", "## Human-normalised, over games", ""]
        rows = [[label, _percent(value)] for label, value in overall.items()]
        lines += _table(["configuration", "at equal agent steps"], rows)
    lines += ["", "## Runs", "", *_run_table(games), "", "## Commands", ""]
    lines += [f"* {command}" for command in _commands(games)]
    left_out = [*notes, *(note for game in games for note in game.left_out)]
    if left_out:
        lines += ["", "## Left out", "", *(f"* {note}" for note in left_out)]
    return "\n".join(lines) + "\n"


def _labels(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(run.about.label for run in runs))


def _seconds_to(run: Run, steps: float) -> float:
    return round(float(np.interp(steps, run.curve.agent_steps, run.curve.wall_s)), 3)


def _normalised(env: str, scores: Sequence[float]) -> list[float]:
    normalised = (human_normalised(env, score) for score in scores)
    return [score for score in normalised if score is not None]


def _row(label: str, compared: Sequence[Run], steps: float, seconds: float) -> Row:
    runs = sorted((run for run in compared if run.about.label == label), key=lambda r: r.about.seed)
    return Row(
        label,
        tuple(runs),
        tuple(run.curve.at_steps(steps) for run in runs),
        tuple(return_at_seconds(run.curve, seconds) for run in runs),
    )


def _game_table(game: GameComparison) -> list[str]:
    has_anchors = human_normalised(game.env, 0.0) is not None
    headings = ["configuration", "seeds", f"return at {game.at_steps:,.0f} agent steps"]
    headings += ["human-normalised"] if has_anchors else []
    headings += ["minutes to get there", f"return after {game.at_seconds / 60:.1f} min"]
    headings += ["best game"]
    rows = []
    for row in game.rows:
        by_steps = estimate([row.by_steps])
        cells = [row.label, str(len(row.runs)), _text(by_steps)]
        if has_anchors:
            cells.append(_percent(estimate([_normalised(game.env, row.by_steps)])))
        minutes = np.mean([_seconds_to(run, game.at_steps) / 60 for run in row.runs])
        bests = [run.about.best for run in row.runs if run.about.best is not None]
        cells += [f"{minutes:.1f}{_disturbance(row)}", _text(estimate([row.by_time]))]
        cells.append(f"{max(bests):,.1f}" if bests else "-")
        rows.append(cells)
    return _table(headings, rows)


def _disturbance(row: Row) -> str:
    """Return how much of the time of its runs was undisturbed, where that is known of any."""
    known = [r.about.undisturbed for r in row.runs if r.about.undisturbed is not None]
    return f" ({share_text(min(known))} undisturbed)" if known else ""


def share_text(share: float | None) -> str:
    """Return a share of a run's time as tables show it."""
    return "not known" if share is None else f"{100 * share:.0f} %"


def _run_table(games: Sequence[GameComparison]) -> list[str]:
    headings = ["file", "return", "agent steps", "minutes", "undisturbed", "commit", "machine"]
    rows = [
        [
            run.csv_name,
            f"{score:,.2f}",
            f"{run.curve.agent_steps[-1]:,.0f}",
            f"{run.curve.wall_s[-1] / 60:.1f}",
            share_text(run.about.undisturbed),
            run.about.commit,
            run.about.machine,
        ]
        for game in games
        for row in game.rows
        for run, score in zip(row.runs, row.by_steps, strict=True)
    ]
    return _table(headings, rows)


def _commands(games: Sequence[GameComparison]) -> list[str]:
    """Return each command once, with the labels that it made."""
    made: dict[str, list[str]] = {}
    for game in games:
        for row in game.rows:
            for run in row.runs:
                labels = made.setdefault(run.about.command, [])
                if row.label not in labels:
                    labels.append(row.label)
    return [f"{', '.join(labels)}: `{command}`" for command, labels in made.items()]


def _text(value: Estimate) -> str:
    text = f"{value.value:,.1f}"
    if value.low is None or value.high is None:
        return text
    return f"{text} [{value.low:,.1f}, {value.high:,.1f}]"


def _percent(value: Estimate) -> str:
    low, high = (None if x is None else 100 * x for x in (value.low, value.high))
    return f"{_text(Estimate(100 * value.value, low, high))} %"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [headings, ["---"] * len(headings), *rows]
    return [f"| {' | '.join(text.replace('|', '/') for text in row)} |" for row in cells]


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
        help="agent steps at which scores are taken (with --scores: newest checkpoint up to there)",
    )
    parser.add_argument(
        "--area_to",
        type=_steps,
        metavar="N",
        help="score by the area under the curve instead: the mean return over 0 to N agent steps, "
        "game by game (writes areas.md with --output)",
    )
    parser.add_argument(
        "--against",
        default="",
        metavar="LABEL",
        help="with --area_to: give differences to this one",
    )
    parser.add_argument(
        "--pool_games",
        action="store_true",
        help="with --area_to: also human-normalised areas over all games",
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
