"""The gradient of each layer over training: heat maps of layer against time, and a CSV.

A run that was trained with --gradient_metrics=True has measured them; they are read from its
records. For any other run they are measured now, at its checkpoints: the agent plays, and the
learner takes one step on what it played, which is thrown away again. Those gradients are of new
experience alone, where a run with replay learns from old experience too.
"""

from __future__ import annotations

import argparse
import copy
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ritornello.agent.algorithms.batch import Batch
from ritornello.agent.learning.feed import Feed
from ritornello.agent.pools.serial_pool import SerialPool
from ritornello.agent.session import prepare
from ritornello.agent.stored.checkpoint import Checkpoint
from ritornello.agent.stored.model_file import ShippedModel
from ritornello.analysis.figure import heat_map, save
from ritornello.analysis.filters import checkpoint_files
from ritornello.analysis.options import (
    add,
    agent_parser,
    csv_text,
    progress,
    results_folder,
    say_written,
)
from ritornello.analysis.playing import load_agent
from ritornello.core.atomic_file import write_text
from ritornello.core.run_layout import RECORDS
from ritornello.metrics.charts import INK, figure_text, new_figure, tick, title
from ritornello.metrics.run_files import read_records
from ritornello.replay.codec import make_codec
from ritornello.replay.item import Draw, Item
from ritornello.transport.weights import WeightBoard

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ritornello.agent.assembly import Blueprint

EXAMPLES = """  python -m ritornello.analysis gradients --load_model_url=results/<run>
  python -m ritornello.analysis gradients --load_model_url=results/<run> --measure --batches=20
  python -m ritornello.analysis gradients --load_model_url=models/pong

  norm           length of the layer's gradient, before clipping
  mean_abs       mean absolute gradient of its weights
  update_ratio   |new weights - old| / |old weights| of one update; around 1e-3 is usual
  zero_fraction  share of its weights with a gradient of exactly 0: near 1, units are dead
"""
QUANTITIES = ("norm", "mean_abs", "update_ratio", "zero_fraction")  # all but the last: as powers
ENVS = 8  # that play where gradients are measured now, or as many as there are games
WARM_UP_UNROLLS = 20  # of each, so that not all stand at the start of their games
MAX_COLUMNS = 200  # of a heat map; more records are averaged


@dataclass(frozen=True)
class Measurement:
    """The gradient of every layer at one moment of training."""

    agent_steps: int
    values: Mapping[str, Mapping[str, float]]  # layer -> quantity -> value; some may be missing


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    url = options.load_model_url
    with results_folder(options.output or _folder_of(url)) as folder:
        measured = [] if options.measure else recorded(Path(url))
        source = f"{len(measured)} records of the training"
        if not measured:
            files = checkpoint_files(url, options.checkpoints)
            source = "measured now, on new games"
            with progress() as bars:
                for file in bars.track(files, description="learning from new games"):
                    measured.append(measured_now(file, options.batches, options.seed))
            measured.sort(key=lambda measurement: measurement.agent_steps)
        write_text(folder / "gradients.csv", table(measured))
        figure = heat_maps(_averaged(measured), f"{Path(url).resolve().name}: {source}")
        save(figure, folder / "gradients.png")
    say_written(folder, "gradients.png", f"gradients.csv ({source})")
    return 0


def recorded(folder: Path) -> list[Measurement]:
    """Return what a run has recorded of its gradients; nothing without --gradient_metrics."""
    found = []
    for record in read_records(folder):
        values = by_layer(record.values)
        if values:
            found.append(Measurement(record.agent_steps, values))
    return found


