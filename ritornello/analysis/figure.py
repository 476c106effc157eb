"""Learning curves of many runs: one row per game, against agent steps and against time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from ritornello.analysis.statistics import FEW, over_seeds
from ritornello.metrics.charts import COLOURS, INK, figure_text, new_figure, style
from ritornello.metrics.curve import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GRID_POINTS = 200  # of a curve
FEW_POINTS = 30  # up to so many are marked one by one
# One look per configuration: colours first, then the same colours in another dash.
LOOKS = tuple((colour, dash) for dash, colour in product(("-", "--", ":", "-."), COLOURS))
MEAN_RETURN = "mean return of the last games, not clipped"
LEGEND = "thick: interquartile mean, as far as all seeds got; thin: each seed to its own end"
WIDTH_INCHES = 11.0
LEGEND_COLUMNS, COLUMN_LETTERS = 3, 42  # so many letters of 9 points fit into a third of the width
LEGEND_OF_MANY = "thick: interquartile mean, as far as all seeds got; band: its 95 % interval"


def png(figure: Figure) -> bytes:
    """Return a figure as the content of a PNG file."""
    output = BytesIO()
    figure.savefig(output, format="png")
    return output.getvalue()


def legend(figure: Figure, title: str | None = None, columns: int = 2) -> None:
    """Explain the lines of a figure below it."""
    figure.legend(
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        title=title,
        title_fontsize=8,
    )


def heat_map(
    axes: Axes,
    table: np.ndarray,
    title: str,
    rows: Sequence[str],
    limits: tuple[float, float] | None = None,
) -> None:
    """Draw a table [rows, columns] as colours, with a bar that explains them; NaN has no colour.

    The ends of the colours mean `limits`, by default the least and the largest number. The caller
    sets the ticks of the columns.
    """
    low, high = limits or (None, None)
    image = axes.imshow(
        table, aspect="auto", interpolation="nearest", cmap="viridis", vmin=low, vmax=high
    )
    axes.set_title(title, loc="left", color=INK, fontsize=9)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(colors=INK, labelsize=8, length=0)
    axes.figure.colorbar(image, ax=axes).ax.tick_params(labelsize=7, colors=INK)


def learning_curves(
    games: Mapping[str, Mapping[str, Sequence[Curve]]],
    y_label: str = MEAN_RETURN,
    *,
    by_time: bool = True,
) -> Figure:
    """Return a figure of the interquartile mean of each configuration, and of its seeds.

    `games` has environment -> label -> one curve per seed; with `by_time` they are drawn against
    time, too.

    Every run is drawn to its own end, with a dot there, however much earlier another one ended.
    Fewer than FEW seeds are thin lines; more are a band, the 95 % interval of the interquartile
    mean, and thin lines only where others have ended. If there are more configurations than
    colours, there are no bands and thin lines, which would hide the means.
    """
    labels = list(dict.fromkeys(label for groups in games.values() for label in groups))
    looks = {label: LOOKS[n % len(LOOKS)] for n, label in enumerate(labels)}
    most_seeds = max(len(curves) for groups in games.values() for curves in groups.values())
    with_seeds = len(labels) <= len(COLOURS)
    texts = {label: _legend_text(label, games) for label in labels}
    # So that none of it is cut off, long texts have a line of their own.
    columns = LEGEND_COLUMNS if max(map(len, texts.values())) <= COLUMN_LETTERS else 1
    height = 3.4 * len(games) + 0.25 * -(-len(labels) // columns) + 0.6
    figure = new_figure(WIDTH_INCHES, height, dpi=120 if len(games) == 1 else 90)
    panels = figure.subplots(len(games), 1 + by_time, squeeze=False, sharey="row")
    for (env, groups), line in zip(games.items(), panels, strict=True):
        for label, curves in groups.items():
            by_step = [(curve.agent_steps, curve.mean_return) for curve in curves]
            by_minute = [(curve.wall_s / 60, curve.mean_return) for curve in curves]
            for axes, seeds in zip(line, (by_step, by_minute), strict=False):
                plot_seeds(axes, seeds, *looks[label], with_seeds=with_seeds)
        for axes, x_label in zip(line, ("agent steps", "minutes"), strict=False):
            style(axes, env, x_label, y_label)
    for label, (colour, dash) in looks.items():
        panels[0, 0].plot([], [], color=colour, linestyle=dash, linewidth=2, label=texts[label])
    title = None
    if with_seeds and most_seeds > 1:
        title = LEGEND if most_seeds < FEW else LEGEND_OF_MANY
    legend(figure, title, columns)
    return figure


def _legend_text(label: str, games: Mapping[str, Mapping[str, Sequence[Curve]]]) -> str:
    count = max(len(groups.get(label, ())) for groups in games.values())
    return f"{figure_text(label)} ({count} seed{'s' * (count > 1)})"


def plot_seeds(
    axes: Axes,
    seeds: Sequence[tuple[np.ndarray, np.ndarray]],
    colour: str,
    dash: str = "-",
    *,
    with_seeds: bool = True,
) -> None:
    """Plot one configuration: its interquartile mean as far as all seeds reach, and each seed.

    `seeds` are curves (x, y) with increasing x. `with_seeds` adds the interval of the mean or, for
    fewer than FEW seeds, their lines. Beyond the end of the mean each seed is drawn in any case.
    """
    if len(seeds) <= 1:
        for x, y in seeds:
            marker = "o" if len(x) <= FEW_POINTS else None
            axes.plot(
                x, y, color=colour, linestyle=dash, linewidth=1.8, marker=marker, markersize=3
            )
        return
    found = over_seeds(seeds, GRID_POINTS)
    if found is not None:
        grid, mean, bounds = found
        axes.plot(grid, mean, color=colour, linestyle=dash, linewidth=2.0)
        if with_seeds and bounds is not None:
            axes.fill_between(grid, *bounds, color=colour, alpha=0.13, linewidth=0)
    end = min(float(x[-1]) for x, _ in seeds)
    shown_from = -np.inf if with_seeds and len(seeds) < FEW else end
    for x, y in seeds:
        later = x >= shown_from
        axes.plot(x[later], y[later], color=colour, linestyle=dash, linewidth=0.8, alpha=0.55)
        axes.plot(x[-1:], y[-1:], "o", color=colour, markersize=3)
