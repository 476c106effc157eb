"""The gradient of each layer over training: heat maps of layer against time, and a CSV.

They are read from the records of a run that was trained with --gradient_metrics=True.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ritornello.analysis.figure import heat_map
from ritornello.analysis.options import command_parser, say_written
from ritornello.core.atomic_file import writable_folder, write_csv
from ritornello.core.command_line import counted
from ritornello.core.errors import ConfigError
from ritornello.core.project import main_command
from ritornello.metrics.charts import INK, evenly, figure_text, new_figure, save, tick, title
from ritornello.metrics.run_files import read_records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXAMPLES = """  python -m ritornello.analysis gradients --load_model_url=results/<run>

  norm           length of the layer's gradient, before clipping
  mean_abs       mean absolute gradient of its weights
  update_ratio   |new weights - old| / |old weights| of one update; around 1e-3 is usual
  zero_fraction  share of its weights with a gradient of exactly 0: near 1, units are dead
"""
QUANTITIES = ("norm", "mean_abs", "update_ratio", "zero_fraction")  # all but the last: as powers
MAX_COLUMNS = 200  # of a heat map: so many records, evenly spread
Values = Mapping[str, Mapping[str, float]]  # layer -> quantity -> value; some may be missing


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    parser = command_parser("gradients", __doc__, EXAMPLES)
    add = parser.add_argument
    add("--load_model_url", required=True, type=Path, metavar="RUN", help="run folder")
    about = "folder for the results (default: analysis/ in the run folder)"
    add("--output", type=Path, metavar="FOLDER", help=about)
    options = parser.parse_args(arguments)
    run = options.load_model_url
    measured = recorded(run)
    if not measured:
        raise ConfigError(
            f"{run} has no records of gradients. Train with --gradient_metrics=True, or go on with "
            f"a run: {main_command()} --resume={shlex.quote(str(run))} --gradient_metrics=True "
            "--max_steps=<more than it has>."
        )
    rows = [
        (steps, layer, *(f"{of[name]:.6g}" if name in of else "" for name in QUANTITIES))
        for steps, values in measured
        for layer, of in values.items()
    ]
    folder = writable_folder(options.output or run / "analysis")
    write_csv(folder / "gradients.csv", ("agent_steps", "layer", *QUANTITIES), rows)
    shown = evenly(len(measured), MAX_COLUMNS)
    about = f"{run.resolve().name}: {counted(len(measured), 'record')} of the training"
    save(heat_maps([measured[n] for n in shown], about), folder / "gradients.png")
    say_written(folder, "gradients.png", "gradients.csv")
    return 0


def recorded(folder: Path) -> list[tuple[int, Values]]:
    """Return (agent steps, values) of each record that has gradients (--gradient_metrics)."""
    found: list[tuple[int, Values]] = []
    for record in read_records(folder):
        values: dict[str, dict[str, float]] = defaultdict(dict)
        for name, value in record.values.items():
            group, _, rest = name.partition("/")
            layer, _, quantity = rest.rpartition("/")
            if group == "gradient" and quantity in QUANTITIES:
                values[layer][quantity] = value
        if values:
            found.append((record.agent_steps, dict(values)))
    return found


def heat_maps(measured: Sequence[tuple[int, Values]], about: str) -> Figure:
    """Return a figure with a panel for each recorded quantity: layers against time."""
    layers = list(dict.fromkeys(layer for _, values in measured for layer in values))
    known: dict[str, np.ndarray] = {}
    for quantity in QUANTITIES:
        table = [[of.get(x, {}).get(quantity, np.nan) for _, of in measured] for x in layers]
        if np.isfinite(table).any():
            known[quantity] = np.array(table)
    rows = -(-len(known) // 2)
    figure = new_figure(11.0, rows * (0.22 * len(layers) + 1.2), dpi=110)
    title(figure, about)
    names = [figure_text(layer.removeprefix("torso_net.")) for layer in layers]
    marks = evenly(len(measured), 6)
    ticks = [tick(float(f"{measured[mark][0]:.3g}")) for mark in marks]
    for number, (quantity, values) in enumerate(known.items(), start=1):
        axes = figure.add_subplot(rows, 2, number)
        if quantity == "zero_fraction":
            heat_map(axes, values, quantity, names, (0, 1))
        else:
            powers = np.log10(np.where(values > 0, values, np.nan))
            heat_map(axes, powers, f"log10 {quantity}", names)
        axes.set_xticks(marks, ticks)
        axes.set_xlabel("agent steps", fontsize=9, color=INK)
    return figure
