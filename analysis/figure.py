"""Learning curves of many runs: one row per game, against agent steps and against time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agent.atomic_file import atomic_path
from metrics.charts import COLOURS, INK, tick
from sequences.curves import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GRID_POINTS = 200  # of a curve
# One look per configuration: colours first, then the same colours in another dash.
LOOKS = tuple((colour, dash) for dash, colour in product(("-", "--", ":", "-."), COLOURS))


def draw(games: Mapping[str, Mapping[str, Sequence[Curve]]], output: Path) -> Path:
    """Draw the mean return of each configuration, with a band from its lowest to its highest seed.

    The range is a band that needs no assumption, and with the few seeds that runs of hours allow
    it is what an interval would come to. More configurations than colours are drawn without bands,
    which would hide the curves.

    Args:
      games: environment -> label -> one curve per seed.
      output: .png file to write.

    Returns:
      `output`.
    """
    # Lazily, and without pyplot: no global figure, no display, and a table alone costs no drawing.
    from matplotlib.figure import Figure

    labels = list(dict.fromkeys(label for groups in games.values() for label in groups))
    looks = {label: LOOKS[n % len(LOOKS)] for n, label in enumerate(labels)}
    with_band = len(labels) <= len(COLOURS)
    height = 3.4 * len(games) + 0.25 * -(-len(labels) // 3) + 0.4
    dpi = 120 if len(games) == 1 else 90  # a figure of two games is for git as well: below 200 kB
    figure = Figure(figsize=(11.0, height), dpi=dpi, layout="constrained", facecolor="white")
    panels = figure.subplots(len(games), 2, squeeze=False)
    for (env, groups), (by_steps, by_time) in zip(games.items(), panels, strict=True):
        for label, curves in groups.items():
            for axes, places in (
                (by_steps, [curve.agent_steps for curve in curves]),
                (by_time, [curve.wall_s / 60 for curve in curves]),
            ):
                _plot(axes, curves, places, looks[label], with_band)
        _style(by_steps, env, "agent steps")
        _style(by_time, env, "minutes")
        by_time.sharey(by_steps)
    for label, (colour, dash) in looks.items():
        count = max(len(groups.get(label, ())) for groups in games.values())
        runs = f" ({count} seeds)" if count > 1 else " (1 seed)"
        panels[0, 0].plot([], [], color=colour, linestyle=dash, linewidth=2, label=label + runs)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9, labelcolor=INK)
    with atomic_path(output) as temporary:
        figure.savefig(temporary, format="png")
    return output


def _plot(
    axes: Axes,
    curves: Sequence[Curve],
    places: Sequence[np.ndarray],
    look: tuple[str, str],
    with_band: bool,
) -> None:
    """Plot the curves of one configuration over the range that all of them cover."""
    start = max(float(x[0]) for x in places)
    end = min(float(x[-1]) for x in places)
    if end <= start:
        return
    # Only where every seed has data: a mean over fewer would jump.
    grid = np.linspace(start, end, GRID_POINTS)
    y = np.stack([np.interp(grid, x, c.mean_return) for x, c in zip(places, curves, strict=True)])
    colour, dash = look
    axes.plot(grid, y.mean(axis=0), color=colour, linestyle=dash, linewidth=1.8)
    if with_band and len(curves) > 1:
        axes.fill_between(grid, y.min(axis=0), y.max(axis=0), color=colour, alpha=0.13, linewidth=0)


def _style(axes: Axes, env: str, x_label: str) -> None:
    axes.set_title(env, loc="left", color=INK, fontsize=11)
    axes.set_xlabel(x_label, color=INK, fontsize=9)
    axes.set_ylabel("mean return of 100 games, raw", color=INK, fontsize=9)
    axes.tick_params(colors=INK, labelsize=8, length=0)
    axes.grid(color="#E5E5E5", linewidth=0.8)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.xaxis.set_major_formatter(lambda value, _: tick(value))
    axes.margins(x=0.02)
