"""The figures of `analysis filters`: curves over training for each layer, and maps of layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ritornello.analysis.figure import save
from ritornello.metrics.charts import COLOURS, INK, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = {"-": "o", "--": "s"}  # of the points of a line in this dash
COLUMNS = 5  # panels side by side
GREY = "#999999"


class Row(Protocol):
    """What is drawn of a comparison; see `Comparison` of analysis/filters.py."""

    @property
    def agent_steps(self) -> int:
        """Of the first network."""

    @property
    def other(self) -> str:
        """Name of the second."""

    @property
    def layer(self) -> str:
        """Which layer of both."""

    @property
    def default_distance(self) -> float | None:
        """In the order the filters stand in."""

    @property
    def optimal_distance(self) -> float | None:
        """In the best order."""

    @property
    def cka(self) -> float:
        """Of the activations."""


def draw_curves(rows: Sequence[Row], folder: Path, unit: str, baseline: str) -> list[str]:
    """Draw distances.png and cka.png, one panel per layer; return the names of those drawn.

    Args:
      rows: all comparisons, a row for each layer and network.
      folder: folder of the files.
      unit: what was matched (filters or kernels), for the label.
      baseline: name of the comparison that is drawn as a level line.
    """
    drawn = []
    for file, lines, label in (
        (
            "distances.png",
            {"default_distance": "-", "optimal_distance": "--"},
            f"mean squared distance of {unit}",
        ),
        ("cka.png", {"cka": "-"}, "linear CKA"),
    ):
        shown = [row for row in rows if getattr(row, next(iter(lines))) is not None]
        if shown:
            save(_curves(shown, lines, label, baseline), folder / file)
            drawn.append(file)
    return drawn


def draw_heat_maps(
    maps: Mapping[str, Mapping[tuple[str, str], float]], label: str, folder: Path
) -> list[str]:
    """Draw cka_layers.png: one map per pair of networks, each layer against each.

    Args:
      maps: name of the pair -> (layer of the first, layer of the second) -> CKA.
      label: name of the first network.
      folder: folder of the file.
    """
    figure = new_figure(4.6 * len(maps) + 0.6, 4.6, dpi=110)
    panels = figure.subplots(1, len(maps), squeeze=False)[0]
    for axes, (name, values) in zip(panels, maps.items(), strict=True):
        rows = list(dict.fromkeys(first for first, _ in values))
        columns = list(dict.fromkeys(second for _, second in values))
        table = np.array([[values[row, column] for column in columns] for row in rows])
        image = axes.imshow(table, vmin=0, vmax=1, cmap="viridis", origin="lower")
        _title(axes, name)
        axes.set_xticks(range(len(columns)), columns, rotation=90)
        axes.set_yticks(range(len(rows)), rows)
        axes.tick_params(colors=INK, labelsize=8, length=0)
        if table.size <= 36:
            for (y, x), value in np.ndenumerate(table):
                colour = "white" if value < 0.6 else "black"
                axes.text(x, y, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=8)
    figure.colorbar(image, ax=list(panels), label="linear CKA", shrink=0.8)
    figure.supylabel(_shortened(label), fontsize=9, color=INK)
    save(figure, folder / "cka_layers.png")
    return ["cka_layers.png"]


def _curves(rows: Sequence[Row], lines: Mapping[str, str], label: str, baseline: str) -> Figure:
    layers = list(dict.fromkeys(row.layer for row in rows))
    others = [name for name in dict.fromkeys(row.other for row in rows) if name != baseline]
    columns = min(COLUMNS, len(layers))
    height = -(-len(layers) // columns)
    legend_height = 0.2 * len(lines) * (len(others) + 1)
    figure = new_figure(max(7.0, 3.2 * columns), 2.6 * height + 0.3 + legend_height, dpi=110)
    for number, layer in enumerate(layers):
        axes = figure.add_subplot(height, columns, number + 1)
        for quantity, dash in lines.items():
            level = [getattr(r, quantity) for r in rows if (r.layer, r.other) == (layer, baseline)]
            for y in level:
                axes.axhline(y, color=GREY, linestyle=dash, linewidth=1)
            for colour, other in zip(COLOURS * len(others), others, strict=False):
                points = [
                    (row.agent_steps, getattr(row, quantity))
                    for row in rows
                    if (row.layer, row.other) == (layer, other)
                ]
                x_y = zip(*points, strict=True)
                axes.plot(*x_y, dash, color=colour, marker=MARKERS[dash], ms=3.5)
        style(axes, _shortened(layer), "agent steps" if number >= len(layers) - columns else "", "")
        # The CKA of a layer that says the same about all observations is not a number.
        values = [getattr(r, q) for r in rows for q in lines if r.layer == layer]
        highest = max((value for value in values if isfinite(value)), default=1.0)
        axes.set_ylim(0, 1.08 * max(highest, 1e-12))
    for quantity, dash in lines.items():
        text = "" if len(lines) == 1 else f", {quantity.removesuffix('_distance')} order"
        for colour, other in zip(COLOURS * len(others), others, strict=False):
            label_of_line = f"{_shortened(other)}{text}"
            axes.plot([], [], dash, color=colour, marker=MARKERS[dash], ms=3.5, label=label_of_line)
        axes.plot([], [], dash, color=GREY, label=f"{baseline}{text}")
    ncols = 2 if columns >= 4 else 1
    figure.legend(
        loc="outside lower center", ncols=ncols, frameon=False, fontsize=8, labelcolor=INK
    )
    figure.supylabel(label, fontsize=9, color=INK)
    return figure


def _shortened(name: str) -> str:
    """Return the end of a long name: what tells runs apart stands there."""
    return name if len(name) <= 48 else f"...{name[-45:]}"


def _title(axes: Axes, text: str) -> None:
    axes.set_title(_shortened(text), loc="left", color=INK, fontsize=9)
