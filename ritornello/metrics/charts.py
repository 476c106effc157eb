"""Charts of runs, from the files they left: metrics.jsonl and Scores.txt.

Matplotlib is imported when something is drawn, and used through its objects: no global state, no
display. Several runs are laid on top of each other by `python -m ritornello.analysis compare`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ritornello.core.plain_data import shown_text
from ritornello.core.run_layout import FLAGS
from ritornello.core.spec import game_name
from ritornello.metrics.record import Record
from ritornello.metrics.run_files import (
    Evaluated,
    Floats,
    Games,
    read_evaluations,
    read_games,
    read_records,
)
from ritornello.metrics.text import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours: told apart by everybody, also in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
INK = "#333333"
MAX_POINTS = 5000  # of a curve


@dataclass(frozen=True)
class Chart:
    """One panel of an overview: some metrics over agent steps."""

    title: str
    metrics: tuple[str, ...]  # names; a `*` inside replay/*/... stands for every buffer
    unit: str = ""


OVERVIEW = (
    Chart("Losses", ("loss/total", "loss/policy", "loss/value", "loss/entropy")),
    Chart("Entropy of the policy", ("policy/entropy",), "nats"),
    Chart("Value", ("value/mean", "value/target_mean"), "transformed reward"),
    Chart("Explained variance of the value", ("value/explained_variance",)),
    Chart("Importance weights", ("vtrace/rho_mean", "vtrace/ess", "vtrace/rho_clipped_fraction")),
    Chart("Distance of data from policy", ("replay/*/kl_behaviour_target",), "nats"),
    Chart("Policy lag", ("lag/mean_updates", "lag/max_updates"), "updates"),
    Chart("Age of replayed unrolls", ("replay/*/mean_age_updates",), "updates"),
    Chart("Fill of the buffers", ("replay/*/fill",), "fraction"),
    Chart("Throughput", ("throughput/agent_steps_per_s",), "agent steps/s"),
    Chart("Waiting", ("cache/wait_fraction", "ring/wait_fraction"), "fraction"),
    Chart("Gradient norm", ("grad/norm_before_clip",)),
)


def moving_mean(values: Floats, window: int) -> Floats:
    """Return the mean of the last `window` values at each position (fewer at the start)."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - window)
    means: Floats = (sums[ends] - sums[starts]) / (ends - starts)
    return means


def draw_run(folder: Path) -> list[Path]:
    """Draw the charts of one run into `folder`/charts and return the files.

    A run without games or records gets no chart of them.
    """
    charts = folder / "charts"
    return [_save(figure, charts / f"{name}.png") for name, figure in run_figures(folder)]


def run_figures(folder: Path) -> Iterator[tuple[str, Figure]]:
    """Yield the charts of one run by name, as far as it has something to show in them."""
    games, records = read_games(folder), read_records(folder)
    names = _game_names(folder)
    if len(names) > 1 and len(records) >= 2:
        yield "returns", _draw_per_game(records, names, folder.name, _plot_returns, "raw return")
    elif len(games.returns):
        yield "returns", _draw_returns(games, folder.name)
    evaluations = read_evaluations(folder)
    if evaluations:
        yield "evaluations", _draw_evaluations(evaluations, f"Evaluations — {folder.name}")
    if len(records) >= 2:
        yield "overview", _draw_overview(records, folder.name)
        if any("popart/mu_0" in record.values for record in records):
            title = f"PopArt: mean of the value targets, ± sigma — {folder.name}"
            yield "popart", _draw_per_game(records, names, title, _plot_popart, "discounted reward")


def _game_names(folder: Path) -> list[str]:
    """Return the short names of the games of a run, in task order (one if that is not known)."""
    try:
        flags = json.loads((folder / FLAGS).read_text(encoding="utf-8"))
        return [game_name(env_id) for env_id in str(flags["env"]).split(",")]
    except (OSError, ValueError, KeyError, TypeError):
        return [folder.name]


