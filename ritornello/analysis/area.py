"""Areas under learning curves: `python -m ritornello.analysis compare --area_to=<steps>`.

The area of a run is its mean return over 0 to N agent steps. It asks how fast a run learned rather
than where it stood at one moment, and varies less: of the 15 runs of Breakout in
research/results/elite the areas to 1 M steps have a standard deviation of 6.5 % of their mean
within a configuration, the returns at the end 10.6 %. So it takes fewer seeds to tell two
configurations apart by it.

Games are never pooled unless that is asked for: a gain in one and a loss in another are two
results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from ritornello.agent.testing.human_scores import TABLE, anchors
from ritornello.analysis.comparison import SCORE, by_label, left_out_lines, over_games, reaching
from ritornello.analysis.runs import Run
from ritornello.analysis.statistics import Estimate, estimate
from ritornello.core import markdown
from ritornello.core.errors import ConfigError
from ritornello.metrics.curve import Curve
from ritornello.wrappers.env_ids import is_atari, rom_name


@dataclass(frozen=True)
class Areas:
    """The areas of one configuration in one game."""

    label: str
    areas: tuple[float, ...]  # points, one per run, by seed
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class GameAreas:
    """The configurations in one game, the best first."""

    env: str
    to_steps: float
    rows: tuple[Areas, ...]
    left_out: tuple[str, ...]  # notes about runs that did not get there


def area(curve: Curve, to_steps: float) -> float:
    """Return the mean return over 0 to `to_steps` agent steps, linear between records, points.

    Before its first record a run is taken to be where that record found it.

    Args:
      curve: the curve of one run; it must reach `to_steps`.
      to_steps: agent steps at which the area ends, above 0.
    """
    inside = (curve.agent_steps > 0) & (curve.agent_steps < to_steps)
    steps = np.concatenate([[0.0], curve.agent_steps[inside], [to_steps]])
    returns = np.interp(steps, curve.agent_steps, curve.mean_return)
    return float(np.trapezoid(returns, steps) / to_steps)


def areas_by_game(runs: Sequence[Run], to_steps: float) -> list[GameAreas]:
    """Score the runs, game by game in the order of their names.

    Raises:
      ConfigError: if no run of a game got to `to_steps`.
    """
    games = []
    for env in sorted({run.about.env for run in runs}):
        members = [run for run in runs if run.about.env == env]
        reached, left_out = reaching(members, to_steps, "area_to")
        rows = [
            Areas(
                label,
                tuple(area(run.curve, to_steps) for run in of_label),
                tuple(run.about.seed for run in of_label),
            )
            for label, of_label in by_label(reached).items()
        ]
        rows.sort(key=lambda row: -float(np.mean(row.areas)))
        games.append(GameAreas(env, to_steps, tuple(rows), left_out))
    return games


def difference(areas: Sequence[float], control: Sequence[float]) -> Estimate:
    """Return the difference of two configurations' mean areas, with its 95 % interval (Welch).

    Without interval if either has fewer than two runs, or none of them varies.
    """
    value = float(np.mean(areas) - np.mean(control))
    if min(len(areas), len(control)) < 2 or np.ptp(areas) == np.ptp(control) == 0.0:
        return Estimate(value, None, None)
    bounds = stats.ttest_ind(areas, control, equal_var=False).confidence_interval(0.95)
    return Estimate(value, float(bounds.low), float(bounds.high))


def areas_markdown(
    games: Sequence[GameAreas], notes: Sequence[str] = (), against: str = "", pooled: bool = False
) -> str:
    """Return the areas as a Markdown page.

    Args:
      games: the areas of each game, result of `areas_by_game`.
      notes: sentences about runs that were left out before.
      against: label of the configuration that the others are compared with; "": none.
      pooled: also give human-normalised areas over all games.

    Raises:
      ConfigError: if a game has no configuration `against`.
    """
    lines = [
        f"Score: mean raw return over 0 to {games[0].to_steps:,.0f} agent steps (area under the "
        f"learning curve; each return is the mean of the last games, see --avg_buff_size). {SCORE}"
    ]
    if against:
        lines[0] += f" Differences are of means to {against!r} [95 % interval, Welch]."
    for game in games:
        lines += ["", f"## {game.env}", "", *_table(game, against)]
    if pooled:
        lines += ["", f"## Human-normalised by {TABLE}, over games", ""]
        whole = over_games(
            {game.env: {row.label: row.areas for row in game.rows} for game in games}
        )
        rows = [[label, value.percent()] for label, value in whole.items()]
        lines += markdown.table(["configuration", "area"], rows)
    left_out = [*notes, *(note for game in games for note in game.left_out)]
    return "\n".join(lines + left_out_lines(left_out)) + "\n"


def _table(game: GameAreas, against: str) -> list[str]:
    control = next((row for row in game.rows if row.label == against), None)
    if against and control is None:
        labels = ", ".join(repr(row.label) for row in game.rows)
        raise ConfigError(
            f"--against={against}: {game.env} has no such configuration; there are {labels}."
        )
    headings = ["configuration", "seeds", "area", "of each seed"]
    headings += ["difference", "ratio"] if control else []
    rows = []
    for row in game.rows:
        seeds = ", ".join(map(str, row.seeds))
        each = ", ".join(f"{value:,.1f}" for value in row.areas)
        cells = [row.label, seeds, str(estimate([row.areas])), each]
        if control is row:
            cells += ["", ""]
        elif control is not None:
            cells += [str(difference(row.areas, control.areas)), _ratio(game.env, row, control)]
        rows.append(cells)
    return markdown.table(headings, rows)


def _ratio(env: str, row: Areas, control: Areas) -> str:
    """Return how large the mean area is beside control's, where the game's scores begin at 0."""
    mean, base = float(np.mean(row.areas)), float(np.mean(control.areas))
    random_play = anchors().get(rom_name(env), (0.0, 0.0))[0] if is_atari(env) else 0.0
    # Of scores that may be negative, as in Pong, a ratio says nothing.
    return f"{mean / base:.2f}" if min(mean, base) > 0 and random_play >= 0 else "-"
