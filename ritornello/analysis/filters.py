"""How alike are two networks? Filters matched, activations compared, and what filters look for.

Checkpoints of one training are compared with those of another (`--with`), or with the end of the
same training. Weights are compared in the order they stand in and in the best order, activations by
linear CKA on the same observations (analysis/layers.py); two freshly initialised networks are the
baseline of both. filters_images.py draws the filters themselves.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from rich.progress import Progress
from torch import Tensor

from ritornello.agent.assembly import build_model
from ritornello.agent.models.base import ActorCritic
from ritornello.agent.stored.checkpoint_folder import resolve
from ritornello.agent.stored.model_file import find_model_folder
from ritornello.analysis.figure import heat_map, legend, save
from ritornello.analysis.filters_images import draw_filters
from ritornello.analysis.layers import conv_layers, distances, layer_grams, linear_cka
from ritornello.analysis.options import (
    add,
    agent_parser,
    csv_text,
    progress,
    results_folder,
    say_written,
)
from ritornello.analysis.playing import LoadedAgent, load_agent, play_many
from ritornello.core.atomic_file import write_text
from ritornello.core.errors import ConfigError
from ritornello.core.run_layout import CHECKPOINTS
from ritornello.metrics.charts import COLOURS, INK, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EXAMPLES = """  python -m ritornello.analysis filters --load_model_url=models/pong
  python -m ritornello.analysis filters --load_model_url=<run> --with=<other>,<third>

A run folder means its milestones (--save_model_every_nsteps while training) and its latest
checkpoint. Each is compared with the checkpoint of the other run that has the nearest number of
agent steps; without --with, with the end of its own training, and a single checkpoint with a
network that has not learned. How to read the files: docs/analysis.md.
"""
BASELINE = "two random networks"
UNTRAINED = "a random network"
OBSERVATIONS = 256  # on which activations are compared
ENVS = 8  # that play for the observations, or as many as there are games
STRIDE = 16  # of their steps one is kept: neighbours show nearly the same
COLUMNS = 5  # panels side by side


class Comparison(NamedTuple):
    """One layer of one pair of networks; a row of filters.csv."""

    agent: str
    agent_steps: int
    other: str  # a training, BASELINE or UNTRAINED
    other_steps: int
    layer: str
    default_distance: float | None  # None where the two have no such filters in common
    optimal_distance: float | None
    cka: float


@dataclass(frozen=True)
class Shown:
    """N observations that networks are asked about, and the game that each is of."""

    obs: Tensor  # [N, *obs_shape]
    games: Sequence[str]  # N ids

    def grams(self, agent: LoadedAgent) -> dict[str, Tensor]:
        """Return layer -> Gram matrix [N, N] of what an agent says about them."""
        # A game that the agent does not know is told as its first one, as in a test.
        tasks = [agent.games.index(game) if game in agent.games else 0 for game in self.games]
        return layer_grams(agent.model, self.obs, torch.tensor(tasks))


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    places = [place for place in options.others.split(",") if place]
    with progress() as bars:
        agents = load_training(options.load_model_url, options.checkpoints, bars)
        others = {place: load_training(place, options.checkpoints, bars) for place in places}
        folder = results_folder(options.output or agents[-1].folder / "filters")
        written = _compare_all(agents, others, options, folder, bars)
    say_written(folder, *written)
    return 0


def _compare_all(
    agents: list[LoadedAgent],
    others: dict[str, list[LoadedAgent]],
    options: argparse.Namespace,
    folder: Path,
    bars: Progress,
) -> list[str]:
    """Compare all pairs of networks, draw the filters, and return the names of the files."""
    newest = agents[-1]
    shown = played_observations(newest, OBSERVATIONS, options.seed)
    rows: list[Comparison] = []
    last: dict[str, tuple[LoadedAgent, LoadedAgent]] = {}  # the newest pair of each other one
    for one, other, name, steps in bars.track(
        list(_pairs(agents, others)), description="comparing"
    ):
        rows += compare(one, other, name, steps, shown)
        last[name] = (one, other)
    write_text(folder / "filters.csv", csv_text(Comparison._fields, rows))
    both = ("default_distance", "optimal_distance")
    drawn = _draw_curves(rows, both, "mean squared distance", folder / "distances.png")
    drawn += _draw_curves(rows, ("cka",), "linear CKA", folder / "cka.png")
    maps = {name: layer_map(*pair, shown) for name, pair in last.items()}
    _draw_maps(maps, newest.label, folder / "cka_layers.png")
    drawn += ["cka_layers.png", *draw_filters(newest, folder, bars)]
    return ["filters.csv", *drawn]


def checkpoint_files(url: str, limit: int) -> list[str]:
    """Return the checkpoints that `url` means, in the order of training.

    Args:
      url: run folder (its milestones and its latest checkpoint, or without milestones all that
        are left), checkpoint file or model folder (itself).
      limit: at most so many, evenly spread, the first and the last among them.

    Raises:
      CheckpointError: if there is none.
    """
    folder = Path(url) / CHECKPOINTS
    if find_model_folder(url) is not None or not folder.is_dir():
        return [url]
    latest = resolve(url)[0]
    milestones = sorted(folder.glob("step_*.pt"))
    files = milestones or sorted(folder.glob("update_*.pt"))
    files = [*(path for path in files if not path.samefile(latest)), latest]
    kept = np.unique(np.linspace(0, len(files) - 1, min(limit, len(files))).round().astype(int))
    return [str(files[index]) for index in kept]


def load_training(url: str, limit: int, bars: Progress) -> list[LoadedAgent]:
    """Load the checkpoints of one training (see `checkpoint_files`), the newest last."""
    files = checkpoint_files(url, limit)
    agents = [load_agent(file) for file in bars.track(files, description=f"loading {url}")]
    return sorted(agents, key=lambda agent: agent.agent_steps)


def played_observations(agent: LoadedAgent, count: int, seed: int = 0) -> Shown:
    """Let an agent play its games and return `count` observations of what it sees.

    Stacks that reach over a reset are left out: a few pictures that are partly black are so unlike
    all others that they alone would decide how alike two layers are.
    """
    envs = max(ENVS, len(agent.games))
    frames = torch.zeros(envs, dtype=torch.int64)  # of this game so far
    seen: list[Tensor] = []
    games: list[str] = []
    for number, step in enumerate(play_many(agent, envs, seed=seed)):
        frames = torch.where(step.inputs.first, 1, frames + 1)
        if number % STRIDE == 0:
            whole = frames >= agent.env_spec.frames_stacked
            assert step.inputs.task_id is not None
            seen.append(step.inputs.obs[whole])
            games += [agent.games[task] for task in step.inputs.task_id[whole].tolist()]
        if len(games) >= count:
            break
    return Shown(torch.cat(seen)[:count], games[:count])


def random_model(agent: LoadedAgent, seed: int) -> ActorCritic:
    """Return an untrained network of the agent's kind that sees pixels as the agent does."""
    model = build_model(agent.blueprint.flags, agent.env_spec, seed).eval()
    learned = agent.model.state_dict().items()
    seen = {k: v for k, v in learned if ".statistics." in k or k.startswith("game_pixels.")}
    model.load_state_dict(seen, strict=False)
    return model


