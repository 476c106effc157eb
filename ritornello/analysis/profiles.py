"""Configurations over all runs and games: `python -m ritornello.analysis compare --profiles`.

One number for a configuration hides whether it is a little better everywhere or far better in one
game. The performance profile shows the whole distribution: for each score the share of runs that
are above it. Where one profile is above another at every score, every quantile is better; where
they cross, the answer depends on what is asked. The probability of improvement says how often a
run of one configuration beats a run of another. Both are of Agarwal et al. 2021
(analysis/statistics.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from ritornello.agent.testing.human_scores import TABLE, all_human_normalised
from ritornello.analysis.comparison import GameComparison, markdown_page, runs_of
from ritornello.analysis.figure import LOOKS, legend
from ritornello.analysis.runs import last_games
from ritornello.analysis.statistics import (
    FEW,
    Estimate,
    Profile,
    estimate,
    mean_estimate,
    probability_of_improvement,
    profile,
)
from ritornello.core import markdown
from ritornello.core.errors import ConfigError
from ritornello.metrics.charts import COLOURS, figure_text, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVELS = 200  # of a profile
IMPROVEMENT = "How often a run of the row scores higher than one of the column."
MAX_PAIRED = 12  # configurations that are compared two by two: 66 pairs

# env -> label -> one raw score per run
Scores = Mapping[str, Mapping[str, Sequence[float]]]


@dataclass(frozen=True)
class Scored:
    """The scores of configurations that have runs in the same games."""

    games: tuple[str, ...]
    raw: dict[str, list[Sequence[float]]]  # label -> scores of each game; the best label first
    scaled: dict[str, list[list[float]]]  # on one scale for all games; empty if there is none
    is_human: bool  # the scale is human-normalised, else raw returns
    what: str  # a score is, in words
    notes: tuple[str, ...]

    @property
    def unit(self) -> str:
        """Name of the scale."""
        return "human-normalised score" if self.is_human else "raw return"


def scored_of(scores: Scores, what: str) -> Scored:
    """Sort scores into what can be compared.

    Several games are put on one scale by human play. A game for which that is not known counts in
    pairs only; a configuration without runs in one of the games is left out.

    Args:
      scores: raw scores.
      what: a score is, in words.

    Raises:
      ConfigError: if no configuration has runs in all games.
    """
    games = tuple(sorted(scores))
    labels = dict.fromkeys(label for game in games for label in scores[game])
    complete = [label for label in labels if all(label in scores[game] for game in games)]
    if not complete:
        raise ConfigError(
            f"no configuration has runs in all games ({', '.join(games)}), so nothing can be said "
            "over them. Give runs of one game, or one name to the runs of a configuration: "
            "--runs='name=folder,...'."
        )
    notes = [f"{x}: it has no run in one of the games." for x in labels if x not in complete]
    raw = {label: [scores[game][label] for game in games] for label in complete}
    known = [game for game in games if all_human_normalised(game, [0.0])]
    scaled: dict[str, list[list[float]]] = {}
    if len(games) == 1:
        scaled = {label: [list(of[0])] for label, of in raw.items()}
    else:
        for label in complete if known else ():
            scaled[label] = [all_human_normalised(game, scores[game][label]) for game in known]
        notes += [
            f"{game}: it has no human play in the table of {TABLE}, so it counts only in the "
            "probability of improvement."
            for game in games
            if game not in known
        ]
    if scaled:
        complete.sort(key=lambda label: -estimate(scaled[label]).value)
    ordered = {label: raw[label] for label in complete}
    is_human = len(games) > 1 and bool(known)
    return Scored(games, ordered, scaled, is_human, what, tuple(notes))


def scored_games(games: Sequence[GameComparison], what: str) -> Scored:
    """Return the scores of a comparison over its games; see `scored_of`."""
    return scored_of(
        {game.env: {row.label: row.scores for row in game.rows} for game in games}, what
    )


def at_equal_steps(games: Sequence[GameComparison]) -> Scored:
    """Return the scores of a comparison, each game at its own number of agent steps."""
    steps = ", ".join(f"{game.at_steps:,.0f} ({game.env})" for game in games)
    last = last_games(runs_of(games))
    return scored_games(games, f"mean return of the last {last} at equal agent steps: {steps}")


def profiles_of(scored: Scored) -> dict[str, Profile]:
    """Return the performance profile of each configuration, at the same levels.

    They reach a little beyond the lowest and the highest score; empty without a common scale.
    """
    every = [score for games in scored.scaled.values() for scores in games for score in scores]
    if not every:
        return {}
    low, high = min(every), max(every)
    margin = 0.05 * (high - low) or 0.05 * max(1.0, abs(high))
    levels = np.linspace(low - margin, high + margin, LEVELS)
    return {label: profile(scored.scaled[label], levels) for label in scored.raw}


def improvement_table(
    raw: Mapping[str, Sequence[Sequence[float]]],
) -> tuple[list[str], list[list[str]]]:
    """Return a table of how often the runs of a row score higher than those of a column.

    Args:
      raw: label -> scores of each game. Beyond `MAX_PAIRED` labels the table ends.
    """
    labels = list(raw)[:MAX_PAIRED]
    pairs: dict[tuple[str, str], Estimate] = {}
    for number, one in enumerate(labels):
        for other in labels[number + 1 :]:
            pairs[one, other] = found = probability_of_improvement(raw[one], raw[other])
            low, high = (None if x is None else 1 - x for x in (found.high, found.low))
            pairs[other, one] = Estimate(1 - found.value, low, high)
    rows = [
        [one, *("" if one == other else pairs[one, other].percent() for other in labels)]
        for one in labels
    ]
    return ["better than", *labels], rows


def profiles_markdown(scored: Scored, notes: Sequence[str] = ()) -> str:
    """Return what is known over all runs and games as a Markdown page.

    Args:
      scored: the scores.
      notes: sentences about runs that were left out before.
    """
    scale = f"{scored.unit} by the table of {TABLE}" if scored.is_human else scored.unit
    lines = [
        f"Score: {scored.what}. Over {len(scored.games)} game{'s' * (len(scored.games) > 1)} "
        f"({', '.join(scored.games)}), as {scale}. Intervals: 95 %, bootstrap over runs, "
        f"stratified by game; none of fewer than {FEW} runs."
    ]
    if scored.scaled:
        rows = []
        for label in scored.raw:
            strata = scored.scaled[label]
            both = (estimate(strata), mean_estimate(strata))
            shown = [each.percent() if scored.is_human else str(each) for each in both]
            rows.append([label, str(sum(map(len, strata))), *shown])
        headings = ["configuration", "runs", "interquartile mean", "mean over games"]
        lines += ["", *markdown.table(headings, rows)]
    tables = {}
    if len(scored.raw) > 1:
        table = markdown.table(*improvement_table(scored.raw))
        tables = {"Probability of improvement": [IMPROVEMENT, "", *table]}
    return markdown_page("\n".join(lines), tables, [*notes, *scored.notes])


def profiles_figure(scored: Scored) -> Figure | None:
    """Return the performance profiles with their intervals; None without a common scale."""
    profiles = profiles_of(scored)
    if not profiles:
        return None
    figure = new_figure(7.0, 4.0 + 0.2 * len(profiles), dpi=120)
    axes = figure.add_subplot()
    with_bands = len(profiles) <= len(COLOURS)  # more of them would hide the lines
    for (label, found), (colour, dash) in zip(profiles.items(), cycle(LOOKS), strict=False):
        count = sum(map(len, scored.scaled[label]))
        text = f"{figure_text(label)} ({count} run{'s' * (count > 1)})"
        axes.step(
            found.levels, found.share, dash, where="post", color=colour, linewidth=2, label=text
        )
        if with_bands and found.low is not None and found.high is not None:
            axes.fill_between(
                found.levels, found.low, found.high,
                color=colour, alpha=0.15, linewidth=0, step="post",
            )  # fmt: skip
    style(axes, "Performance profiles", scored.unit, "share of runs above it")
    axes.set_ylim(-0.03, 1.03)
    legend(figure, "bands: 95 % intervals of each score by itself" if with_bands else None)
    return figure
