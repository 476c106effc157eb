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
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ritornello.agent.testing.human_scores import TABLE, all_human_normalised
from ritornello.analysis.comparison import GameComparison, markdown_page
from ritornello.analysis.figure import LOOKS, legend
from ritornello.analysis.statistics import (
    FEW,
    Estimate,
    Strata,
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
MAX_PAIRED = 12  # configurations that are compared two by two: 66 pairs


class Scored(NamedTuple):
    """The scores of configurations that have runs in the same games, the best label first."""

    raw: dict[str, Strata]
    scaled: dict[str, Strata]  # on one scale for all games; empty if there is none
    unit: str  # unit of the scale
    notes: list[str]  # on what is left out


def scored_of(games: Sequence[GameComparison]) -> Scored:
    """Put the scores of a comparison on one scale.

    The scale of several games is human play. A game for which that is not known counts in pairs
    only; a configuration without runs in one of the games is left out.

    Raises:
      ConfigError: if no configuration has runs in all games.
    """
    scores = {game.env: {row.label: row.scores for row in game.rows} for game in games}
    labels = dict.fromkeys(label for of_game in scores.values() for label in of_game)
    raw: dict[str, Strata] = {
        label: [of_game[label] for of_game in scores.values()]
        for label in labels
        if all(label in of_game for of_game in scores.values())
    }
    if not raw:
        raise ConfigError(
            f"no configuration has runs in all games ({', '.join(scores)}), so nothing can be said "
            "over them. Give runs of one game, or one name to the runs of a configuration: "
            "--runs='name=folder,...'."
        )
    notes = [f"{x}: it has no run in one of the games." for x in labels if x not in raw]
    scaled, unit = raw, "raw return"
    if len(scores) > 1:
        known = [env for env in scores if all_human_normalised(env, [0.0])]
        unit = "human-normalised score"
        scaled = {x: [all_human_normalised(e, scores[e][x]) for e in known] for x in raw if known}
        notes += [
            f"{env}: it has no human play in the table of {TABLE}, so it counts only in the "
            "probability of improvement."
            for env in scores
            if env not in known
        ]
    if scaled:
        raw = dict(sorted(raw.items(), key=lambda item: -estimate(scaled[item[0]]).value))
    return Scored(raw, scaled, unit, notes)


def improvement_table(raw: Mapping[str, Strata]) -> tuple[list[str], list[list[str]]]:
    """Return a table of how often the runs of a row score higher than those of a column.

    At most `MAX_PAIRED` labels are shown.
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


def profiles_page(scored: Scored, what: str, notes: Sequence[str] = ()) -> str:
    """Return the results over all runs and games as a Markdown page.

    `what` is a description of the score; `notes` are sentences about runs that were left out
    before.
    """
    is_human = scored.unit != "raw return"
    rows = []
    for label in scored.raw if scored.scaled else ():
        strata = scored.scaled[label]
        both = (estimate(strata), mean_estimate(strata))
        shown = [each.percent() if is_human else str(each) for each in both]
        rows.append([label, str(sum(map(len, strata))), *shown])
    headings = ["configuration", "runs", "interquartile mean", "mean over games"]
    tables = {f"As {scored.unit}": markdown.table(headings, rows)} if rows else {}
    if len(scored.raw) > 1:
        heading = "How often a run of the row scores higher than one of the column"
        tables[heading] = markdown.table(*improvement_table(scored.raw))
    about = (
        f"Score: {what}. Human-normalised scores by the table of {TABLE}. Intervals: 95 %, "
        f"bootstrap over runs, stratified by game; none of fewer than {FEW} runs."
    )
    return markdown_page(about, tables, [*notes, *scored.notes])


def profiles_figure(scored: Scored) -> Figure | None:
    """Return the performance profiles with their intervals; None without a common scale.

    They reach a little beyond the lowest and the highest score.
    """
    every = [score for games in scored.scaled.values() for scores in games for score in scores]
    if not every:
        return None
    low, high = min(every), max(every)
    margin = 0.05 * (high - low) or 0.05 * max(1.0, abs(high))
    levels = np.linspace(low - margin, high + margin, LEVELS)
    figure = new_figure(7.0, 4.0 + 0.2 * len(scored.raw), dpi=120)
    axes = figure.add_subplot()
    with_bands = len(scored.raw) <= len(COLOURS)  # more of them would hide the lines
    for label, (colour, dash) in zip(scored.raw, cycle(LOOKS), strict=False):
        share, bounds = profile(scored.scaled[label], levels)
        count = sum(map(len, scored.scaled[label]))
        text = f"{figure_text(label)} ({count} run{'s' * (count > 1)})"
        axes.step(levels, share, dash, where="post", color=colour, linewidth=2, label=text)
        if with_bands and bounds is not None:
            band = axes.fill_between(levels, *bounds, step="post", color=colour)
            band.set(alpha=0.15, linewidth=0)
    style(axes, "Performance profiles", scored.unit, "share of runs above it")
    axes.set_ylim(-0.03, 1.03)
    legend(figure, "bands: 95 % intervals of each score by itself" if with_bands else None)
    return figure
