"""Charts of runs, from the files they left: metrics.jsonl and Scores.txt.

Matplotlib is imported when something is drawn, and used through its objects: no global state, no
display. Several runs are laid on top of each other by `python -m ritornello.analysis compare`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ritornello.core.atomic_file import atomic_path
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
MAX_POINTS = 5000  # of a curve: more than a few per pixel are a blur
AVERAGED_GAMES = 100  # of a run that does not say its --avg_buff_size


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
    made = []
    for name, figure in run_figures(folder):
        path = folder / "charts" / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        save(figure, path)
        made.append(path)
    return made


def run_figures(folder: Path) -> Iterator[tuple[str, Figure]]:
    """Yield the charts of one run by name, as far as it has something to show in them."""
    games, records = read_games(folder), read_records(folder)
    env, window = _flags_of(folder)
    names = [game_name(env_id) for env_id in env.split(",")]
    about, units = folder.name, [(name, "raw return") for name in names]
    if len(names) > 1 and len(records) >= 2:
        yield "returns", _grid(about, units, lambda axes, n: _plot_returns(axes, records, n))
    elif len(games.returns):
        yield "returns", _draw_returns(games, about, window)
    by_game: dict[str, list[Evaluated]] = {}
    for row in read_evaluations(folder):
        by_game.setdefault(row.game, []).append(row)
    if by_game:
        each, text = list(by_game.values()), f"Evaluations — {about}"
        played = [(game_name(game), "raw return") for game in by_game]
        yield "evaluations", _grid(text, played, lambda a, n: _plot_evaluated(a, each[n], n == 0))
    if len(records) >= 2:
        found = {name for record in records for name in record.values}
        charts = [(chart, shown) for chart in OVERVIEW if (shown := _expand(chart, found))]
        titles = [(chart.title, chart.unit) for chart, _ in charts]
        yield "overview", _grid(about, titles, lambda a, n: _plot_chart(a, *charts[n], records), 3)
        if "popart/mu_0" in found:
            text = f"PopArt: mean of the value targets, ± sigma — {about}"
            units = [(name, "discounted reward") for name in names]
            yield "popart", _grid(text, units, lambda axes, n: _plot_popart(axes, records, n))


def _flags_of(folder: Path) -> tuple[str, int]:
    """Return the games of a run, and the number of games in its moving average."""
    try:
        flags = json.loads((folder / FLAGS).read_text(encoding="utf-8"))
        return str(flags["env"]), max(1, int(flags.get("avg_buff_size", AVERAGED_GAMES)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return folder.name, AVERAGED_GAMES


def _grid(
    about: str,
    panels: Sequence[tuple[str, str]],
    plot: Callable[[Axes, int], None],
    columns: int | None = None,
) -> Figure:
    """Return a figure under the title `about`, with a panel for each title and unit in `panels`.

    `plot` is called with each panel and its number. The panels stand in `columns` columns. By
    default these are at most three, and only the left one has the unit.
    """
    across = columns or min(3, len(panels))
    down = max(1, -(-len(panels) // across))
    figure = new_figure(max(8.0, 4.4 * across), max(4.0, 2.9 * down))
    title(figure, about)
    for number, (name, unit) in enumerate(panels):
        axes = figure.add_subplot(down, across, number + 1)
        plot(axes, number)
        x_label = "agent steps" if number >= len(panels) - across else ""
        style(axes, name, x_label, unit if columns or number % across == 0 else "")
    return figure


def _draw_returns(games: Games, about: str, window: int) -> Figure:
    """Return the figure of a run of one game: each of its ends, their mean, and the best."""
    figure = new_figure(8.0, 4.8)
    axes = figure.add_subplot()
    thin = evenly(len(games.returns))
    steps, returns = games.agent_steps[thin], games.returns[thin]
    mean = moving_mean(games.returns, window)[thin]
    best = np.maximum.accumulate(games.returns)[thin]
    blue, orange, *_ = COLOURS
    alpha = max(0.08, min(0.5, 200 / len(steps)))
    axes.scatter(steps, returns, s=9, color=blue, alpha=alpha, linewidths=0, label="games")
    axes.plot(steps, mean, color=blue, linewidth=2.2, label=f"mean of {window}")
    axes.plot(steps, best, color=orange, linewidth=1, linestyle="--", label="best so far")
    axes.annotate(
        f" {short(round(float(mean[-1]), 2))}",
        (float(steps[-1]), float(mean[-1])),
        va="center",
        color=blue,
        fontweight="bold",
    )
    style(axes, about, "agent steps", "raw return")
    _legend_above(axes, 3)
    return figure


def _plot_evaluated(axes: Axes, rows: list[Evaluated], with_legend: bool) -> None:
    """Draw the mean returns of one game with their standard errors."""
    for colour, policy in zip(COLOURS, ("sampled", "greedy"), strict=False):
        of = [(r.agent_steps, r.mean, r.standard_error) for r in rows if r.policy == policy]
        table = np.array(of, np.float64).reshape(-1, 3)[evenly(len(of))]
        label = f"{policy} actions"
        axes.errorbar(*table.T, color=colour, linewidth=1.6, marker="o", markersize=3, label=label)
    if with_legend:
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)


def _plot_chart(axes: Axes, chart: Chart, found: list[str], records: list[Record]) -> None:
    for number, name in enumerate(found):
        x, y = _series(records, name)
        thin, colour = evenly(len(y)), COLOURS[number % len(COLOURS)]
        if len(y) > 100:  # raw and faint below, the trend above
            axes.plot(x[thin], y[thin], color=colour, linewidth=0.6, alpha=0.3)
            y = moving_mean(y, max(2, len(y) // 50))
        label = figure_text(_label(chart, name))
        axes.plot(x[thin], y[thin], color=colour, linewidth=1.6, label=label)
    if len(found) > 1 or "*" in chart.metrics[0]:
        _legend_above(axes, len(found))


def _plot_returns(axes: Axes, records: list[Record], task: int) -> None:
    for metric, colour, line, label in (
        ("return_best", COLOURS[1], "--", "best so far"),
        ("return_mean", COLOURS[0], "-", "mean of the last games"),
    ):
        x, y = _series(records, f"episode/{metric}_{task}")
        thin = evenly(len(y))
        axes.plot(x[thin], y[thin], color=colour, linestyle=line, linewidth=1.6, label=label)
    if task == 0:
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)


def _plot_popart(axes: Axes, records: list[Record], task: int) -> None:
    """Draw mu of one game over training, with a band of one sigma."""
    (x, mu), (_, sigma) = (_series(records, f"popart/{name}_{task}") for name in ("mu", "sigma"))
    thin = evenly(len(mu))
    x, mu, sigma = x[thin], mu[thin], sigma[thin]
    axes.fill_between(x, mu - sigma, mu + sigma, color=COLOURS[0], alpha=0.2, linewidth=0)
    axes.plot(x, mu, color=COLOURS[0], linewidth=1.6)


def _series(records: list[Record], name: str) -> Floats:
    """Return agent steps and values of one metric, [2, records that have it]."""
    points = [(r.agent_steps, r.values[name]) for r in records if name in r.values]
    series: Floats = np.array(points, np.float64).reshape(-1, 2).T
    return series


def _legend_above(axes: Axes, entries: int) -> None:
    """Put the legend into the line of the title, where no curve can be."""
    place: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1.01, 0.985)}
    spaces: dict[str, Any] = {"handlelength": 1.0, "handletextpad": 0.4, "columnspacing": 0.9}
    axes.legend(**place, **spaces, ncols=entries, frameon=False, fontsize=8, labelcolor=INK)


def evenly(count: int, wanted: int = MAX_POINTS) -> np.ndarray:
    """Return at most `wanted` of `count` indices, evenly spread, [K] int64."""
    places: np.ndarray = np.unique(np.linspace(0, count - 1, min(count, wanted)).round())
    return places.astype(int)


def _expand(chart: Chart, names: Iterable[str]) -> list[str]:
    """Return the metrics of a chart that a run has, `*` replaced by its buffers."""
    return [name for each in chart.metrics for name in sorted(names) if fnmatchcase(name, each)]


def _label(chart: Chart, name: str) -> str:
    """Return the label that tells a curve from its neighbours: the buffer, or the quantity."""
    parts = name.split("/")
    if len(parts) == 3:
        return parts[1]
    groups = {metric.split("/")[0] for metric in chart.metrics}
    text = parts[-1] if len(groups) == 1 else {"cache": "learner", "ring": "workers"}[parts[0]]
    return text.removesuffix("_updates").removesuffix("_fraction").replace("_", " ")


def new_figure(width: float, height: float, dpi: int = 150) -> Figure:
    """Return an empty figure, `width` by `height` inches, with automatic layout."""
    # Imported here: half a second that only a finished run pays. Figures made without pyplot
    # draw with Agg by themselves.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=dpi, layout="constrained", facecolor="white")


def save(figure: Figure, output: Path) -> None:
    """Write a figure as a PNG file, which is whole or absent."""
    with atomic_path(output) as temporary:
        figure.savefig(temporary, format="png")


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
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.6g}{letter}"
    return f"{value:.6g}"