def compare(
    agent: LoadedAgent, other: LoadedAgent, name: str, other_steps: int, shown: Shown
) -> list[Comparison]:
    """Compare each layer of two networks.

    Args:
      agent: the agent with the first network.
      other: the agent with the second; of another architecture it is compared by its activations
        alone, where a layer has the same name.
      name: name of the second network, for the report.
      other_steps: agent steps for which the second was trained.
      shown: what both are shown.
    """
    mine, theirs = conv_layers(agent.model.torso_net), conv_layers(other.model.torso_net)
    fit = [layer.weight.shape for layer in mine] == [layer.weight.shape for layer in theirs]
    apart = {x.name: (x.default, x.optimal) for x in (distances(mine, theirs) if fit else ())}
    one, two = shown.grams(agent), shown.grams(other)
    found = []
    for layer in (layer for layer in one if layer in two):
        default, optimal = apart.get(layer, (None, None))
        cka = linear_cka(one[layer], two[layer])
        steps = agent.agent_steps
        found.append(
            Comparison(agent.label, steps, name, other_steps, layer, default, optimal, cka)
        )
    return found


def layer_map(one: LoadedAgent, two: LoadedAgent, shown: Shown) -> dict[tuple[str, str], float]:
    """Return the CKA of each layer of one network with each of another."""
    mine, theirs = shown.grams(one), shown.grams(two)
    return {(a, b): linear_cka(mine[a], theirs[b]) for a in mine for b in theirs}


