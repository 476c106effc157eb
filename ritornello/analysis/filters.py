"""How alike are two networks? Filters matched, activations compared, and what filters look for.

Checkpoints of one training are compared with those of another (`--with`), or with the end of the
same training. Weights are compared in the order they stand in and in the best order (matching.py),
activations by linear CKA on the same observations (cka.py); two freshly initialised networks are
the baseline of both. filters_images.py draws the filters themselves.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from ritornello.agent.assembly import build_model
from ritornello.agent.models.base import ActorCritic
from ritornello.agent.stored.checkpoint_folder import resolve
from ritornello.agent.stored.model_file import find_model_folder
from ritornello.analysis.cka import layer_grams, linear_cka
from ritornello.analysis.filters_figures import draw_curves, draw_heat_maps
from ritornello.analysis.filters_images import draw_first_layer, draw_preferred
from ritornello.analysis.filters_observations import (
    Shown,
    check_differ,
    played_observations,
    read_observations,
)
from ritornello.analysis.matching import UNITS, conv_layers, distances
from ritornello.analysis.options import add_place, command_parser, results_folder
from ritornello.analysis.playing import LoadedAgent, load_agent
from ritornello.core.atomic_file import atomic_path, write_json, write_text
from ritornello.core.errors import ConfigError
from ritornello.core.run_layout import CHECKPOINTS

EPILOG = """examples:
  python -m ritornello.analysis filters --load_model_url=models/pong
  python -m ritornello.analysis filters --load_model_url=<run> --with=<other> --propagate
  python -m ritornello.analysis filters --load_model_url=<run> --with=<other>,<third>

A run folder means its milestones (--save_model_every_nsteps while training) and its latest
checkpoint, so that there are curves over training time; without milestones, the checkpoints that
are left. Each checkpoint of --load_model_url is compared with the one of the other run that has the
nearest number of agent steps. Without --with, it is compared with the end of its own training, and
a single checkpoint with a network that has not learned.