def by_layer(metrics: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Sort metrics named gradient/<layer>/<quantity> by layer; others are left out."""
    values: dict[str, dict[str, float]] = defaultdict(dict)
    for name, value in metrics.items():
        group, _, rest = name.partition("/")
        layer, _, quantity = rest.rpartition("/")
        if group == "gradient" and quantity in QUANTITIES:
            values[layer][quantity] = value
    return dict(values)


def measured_now(url: str, batches: int, seed: int = 0) -> Measurement:
    """Let an agent play, and learn from it in thought: measure gradients, and forget them.

    Args:
      url: checkpoint file or model folder. A model folder has no moments of the optimiser, so
        nothing is said about the size of its updates.
      batches: number of batches to average over, each of the run's --batch_size.
      seed: seed of the games; equal seeds give equal games.
    """
    envs = max(ENVS, load_agent(url).env_spec.task_count)
    session = prepare(
        [
            "--op_mode=test",
            f"--load_model_url={url}",
            f"--seed={seed}",
            "--device=cpu",
            "--inference=worker",
            "--worker_count=1",
            f"--envs_per_worker={envs}",
            "--gradient_metrics=True",
            "--log_interval_s=1e-9",  # as good as always: each update is measured
        ]
    )
    blueprint, checkpoint = session.blueprint, session.checkpoint
    assert checkpoint is not None, "prepare loads the checkpoint of a test"
    learner = blueprint.learner()
    state = _learner_state(checkpoint, learner.state_dict())
    steps = checkpoint.agent_steps
    share = min(1.0, steps / blueprint.flags.schedule_steps)
    sums: dict[str, list[float]] = defaultdict(list)
    for batch in _batches(blueprint, state, batches):
        learner.load_state_dict(copy.deepcopy(state))  # each batch meets the same network
        for name, value in learner.step(batch, share).items():
            sums[name].append(float(value))
    means = {name: float(np.mean(values)) for name, values in sums.items()}
    if isinstance(checkpoint, ShippedModel):
        means = {k: v for k, v in means.items() if not k.endswith("/update_ratio")}
    return Measurement(steps, by_layer(means))


def table(measured: Sequence[Measurement]) -> str:
    """Return the measurements as CSV: agent_steps, layer, and the quantities."""
    rows = [
        (
            measurement.agent_steps,
            layer,
            *(f"{values[name]:.6g}" if name in values else "" for name in QUANTITIES),
        )
        for measurement in measured
        for layer, values in measurement.values.items()
    ]
    return csv_text(("agent_steps", "layer", *QUANTITIES), rows)


def _learner_state(checkpoint: Checkpoint, fresh: dict[str, Any]) -> dict[str, Any]:
    """Return what the learner starts each batch from."""
    saved = checkpoint.state["learner"]
    version = checkpoint.updates
    return {"optimiser": fresh["optimiser"], "version": version, **saved}


def _batches(blueprint: Blueprint, state: dict[str, Any], count: int) -> Iterator[Batch]:
    """Yield batches of new unrolls, played by the network of `state`."""
    version = int(state["version"])
    model, _ = blueprint.acting_model()
    model.load_state_dict(state["model"])
    board = WeightBoard(blueprint.acting_weights.nbytes)
    pool = SerialPool(blueprint.workers(), board)
    feed = Feed(blueprint.schema, torch.device("cpu"))
    codec = make_codec("none", 0)
    try:
        with board.write(version) as block:
            blueprint.acting_weights.pack(model, block)
        pool.start()
        for _ in range(WARM_UP_UNROLLS):
            pool.poll(0.0)
        draws: list[Draw] = []
        while count:
            for unrolls in pool.poll(0.0):
                for record in unrolls.records:
                    item = Item(len(draws), record, codec, version, version)
                    draws.append(Draw(item, 0, record, is_online=True))
            if len(draws) >= blueprint.flags.batch_size:
                yield feed.compose(draws[: blueprint.flags.batch_size], version)
                draws.clear()
                count -= 1
    finally:
        pool.stop(0.0)
        board.close()


def _averaged(measured: Sequence[Measurement]) -> list[Measurement]:
    """Return at most MAX_COLUMNS measurements, each the mean of its neighbours."""
    averaged = []
    for group in np.array_split(np.arange(len(measured)), min(MAX_COLUMNS, len(measured))):
        members = [measured[index] for index in group]
        many: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for member in members:
            for layer, values in member.values.items():
                for quantity, value in values.items():
                    many[layer][quantity].append(value)
        means = {
            layer: {quantity: float(np.mean(each)) for quantity, each in values.items()}
            for layer, values in many.items()
        }
        averaged.append(Measurement(members[-1].agent_steps, means))
    return averaged


def heat_maps(measured: Sequence[Measurement], about: str) -> Figure:
    """Return a figure with a panel for each quantity that is known: layers against time."""
    layers = list(dict.fromkeys(layer for m in measured for layer in m.values))
    tables = {
        quantity: np.array(
            [[m.values.get(x, {}).get(quantity, np.nan) for m in measured] for x in layers]
        )
        for quantity in QUANTITIES
    }
    known = {quantity: table for quantity, table in tables.items() if np.isfinite(table).any()}
    rows = -(-len(known) // 2)
    figure = new_figure(11.0, rows * (0.22 * len(layers) + 1.2), dpi=110)
    title(figure, about)
    names = [figure_text(layer.removeprefix("torso_net.")) for layer in layers]
    for number, (quantity, table) in enumerate(known.items(), start=1):
        axes = figure.add_subplot(rows, 2, number)
        is_share = quantity == "zero_fraction"
        values = table if is_share else np.log10(np.where(table > 0, table, np.nan))
        name = quantity if is_share else f"log10 {quantity}"
        heat_map(axes, values, name, names, (0, 1) if is_share else None)
        marks = np.unique(np.linspace(0, len(measured) - 1, 6).round().astype(int))
        axes.set_xticks(marks, [tick(float(f"{measured[i].agent_steps:.3g}")) for i in marks])
        axes.set_xlabel("agent steps", fontsize=9, color=INK)
    return figure


def _folder_of(url: str) -> Path:
    """Return where the results go: in the run folder, or where those of its agent go."""
    if (Path(url) / RECORDS).exists():
        return Path(url) / "analysis"
    return load_agent(url).folder


def _parser() -> argparse.ArgumentParser:
    about = "run folder; without records of gradients also a checkpoint or model folder"
    parser = agent_parser("gradients", __doc__, EXAMPLES, about)
    add(parser, "measure", False, "measure at the checkpoints even if gradients were recorded")
    add(parser, "checkpoints", 10, "largest number of checkpoints that are measured", least=1)
    add(parser, "batches", 8, "batches whose gradients are averaged at each checkpoint", least=1)
    return parser
