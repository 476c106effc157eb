"""A map of features: of what an agent saw, or of what is in a saved replay.

Features are the output of the torso, the numbers that elite and attentive replay compare. They are
projected onto the two axes along which they vary most (PCA), and coloured by what is known of each.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ritornello.agent.learning.feed import Feed
from ritornello.agent.stored.checkpoint import Checkpoint, load
from ritornello.agent.stored.model_file import find_model_folder
from ritornello.analysis.options import add, agent_parser, results_folder, say_written
from ritornello.analysis.playing import LoadedAgent, load_agent, play_many
from ritornello.core.atomic_file import atomic_file, write_json
from ritornello.core.errors import ConfigError
from ritornello.metrics.charts import INK, evenly, new_figure, save, title
from ritornello.replay.item import Draw, Item, unpack_items

EXAMPLES = """  python -m ritornello.analysis features --load_model_url=models/pong
  python -m ritornello.analysis features --load_model_url=results/<run> --of=replay --buffer=elite

--of=replay needs a checkpoint with the contents of its buffers: train with --save_replay=True.

colours
  value      what the critic expects from there, in reward units
  age        how long ago it was: in agent steps of the game, or in updates since it was played
  distance   from the newest of the same game, in feature space
  game       number of the game, if there are several
"""
POINTS = 1000  # observations on the map
ENVS = 8  # that play, or as many as there are games
STRIDE = 4  # of their steps one is kept: neighbours show nearly the same
ROWS_PER_UNROLL = 4  # that are kept
BATCH = 32  # unrolls looked at side by side


@dataclass(frozen=True)
class Points:
    """N observations: their features, and facts about each."""

    features: Tensor  # [N, F] float32
    colours: dict[str, np.ndarray]  # value, age, distance, game: each [N] float64
    age_unit: str


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    parser = agent_parser("features", __doc__, EXAMPLES)
    add(parser, "of", "game", "games played now, or the saved replay", choices=("game", "replay"))
    add(parser, "buffer", "", "name of the replay buffer; empty: the one that holds most")
    options = parser.parse_args(arguments)
    agent = load_agent(options.load_model_url)
    with results_folder(options.output or agent.folder) as folder:
        if options.of == "replay":
            points = replay_points(agent, POINTS, options.buffer)
        else:
            points = game_points(agent, POINTS, options.seed)
    _map(agent, points, options, folder / f"features_{options.of}")
    return 0


def _map(agent: LoadedAgent, points: Points, options: argparse.Namespace, stem: Path) -> None:
    plane, variance_share = pca(points.features)
    share = variance_share.tolist()
    _draw(points, plane, share, f"{agent.label}, {options.of}", stem.with_suffix(".png"))
    arrays: dict[str, Any] = {"features": points.features.numpy(), "pca": plane.numpy()}
    arrays |= points.colours
    with atomic_file(stem.with_suffix(".npz")) as file:
        np.savez_compressed(file, **arrays)
    settings = {k: v for k, v in vars(options).items() if k != "output"}
    facts = {"pca_variance_share": share, "age_unit": points.age_unit, "settings": settings}
    write_json(stem.with_suffix(".json"), facts)
    say_written(stem.parent, *(f"{stem.name}.{kind}" for kind in ("png", "npz", "json")))


def pca(points: Tensor) -> tuple[Tensor, Tensor]:
    """Project [N, F] float32 points onto the two axes along which they vary most.

    Returns:
      The centred points [N, 2] float32, and the share of the whole variance along each axis, [2].
      One feature, or one point, varies along one axis at most: the others are zeros.
    """
    # What is added are features that never vary, and points at the mean.
    centred = F.pad(points - points.mean(0), (0, 2, 0, 2))
    left, sizes, _ = torch.linalg.svd(centred, full_matrices=False)
    variances = sizes.square()
    share = variances / variances.sum().clamp(min=1e-30)
    return left[: len(points), :2] * sizes[:2], share[:2]


def game_points(agent: LoadedAgent, count: int, seed: int = 0) -> Points:
    """Let the agent play and keep every STRIDE-th observation, `count` points in all."""
    envs = max(ENVS, len(agent.games))
    rows = -(-count // envs)
    steps = [
        step
        for number, step in enumerate(play_many(agent, envs, seed=seed, steps=rows * STRIDE))
        if number % STRIDE == STRIDE - 1  # the very last is among them
    ]
    features = torch.stack([step.features for step in steps])  # [rows, envs, F]
    age = STRIDE * torch.arange(rows - 1, -1, -1)[:, None].expand(rows, envs)
    task_id = steps[0].inputs.task_id
    game = torch.zeros(envs) if task_id is None else task_id
    colours = {
        "value": torch.stack([step.heads.value for step in steps]),
        "age": age,
        "distance": (features - features[-1]).norm(dim=-1),
        "game": game.expand(rows, envs),
    }
    flat = {name: array.flatten()[-count:].double().numpy() for name, array in colours.items()}
    return Points(features.flatten(0, 1)[-count:].clone(), flat, "agent steps")


def replay_points(agent: LoadedAgent, count: int, buffer: str = "") -> Points:
    """Compute the features of observations in a saved replay, with the weights of its checkpoint.

    There are at most `count` points, fewer if replay has fewer rows. `buffer` is the name of the
    buffer, by default that of the buffer that holds most.

    Raises:
      ConfigError: if there is no such buffer, or it is empty.
    """
    if find_model_folder(agent.url) is not None:
        raise ConfigError(f"{agent.url} is a model folder, which holds no replay. Give a run.")
    checkpoint = load(agent.path)  # a run that trains may have a newer one by now
    items = _items_of(agent, checkpoint, buffer)
    steps = agent.blueprint.schema.unroll_length
    rows = evenly(steps, ROWS_PER_UNROLL)
    # By age, evenly; the newest of each game is needed for the distance.
    kept = evenly(len(items), -(-count // len(rows)))
    feed = Feed(agent.blueprint.schema, torch.device("cpu"))
    parts: list[tuple[Tensor, ...]] = []
    newest: dict[int, Tensor] = {}  # game -> [F], of its newest unroll so far
    for start in range(0, len(kept), BATCH):
        chosen = [items[index] for index in kept[start : start + BATCH]]
        batch = feed.compose(
            [Draw(x, 0, x.record(), False) for x in chosen], checkpoint.updates
        ).unpacked()
        with torch.inference_mode():
            features = agent.model.torso(batch.obs, batch.task_id)  # [T + 1, B, F]
            hidden, _ = agent.model.hidden(features, batch.inputs(), batch.state)
            value = agent.model.heads(hidden, batch.task_id).value  # [T, B]
        for column, game in enumerate(batch.task_id.tolist()):
            newest[game] = features[:-1, column].mean(0)
        about = (batch.age.repeat_interleave(len(rows)), batch.task_id.repeat_interleave(len(rows)))
        parts.append((features[rows].swapdims(0, 1).flatten(0, 1), value[rows].T.flatten(), *about))
    features, value, age, game = (torch.cat(of)[-count:] for of in zip(*parts, strict=True))
    centres = torch.stack([newest[number] for number in game.tolist()])
    distance = (features - centres).norm(dim=-1)
    colours = {"value": value, "age": age, "distance": distance, "game": game}
    found = {name: each.double().numpy() for name, each in colours.items()}
    return Points(features.clone(), found, "updates")


def _items_of(agent: LoadedAgent, checkpoint: Checkpoint, buffer: str) -> list[Item]:
    """Return the items of one buffer, oldest first."""
    state = checkpoint.load_replay()
    if state is None or state["contents"] is None:
        raise ConfigError(
            f"{checkpoint.path} was saved without the contents of its buffers. Train with "
            "--save_replay=True (or --reproducible=True)."
        )
    contents = state["contents"]
    every = unpack_items(contents["items"], agent.blueprint.schema)
    ids = {part["name"]: [int(i) for i in part["ids"]] for part in contents["buffers"]}
    name = buffer or max(ids, key=lambda key: len(ids[key]))
    if not ids.get(name):
        held = ", ".join(f"{key} ({len(value)} unrolls)" for key, value in ids.items())
        raise ConfigError(f"--buffer={name}: expected one that holds unrolls, got {held}.")
    return [every[i] for i in sorted(ids[name])]  # ids are in order of insertion


def _draw(points: Points, plane: Tensor, share: Sequence[float], about: str, path: Path) -> None:
    colours = {k: v for k, v in points.colours.items() if k != "game" or len(np.unique(v)) > 1}
    figure = new_figure(3.9 * len(colours), 4.0, dpi=110)
    title(figure, about)
    (panels,) = figure.subplots(1, len(colours), squeeze=False)
    for axes, (name, values) in zip(panels, colours.items(), strict=True):
        colour_map = "tab10" if name == "game" else "viridis"
        drawn = axes.scatter(*plane.numpy().T, c=values, s=6, linewidths=0, cmap=colour_map)
        figure.colorbar(drawn, ax=axes, shrink=0.8).ax.tick_params(labelsize=7, colors=INK)
        label = f"{name}, {points.age_unit} ago" if name == "age" else name
        axes.set_title(label, loc="left", color=INK, fontsize=9)
        axes.set_xticks([])
        axes.set_yticks([])
    panels[0].set_xlabel(f"{100 * share[0]:.0f} % of the variance", fontsize=8, color=INK)
    panels[0].set_ylabel(f"{100 * share[1]:.0f} %", fontsize=8, color=INK)
    save(figure, path)