Written to <output>: filters.csv and filters.json (all numbers), distances.png and cka.png (curves),
cka_layers.png (each layer against each), first_layer.png (its weights), preferred_<layer>.png (the
images that excite each filter most), observations.npz (what was shown: --observations takes it).
How to read them: docs/analysis.md.
"""
BASELINE = "two random networks"
UNTRAINED = "a random network"


@dataclass(frozen=True)
class Comparison:
    """One layer of one pair of networks; a row of filters.csv."""

    agent: str
    agent_steps: int
    other: str  # a training, BASELINE or UNTRAINED
    other_steps: int
    layer: str
    default_distance: float | None  # None where the two have no such filters in common
    optimal_distance: float | None
    cka: float


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        agents = load_training(options.load_model_url, options.checkpoints, progress)
        others = {
            place: load_training(place, options.checkpoints, progress)
            for place in options.others.split(",")
            if place
        }
        default = agents[-1].folder / "filters"
        with results_folder(Path(options.output) if options.output else default) as folder:
            written = _compare_all(agents, others, options, folder, progress)
    Console().print(f"written to {folder}: {', '.join(written)}", markup=False, soft_wrap=True)
    return 0


def _compare_all(
    agents: list[LoadedAgent],
    others: dict[str, list[LoadedAgent]],
    options: argparse.Namespace,
    folder: Path,
    progress: Progress,
) -> list[str]:
    """Compare all pairs of networks, draw the filters, and return the names of the files."""
    newest = agents[-1]
    shown = _observations(options, newest, folder)
    rows: list[Comparison] = []
    pairs = list(_pairs(agents, others))
    for one, other, name, steps in progress.track(pairs, description="comparing"):
        rows += compare(one, other, name, steps, shown, options.unit, options.propagate)
    _write_numbers(rows, folder, options)
    written = ["filters.csv", "filters.json"]
    written += draw_curves(rows, folder, options.unit, BASELINE)
    last = {name: (one, other) for one, other, name, _ in pairs}  # the newest of each
    maps = {name: layer_map(*pair, shown) for name, pair in last.items()}
    written += draw_heat_maps(maps, newest.label, folder)
    written += draw_first_layer(newest, folder)
    written += draw_preferred(newest, folder, options.preferred_steps, progress)
    return written


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


def load_training(url: str, limit: int, progress: Progress) -> list[LoadedAgent]:
    """Load the checkpoints of one training (see `checkpoint_files`), the newest last."""
    files = checkpoint_files(url, limit)
    agents = [load_agent(file) for file in progress.track(files, description=f"loading {url}")]
    return sorted(agents, key=lambda agent: agent.agent_steps)


def random_model(agent: LoadedAgent, seed: int) -> ActorCritic:
    """Return an untrained network of the agent's kind that sees pixels as the agent does.

    Args:
      agent: whose architecture, and whose statistics of pixels.
      seed: equal seeds give equal weights.
    """
    model = build_model(agent.blueprint.flags, agent.env_spec, seed).eval()
    seen = {
        k: v
        for k, v in agent.model.state_dict().items()
        if ".statistics." in k or k.startswith("game_pixels.")
    }
    model.load_state_dict(seen, strict=False)
    return model


def compare(
    agent: LoadedAgent,
    other: LoadedAgent,
    name: str,
    other_steps: int,
    shown: Shown,
    unit: str,
    propagate: bool,
) -> list[Comparison]:
    """Compare each layer of two networks.

    Args:
      agent: the agent with the first network.
      other: the agent with the second; of another architecture it is compared by its activations
        alone, where a layer has the same name.
      name: name of the second network, for the report.
      other_steps: agent steps for which the second was trained.
      shown: what both are shown.
      unit: "filters" or "kernels", see `distances`.
      propagate: whether matches are propagated to the next layer, see `distances`.
    """
    mine, theirs = conv_layers(agent.model.torso_net), conv_layers(other.model.torso_net)
    fit = [layer.weight.shape for layer in mine] == [layer.weight.shape for layer in theirs]
    found = distances(mine, theirs, unit=unit, propagate=propagate) if fit else []
    by_layer = {layer.name: layer for layer in found}
    one, two = _grams(agent, shown), _grams(other, shown)
    rows = []
    for layer in one.keys() & two.keys():
        distance = by_layer.get(layer)
        rows.append(
            Comparison(
                agent.label,
                agent.agent_steps,
                name,
                other_steps,
                layer,
                None if distance is None else distance.default,
                None if distance is None else distance.optimal,
                linear_cka(one[layer], two[layer]),
            )
        )
    order = list(one)
    return sorted(rows, key=lambda row: order.index(row.layer))


def layer_map(one: LoadedAgent, two: LoadedAgent, shown: Shown) -> dict[tuple[str, str], float]:
    """Return the CKA of each layer of one network with each of another."""
    mine, theirs = _grams(one, shown), _grams(two, shown)
    return {(a, b): linear_cka(mine[a], theirs[b]) for a in mine for b in theirs}


def _grams(agent: LoadedAgent, shown: Shown) -> dict[str, Tensor]:
    # A game that the agent does not know is told as its first one, as in a test.
    tasks = [agent.games.index(game) if game in agent.games else 0 for game in shown.games]
    return layer_grams(agent.model, shown.obs, torch.tensor(tasks))


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
            _check_same_sight(agent, near)
            yield agent, near, place, near.agent_steps
    if not others and len(agents) > 1:
        for agent in agents:
            yield agent, newest, "the end of its training", newest.agent_steps
    elif not others:
        yield newest, first, UNTRAINED, 0


def _check_same_sight(one: LoadedAgent, two: LoadedAgent) -> None:
    if one.model.obs_shape != two.model.obs_shape:
        raise ConfigError(
            f"{one.url} sees {one.model.obs_shape} and {two.url} {two.model.obs_shape}: they "
            "cannot be shown the same observations. Compare agents with the same --frames_stacked, "
            "--grayscaling_frames and --frame_scale_resolution."
        )


def _observations(options: argparse.Namespace, agent: LoadedAgent, folder: Path) -> Shown:
    """Return those of a file, or played by the agent and written to one.

    Raises:
      ConfigError: if nothing can be told from them.
    """
    if options.observations:
        path = Path(options.observations)
        shown = read_observations(path, agent).first(options.observation_count)
        check_differ(shown)
        return shown
    shown = played_observations(agent, options.observation_count, options.seed)
    check_differ(shown)
    with atomic_path(folder / "observations.npz") as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, obs=shown.obs.numpy(), games=np.array(shown.games))
    return shown


def _write_numbers(rows: list[Comparison], folder: Path, options: argparse.Namespace) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Comparison)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    write_text(folder / "filters.csv", text.getvalue())
    settings = {key: value for key, value in vars(options).items() if key != "output"}
    comparisons = [asdict(row) for row in rows]
    write_json(folder / "filters.json", {"settings": settings, "comparisons": comparisons})


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("filters", __doc__, EPILOG)
    add_place(parser)
    add = parser.add_argument
    add(
        "--with",
        dest="others",
        default="",
        metavar="PLACE,...",
        help="what to compare it with: other run folders, checkpoint files or model folders",
    )
    add(
        "--output",
        metavar="FOLDER",
        help="folder for the results (default: analysis/filters in the run folder)",
    )
    add(
        "--checkpoints",
        type=int,
        default=10,
        metavar="N",
        help="largest number of checkpoints of each run, evenly spread over its training "
        "(default: %(default)s)",
    )
    add(
        "--unit",
        choices=UNITS,
        default="filters",
        help="match whole filters, or each kernel of a filter by itself (default: %(default)s)",
    )
    add(
        "--propagate",
        action="store_true",
        help="also reorder the inputs of each layer, by the match of the filters that it reads",
    )
    add(
        "--observations",
        metavar="FILE",
        help="compare activations on these observations (observations.npz of an earlier "
        "comparison) instead of letting the agent play",
    )
    add(
        "--observation_count",
        type=int,
        default=256,
        metavar="N",
        help="number of observations on which activations are compared (default: %(default)s)",
    )
    add(
        "--preferred_steps",
        type=int,
        default=60,
        metavar="N",
        help="number of gradient steps towards the image that a filter prefers; 0 draws no such "
        "images (default: %(default)s)",
    )
    add("--seed", type=int, default=0, metavar="N", help="seed of the games (default: %(default)s)")
    return parser