def _draw_returns(games: Games, title: str) -> Figure:
    figure = new_figure(8.0, 4.8)
    axes = figure.add_subplot()
    last = games.agent_steps[-1]
    thin = _thin(len(games.returns))
    steps, returns = games.agent_steps[thin], games.returns[thin]
    mean = moving_mean(games.returns, 100)[thin]
    axes.scatter(
        steps,
        returns,
        s=9,
        color=COLOURS[0],
        alpha=max(0.08, min(0.5, 200 / len(steps))),
        linewidths=0,
        label="games",
    )
    axes.plot(steps, mean, color=COLOURS[0], linewidth=2.2, label="mean of 100")
    axes.plot(
        steps,
        np.maximum.accumulate(games.returns)[thin],
        color=COLOURS[1],
        linewidth=1,
        linestyle=(0, (4, 3)),
        label="best so far",
    )
    axes.annotate(
        short(round(float(mean[-1]), 2)),
        (float(last), float(mean[-1])),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        color=COLOURS[0],
        fontweight="bold",
    )
    style(axes, title, "agent steps", "raw return")
    _legend_above(axes, 3)
    return figure


def _draw_per_game(
    records: list[Record],
    names: list[str],
    title: str,
    plot: Callable[[Axes, list[Record], int], None],
    unit: str,
) -> Figure:
    """Return a figure with a panel for each game, drawn by `plot(axes, records, task)`."""
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure = new_figure(max(8.0, 4.4 * columns), max(4.0, 2.9 * rows))
    figure.suptitle(
        figure_text(title, 100), x=0.01, ha="left", color=INK, fontweight="bold", fontsize=11
    )
    for task, name in enumerate(names):
        axes = figure.add_subplot(rows, columns, task + 1)
        plot(axes, records, task)
        is_lowest = task >= len(names) - columns
        style(axes, name, "agent steps" if is_lowest else "", unit if task % columns == 0 else "")
    return figure


def _draw_evaluations(evaluations: list[Evaluated], title: str) -> Figure:
    """Return a figure with a panel for each game: mean returns with their standard errors."""
    games = list(dict.fromkeys(row.game for row in evaluations))
    columns = min(3, len(games))
    rows = -(-len(games) // columns)
    figure = new_figure(max(8.0, 4.4 * columns), max(4.0, 2.9 * rows))
    figure.suptitle(figure_text(title, 100), x=0.01, ha="left", color=INK, fontweight="bold")
    for number, game in enumerate(games):
        axes = figure.add_subplot(rows, columns, number + 1)
        for colour, policy in zip(COLOURS, ("sampled", "greedy"), strict=False):
            of_policy = [row for row in evaluations if (row.game, row.policy) == (game, policy)]
            table = np.array(
                [(row.agent_steps, row.mean, row.standard_error) for row in of_policy], np.float64
            ).reshape(-1, 3)[_thin(len(of_policy))]
            axes.errorbar(
                *table.T, color=colour, linewidth=1.6, elinewidth=0.8, marker="o", markersize=3,
                label=f"{policy} actions",
            )  # fmt: skip
        style(axes, game_name(game), "agent steps", "raw return" if number % columns == 0 else "")
        if number == 0:
            axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    return figure


def _plot_returns(axes: Axes, records: list[Record], task: int) -> None:
    """Draw the mean return of one game, and its best."""
    for metric, colour, style in (("return_best", 1, "--"), ("return_mean", 0, "-")):
        x, y = _series(records, f"episode/{metric}_{task}")
        label = "best so far" if metric == "return_best" else "mean of the last games"
        axes.plot(x, y, color=COLOURS[colour], linestyle=style, linewidth=1.6, label=label)
    if task == 0:
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)


def _plot_popart(axes: Axes, records: list[Record], task: int) -> None:
    """Draw mu of one game over training, with a band of one sigma."""
    x, mu = _series(records, f"popart/mu_{task}")
    _, sigma = _series(records, f"popart/sigma_{task}")
    axes.fill_between(x, mu - sigma, mu + sigma, color=COLOURS[0], alpha=0.2, linewidth=0)
    axes.plot(x, mu, color=COLOURS[0], linewidth=1.6)


def _series(records: list[Record], name: str) -> tuple[Floats, Floats]:
    """Return (agent steps, values) of one metric, thinned to what can be seen."""
    points = [(r.agent_steps, r.values[name]) for r in records if name in r.values]
    table = np.array(points, np.float64).reshape(-1, 2)[_thin(len(points))]
    return table[:, 0], table[:, 1]


