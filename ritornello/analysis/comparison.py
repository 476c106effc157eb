"""Trainings scored at equal agent steps and at equal time, and the page that says so.

The score of a run is the mean raw return of its last games (--avg_buff_size), or the area under its
learning curve: its mean return over 0 to N agent steps. The area asks how fast a run learned rather
than where it stood at one moment, and varies less: of the 15 runs of Breakout in
research/results/elite the areas to 1 M steps have a standard deviation of 6.5 % of their mean
within a configuration, the returns at the end 10.6 %. So it takes fewer seeds to tell two
configurations apart by it. The score of a configuration is the interquartile mean over its runs
(analysis/statistics.py). `ritornello.analysis compare` and multi_train.py show the same page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ritornello.agent.testing.human_scores import TABLE, all_human_normalised
from ritornello.analysis.figure import learning_curves
from ritornello.analysis.run_facts import NOT_CONFIGURATION
from ritornello.analysis.runs import Run, last_games
from ritornello.analysis.statistics import FEW, Estimate, Strata, difference, estimate
from ritornello.core import markdown
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.metrics.text import kilojoules, same_decimals

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_COMMAND = 5000  # characters
UNKNOWN = 0.01  # of an area at most may lie before a run that goes on from another one
SCORE = (
    "Over the runs of a configuration: interquartile mean [95 % interval, stratified bootstrap], "
    f"or of fewer than {FEW} runs (lowest to highest), which is no confidence interval."
)


@dataclass(frozen=True)
class Row:
    """One configuration in one game."""

    label: str
    runs: tuple[Run, ...]
    scores: tuple[float, ...]  # one per run
    by_time: tuple[float, ...] = ()  # returns at equal time; empty if a run had none yet


@dataclass(frozen=True)
class GameComparison:
    """The configurations in one game, the best first."""

    env: str
    at_steps: float  # agent steps
    rows: tuple[Row, ...]
    left_out: tuple[str, ...]  # notes about runs that could not be compared
    at_seconds: float = 0.0
    by_area: bool = False  # scores are areas up to `at_steps`, not returns there


def compare(
    runs: Sequence[Run], at_steps: float | None = None, *, by_area: bool = False
) -> list[GameComparison]:
    """Score the runs, game by game in the order of their names.

    Finished runs are compared; in a game that has none, those that are under way. Scores are taken
    at `at_steps` agent steps, by default where the shortest compared run ended. With `by_area` they
    are the mean returns over 0 to there.

    Raises:
      ConfigError: if no run of a game reached `at_steps`.
    """
    games = []
    option = "--area_to" if by_area else "--at_steps"
    for env, members in by_game(runs).items():
        finished = [run for run in members if run.about.finished] or members
        steps = at_steps or min(run.curve.agent_steps[-1] for run in finished)
        # An unfinished run that came far enough says as much as a finished one.
        missing = {run.source: _why_missing(run, at_steps, steps, by_area) for run in members}
        reached = [run for run in members if not missing[run.source]]
        if not reached:
            longest = max(members, key=lambda run: np.ptp(run.curve.agent_steps))
            raise ConfigError(
                f"{option}={steps:.0f}: no run of {env} has a score there. {longest.source}, the "
                f"longest: {missing[longest.source]}"
            )
        seconds = min(_seconds_to(run, steps) for run in reached)
        rows = [_row(x, of, steps, seconds, by_area) for x, of in by_label(reached).items()]
        rows.sort(key=lambda row: -estimate([row.scores]).value)
        notes = [
            f"{run.source}: {run.about.label}, seed {run.about.seed}: {missing[run.source]}"
            for run in members
            if missing[run.source]
        ]
        notes += [
            f"{row.label}: no score at equal time, {seconds:,.1f} s, when the fastest run was at "
            f"{steps:,.0f} agent steps: one of its runs had none yet. Train longer, or record more "
            "often (a lower --log_interval_s)."
            for row in rows
            if not row.by_time
        ]
        games.append(GameComparison(env, steps, tuple(rows), tuple(notes), seconds, by_area))
    return games


def _row(label: str, runs: Sequence[Run], steps: float, seconds: float, by_area: bool) -> Row:
    curves = [run.curve for run in runs]
    scores = tuple(x.area(steps) if by_area else x.at_steps(steps) for x in curves)
    by_time = tuple(curve.at_seconds(seconds) for curve in curves)
    names = _flags_apart(runs)
    told = tuple(_with_flags(run, names) for run in runs)
    return Row(label, told, scores, by_time if np.isfinite(by_time).all() else ())


def _flags_apart(runs: Sequence[Run]) -> list[str]:
    """Return the flags, but seed and game, in which runs differ; of a CSV as far as it says."""
    whole = [run.flags for run in runs if run.flags]
    parts = [run.about.apart for run in runs if not run.flags]

    def differ(name: str) -> bool:
        values = [of.get(name) for of in whole] + [of[name] for of in parts if name in of]
        return any(value != values[0] for value in values)

    return sorted(filter(differ, set[str]().union(*whole, *parts) - NOT_CONFIGURATION))


def _with_flags(run: Run, names: Sequence[str]) -> Run:
    """Return the run with its values of these flags in what its CSV says of it."""
    known = run.flags or run.about.apart
    apart = {name: known[name] for name in names if name in known}
    return replace(run, about=replace(run.about, apart=apart))


def _why_missing(run: Run, wanted: float | None, steps: float, by_area: bool) -> str:
    """Return why a run has no score at `steps`, and what to do; "" if it has one.

    `wanted` are the steps that the user gave, if any.
    """
    first, last = float(run.curve.agent_steps[0]), float(run.curve.agent_steps[-1])
    if by_area and run.about.goes_on and first > UNKNOWN * steps:
        return (
            f"it goes on from another run and begins at {first:,.0f} agent steps, and an area "
            "counts from 0. Compare it by --at_steps."
        )
    if run.curve.covers(steps):
        return ""
    advice = f"Train it longer, or give {'--area_to' if by_area else '--at_steps'}."
    if first > steps:
        advice = "Give more steps, or leave it out."
        if wanted is None:
            advice = (
                "There are no steps at which all of them have scores: leave some out, or give "
                "--at_steps."
            )
    chosen = "" if wanted else ", where the shortest ends"
    return (
        f"it has scores from {first:,.0f} to {last:,.0f} agent steps, but runs are compared at "
        f"{steps:,.0f}{chosen}. {advice}"
    )


def about_scores(games: Sequence[GameComparison]) -> str:
    """Return a description of the score of a run."""
    averaged = f"the last {last_games(runs_of(games))}"
    if games[0].by_area:
        return f"mean raw return over the agent steps from 0 on, each return of {averaged}"
    return f"mean raw return of {averaged} of training"


def notes_of(games: Sequence[GameComparison]) -> list[str]:
    """Return the notes about runs that could not be compared."""
    return [note for game in games for note in game.left_out]


def runs_of(games: Sequence[GameComparison]) -> list[Run]:
    """Return all runs that were compared."""
    return [run for game in games for row in game.rows for run in row.runs]


def by_game(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return env -> its runs, in the order of the names."""
    envs = sorted({run.about.env for run in runs})
    return {env: [run for run in runs if run.about.env == env] for env in envs}