def _pairs(
    agents: list[LoadedAgent], others: dict[str, list[LoadedAgent]]
) -> Iterator[tuple[LoadedAgent, LoadedAgent, str, int]]:
    """Yield (agent, other one, its name, its agent steps), the baseline first."""
    newest = agents[-1]
    first, second = (
        replace(newest, model=random_model(newest, seed), url="", agent_steps=0, label=BASELINE)
        for seed in (1, 2)
    )
    yield first, second, BASELINE, 0
    for place, series in others.items():
        for agent in agents:
            near = min(series, key=lambda x: abs(x.agent_steps - agent.agent_steps))
            if agent.model.obs_shape != near.model.obs_shape:
                raise ConfigError(
                    f"{agent.url} sees {agent.model.obs_shape} and {near.url} "
                    f"{near.model.obs_shape}: they cannot be shown the same observations."
                )
            yield agent, near, place, near.agent_steps
    if not others and len(agents) > 1:
        for agent in agents:
            yield agent, newest, "the end of its training", newest.agent_steps
    elif not others:
        yield newest, first, UNTRAINED, 0


def _draw_curves(
    rows: Sequence[Comparison], quantities: Sequence[str], label: str, path: Path
) -> list[str]:
    """Draw curves over training, one panel per layer; return the name of the file, if any."""
    rows = [row for row in rows if getattr(row, quantities[0]) is not None]
    if not rows:
        return []
    layers = list(dict.fromkeys(row.layer for row in rows))
    count = len({row.other for row in rows})
    columns = min(COLUMNS, len(layers))
    height = -(-len(layers) // columns)
    figure = new_figure(max(7.0, 3.2 * columns), 2.6 * height + 0.3 + 0.4 * count, dpi=110)
    for number, layer in enumerate(layers):
        axes = figure.add_subplot(height, columns, number + 1)
        of_layer = [row for row in rows if row.layer == layer]
        for quantity, dash in zip(quantities, ("-", "--"), strict=False):
            order = f", {quantity.removesuffix('_distance')} order" if len(quantities) > 1 else ""
            _draw_layer(axes, of_layer, quantity, dash, order if number == 0 else None)
        style(axes, _shortened(layer), "agent steps" if number >= len(layers) - columns else "", "")
        # The CKA of a layer that says the same about all observations is not a number.
        values = [getattr(row, quantity) for row in of_layer for quantity in quantities]
        axes.set_ylim(0, 1.08 * max(filter(isfinite, values), default=1.0) or 1.0)
    legend(figure)
    figure.supylabel(label, fontsize=9, color=INK)
    save(figure, path)
    return [path.name]


def _draw_layer(
    axes: Axes, rows: Sequence[Comparison], quantity: str, dash: str, order: str | None
) -> None:
    """Draw one quantity of one layer; `order` None: without names for the legend."""
    for place, other in enumerate(dict.fromkeys(row.other for row in rows)):
        of_pair = [row for row in rows if row.other == other]
        values = [getattr(row, quantity) for row in of_pair]
        text = None if order is None else f"{_shortened(other)}{order}"
        if other == BASELINE:  # a level
            axes.axhline(values[0], color="#999999", linestyle=dash, label=text)
        else:
            steps = [row.agent_steps for row in of_pair]
            colour = COLOURS[(place - 1) % len(COLOURS)]
            axes.plot(steps, values, dash, color=colour, marker="o", ms=3.5, label=text)


def _draw_maps(maps: Mapping[str, Mapping[tuple[str, str], float]], label: str, path: Path) -> None:
    """Draw one map per pair of networks, each layer against each."""
    figure = new_figure(4.6 * len(maps) + 0.6, 4.6, dpi=110)
    for number, (name, values) in enumerate(maps.items(), start=1):
        axes = figure.add_subplot(1, len(maps), number)
        rows, columns = (list(dict.fromkeys(each)) for each in zip(*values, strict=True))
        table = np.array([[values[row, column] for column in columns] for row in rows])
        heat_map(axes, table, _shortened(name), rows, (0, 1))
        axes.set_xticks(range(len(columns)), columns, rotation=90)
    figure.supylabel(_shortened(label), fontsize=9, color=INK)
    save(figure, path)


def _shortened(name: str) -> str:
    """Return the end of a long name: what tells runs apart stands there."""
    return name if len(name) <= 48 else f"...{name[-45:]}"


def _parser() -> argparse.ArgumentParser:
    parser = agent_parser("filters", __doc__, EXAMPLES)
    about = "other run folders, checkpoint files or model folders to compare it with"
    parser.add_argument("--with", dest="others", default="", metavar="PLACE,...", help=about)
    add(parser, "checkpoints", 10, "largest number of checkpoints of each run", least=1)
    return parser