def _draw_overview(records: list[Record], title: str) -> Figure:
    names = {name for record in records for name in record.values}
    charts = [(chart, found) for chart in OVERVIEW if (found := _expand(chart, names))]
    columns = 3
    rows = max(1, -(-len(charts) // columns))
    figure = new_figure(4.4 * columns, 2.9 * rows)
    figure.suptitle(figure_text(title, 100), x=0.01, ha="left", color=INK, fontweight="bold")
    for number, (chart, found) in enumerate(charts, start=1):
        axes = figure.add_subplot(rows, columns, number)
        for colour, name in zip(_colours(), found, strict=False):
            points = [(r.agent_steps, r.values[name]) for r in records if name in r.values]
            x, y = np.array(points, np.float64).T
            label = figure_text(_label(chart, name))
            thin = _thin(len(y))
            if len(y) > 100:  # raw and faint below, the trend above
                axes.plot(x[thin], y[thin], color=colour, linewidth=0.6, alpha=0.3)
                y = moving_mean(y, max(2, len(y) // 50))
            axes.plot(x[thin], y[thin], color=colour, linewidth=1.6, label=label)
        style(
            axes, chart.title, "agent steps" if number > len(charts) - columns else "", chart.unit
        )
        if len(found) > 1 or "*" in chart.metrics[0]:
            _legend_above(axes, len(found))
    return figure


def _legend_above(axes: Axes, entries: int) -> None:
    """Put the legend into the line of the title, where no curve can be."""
    axes.legend(
        loc="lower right",
        bbox_to_anchor=(1.01, 0.985),
        ncols=entries,
        handlelength=1.0,
        handletextpad=0.4,
        columnspacing=0.9,
        frameon=False,
        fontsize=8,
        labelcolor=INK,
    )


def _thin(count: int) -> slice:
    """Return every how-manieth of `count` points to draw: more than a few per pixel are a blur."""
    step = max(1, -(-count // MAX_POINTS))
    return slice((count - 1) % step, None, step)  # always with the last


def _expand(chart: Chart, names: Iterable[str]) -> list[str]:
    """Return the metrics of a chart that a run has, `*` replaced by its buffers."""
    patterns = chart.metrics
    return [name for pattern in patterns for name in sorted(names) if fnmatchcase(name, pattern)]


def _label(chart: Chart, name: str) -> str:
    """Return what tells a curve from its neighbours: the buffer, or the quantity."""
    parts = name.split("/")
    if len(parts) == 3:
        return parts[1]
    groups = {metric.split("/")[0] for metric in chart.metrics}
    text = parts[-1] if len(groups) == 1 else {"cache": "learner", "ring": "workers"}[parts[0]]
    return text.removesuffix("_updates").removesuffix("_fraction").replace("_", " ")


def _colours() -> Iterable[str]:
    """Yield colours for as many curves as anybody draws."""
    for _ in range(100):
        yield from COLOURS


def new_figure(width: float, height: float, dpi: int = 150) -> Figure:
    """Return an empty figure of so many inches, which lays out what is drawn in it."""
    # Imported here: half a second that only a finished run pays. Figures made without pyplot
    # draw with Agg by themselves.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=dpi, layout="constrained", facecolor="white")


def title(figure: Figure, text: str) -> None:
    """Write the title of a whole figure, at its left."""
    text = figure_text(text, 100)
    figure.suptitle(text, x=0.01, ha="left", color=INK, fontweight="bold", fontsize=11)


def figure_text(text: str, limit: int = 60) -> str:
    """Return a short text for a figure, shown as it is.

    Dollars would begin a formula, and an underscore in front would keep it out of the legend.
    """
    plain = shown_text(text, limit).replace("$", r"\$")
    return f" {plain}" if plain.startswith("_") else plain


def style(axes: Axes, title: str, x_label: str, y_label: str) -> None:
    """Give a chart its calm look: light grid, no box, large numbers shortened."""
    axes.set_title(figure_text(title), loc="left", color=INK, fontsize=11)
    axes.set_xlabel(x_label, color=INK, fontsize=9)
    axes.set_ylabel(y_label, color=INK, fontsize=9)
    axes.tick_params(colors=INK, labelsize=8, length=0)
    axes.grid(color="#E5E5E5", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#BBBBBB")
    axes.xaxis.set_major_formatter(lambda value, _: tick(value))
    axes.margins(x=0.02)


def tick(value: float) -> str:
    """Return the label of a round number on an axis: 0.25, 2M, 2.5M."""
    number, unit = f"{value:.6g}", ""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            number, unit = f"{value / limit:.6g}", letter
            break
    return number + unit


def _save(figure: Figure, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path