def by_label(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return label -> its runs, by seed; labels in the order in which they come."""
    labelled: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.about.seed):
        labelled.setdefault(run.about.label, []).append(run)
    return {label: labelled[label] for label in dict.fromkeys(run.about.label for run in runs)}


def over_games(
    scores: Mapping[str, Mapping[str, Sequence[float]]],
    statistic: Callable[[Strata], Estimate] = estimate,
) -> dict[str, Estimate]:
    """Return label -> human-normalised estimate over all games that have anchors, best first.

    `scores` has env -> label -> raw scores. A configuration without scores in one of these games is
    left out; with fewer than two games the result is empty.
    """
    known = [env for env in scores if all_human_normalised(env, [0.0])]
    if len(known) < 2:
        return {}
    whole = {
        label: statistic([all_human_normalised(env, scores[env][label]) for env in known])
        for label in scores[known[0]]
        if all(label in scores[env] for env in known)
    }
    return dict(sorted(whole.items(), key=lambda item: -item[1].value))


def page(games: Sequence[GameComparison], notes: Sequence[str] = (), against: str = "") -> str:
    """Return the comparison as a Markdown page: scores, runs, commands, and what was left out.

    `notes` are sentences about runs that were left out before. `against` is the label of the
    configuration with which the others are compared, "" for none.

    Raises:
      ConfigError: if a game lacks the configuration `against`.
    """
    if not games:
        return markdown_page("No run has finished a game yet.", {}, notes)
    about = (
        f"Score: {about_scores(games)}. {SCORE} Human-normalised scores by the table of {TABLE}."
    )
    if against:
        about += f" Differences are of means to {against!r} [95 % interval, Welch]."
    tables = {game.env: markdown.table(*game_table(game, against)) for game in games}
    scores = {game.env: {row.label: row.scores for row in game.rows} for game in games}
    overall = [[label, value.percent()] for label, value in over_games(scores).items()]
    if overall:
        headings = ["configuration", "at equal agent steps"]
        tables["Human-normalised, over games"] = markdown.table(headings, overall)
    if mixed := mixed_configurations(games):
        tables["More than seeds"] = mixed
    tables["Runs"] = markdown.table(*run_table(games))
    tables["Commands"] = [f"* {shown_text(command, MAX_COMMAND)}" for command in _commands(games)]
    return markdown_page(about, tables, [*notes, *notes_of(games)])


def markdown_page(
    about: str, tables: Mapping[str, Sequence[str]], left_out: Sequence[str] = ()
) -> str:
    """Return a page: the sentence `about`, `tables` under headings, and what was `left_out`."""
    lines = [about]
    for heading, table in tables.items():
        lines += ["", f"## {shown_text(heading)}", "", *table]
    if left_out:
        notes = [f"* {shown_text(note, MAX_COMMAND)}" for note in left_out]
        lines += ["", "## Left out", "", *notes]
    return "\n".join(lines) + "\n"


def mixed_configurations(games: Sequence[GameComparison]) -> list[str]:
    """Return a line for each configuration whose runs differ in more than seed and game.

    One program may have trained them before a default changed, and another one after.
    """
    lines: dict[str, None] = {}
    for row in (row for game in games for row in game.rows):
        if apart := _flags_apart(row.runs):
            names = ", ".join(map(shown_text, apart))
            lines[f"* {shown_text(row.label)}: its runs differ in {names}"] = None
    return list(lines)


def games_figure(games: Sequence[GameComparison]) -> Figure:
    """Return the learning curves of all that was compared."""
    return learning_curves(
        {
            game.env: {row.label: [run.curve for run in row.runs] for row in game.rows}
            for game in games
        }
    )


def game_table(game: GameComparison, against: str = "") -> tuple[list[str], list[list[str]]]:
    """Return the headings and the rows of one game, as text; see `page`."""
    scores = {row.label: row.scores for row in game.rows}
    if against and against not in scores:
        raise ConfigError(
            f"--against={against}: {game.env} has no such configuration; there are "
            f"{', '.join(map(repr, scores))}."
        )
    score = "mean return over 0 to" if game.by_area else "return at"
    columns: dict[str, Callable[[Row], str]] = {
        "configuration": lambda row: row.label,
        "seeds": lambda row: str(len(row.runs)),
        f"{score} {game.at_steps:,.0f} agent steps": lambda row: str(estimate([row.scores])),
    }
    if all_human_normalised(game.env, [0.0]):
        columns["human-normalised"] = lambda row: estimate(
            [all_human_normalised(game.env, row.scores)]
        ).percent()
    if against:
        columns["difference"] = lambda row: (
            "" if row.label == against else str(difference(row.scores, scores[against]))
        )
    columns |= {
        "minutes to get there": lambda row: _minutes_to(row.runs, game.at_steps),
        f"return after {game.at_seconds / 60:.1f} min": lambda row: (
            str(estimate([row.by_time])) if row.by_time else "-"
        ),
        "return at the end of each run": lambda row: str(
            estimate([[float(run.curve.mean_return[-1]) for run in row.runs]])
        ),
        "best game": lambda row: _best_of(row.runs),
    }
    return list(columns), [[cell(row) for cell in columns.values()] for row in game.rows]


def _minutes_to(runs: Sequence[Run], steps: float) -> str:
    """Return the mean running time to `steps` agent steps, and how undisturbed the runs were."""
    minutes = np.mean([_seconds_to(run, steps) / 60 for run in runs])
    known = [run.about.undisturbed for run in runs if run.about.undisturbed is not None]
    return f"{minutes:.1f}" + (f" ({share_text(min(known))} undisturbed)" if known else "")


def _best_of(runs: Sequence[Run]) -> str:
    bests = [run.about.best for run in runs if run.about.best is not None]
    return same_decimals([max(bests)])[0] if bests else "-"


def _seconds_to(run: Run, steps: float) -> float:
    return round(float(np.interp(steps, run.curve.agent_steps, run.curve.wall_s)), 3)


def share_text(share: float | None) -> str:
    """Return a share of a run's time as tables show it."""
    return "not known" if share is None else f"{100 * share:.0f} %"


def energy_text(joules: float | None) -> str:
    """Return the energy per million agent steps as tables show it."""
    return "not measured" if joules is None else kilojoules(joules)


def run_table(games: Sequence[GameComparison]) -> tuple[list[str], list[list[str]]]:
    """Return the headings and the rows of all runs that were compared, as text."""
    runs = runs_of(games)
    scores = [score for game in games for row in game.rows for score in row.scores]
    has_energy = any(run.about.joules_per_million_steps is not None for run in runs)
    headings = ["file", "return", "return at its end", "agent steps", "minutes", "undisturbed"]
    headings += [*["energy per M steps"] * has_energy, "commit", "machine"]
    rows = [
        [
            run.csv_name,
            *same_decimals([score, float(run.curve.mean_return[-1])], 2),
            f"{run.curve.agent_steps[-1]:,.0f}",
            f"{run.curve.wall_s[-1] / 60:.1f}",
            share_text(run.about.undisturbed),
            *[energy_text(run.about.joules_per_million_steps)] * has_energy,
            run.about.commit,
            run.about.machine,
        ]
        for run, score in zip(runs, scores, strict=True)
    ]
    return headings, rows


def _commands(games: Sequence[GameComparison]) -> list[str]:
    """Return each command once, with the labels that it made."""
    made: dict[str, dict[str, None]] = {}
    for run in runs_of(games):
        made.setdefault(run.about.command, {})[run.about.label] = None
    return [f"{', '.join(labels)}: `{command}`" for command, labels in made.items()]
