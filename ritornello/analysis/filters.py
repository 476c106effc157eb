"""What have networks learned? Figures of their filters, and of how alike their layers are.

first_layer.png shows weights, preferred_<layer>.png the images that excite a filter most, and
cka.png how alike each layer of the agent is to each layer of other networks, by linear CKA on the
same observations: two untrained networks show what chance gives. Preferred images are found by
activation maximisation (Erhan et al., "Visualizing Higher-Layer Features of a Deep Network", 2009):
gradient ascent on the image itself, from noise. The image is shifted a little at each step and
blurred now and then, or noise of high frequency would win. Both end half way: a filter with a
stride prefers a pattern that repeats with it, which other shifts would wash out.

Linear CKA is the centred kernel alignment of Kornblith et al., "Similarity of Neural Network
Representations Revisited" (2019), https://arxiv.org/abs/1905.00414. The order of units, rotations
and scale do not count, and the layers may differ in width. 1: the same up to a rotation.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor, nn

from ritornello.agent.models.base import ActorCritic
from ritornello.agent.models.pixels import PIXEL_MAX
from ritornello.analysis.figure import heat_map
from ritornello.analysis.options import agent_parser, places_in, say_written
from ritornello.analysis.playing import LoadedAgent, load_agent, play_many
from ritornello.core.atomic_file import writable_folder
from ritornello.core.errors import ConfigError
from ritornello.metrics.charts import INK, evenly, figure_text, new_figure, save

EXAMPLES = """  python -m ritornello.analysis filters --load_model_url=models/pong
  python -m ritornello.analysis filters --load_model_url=<run> --with=<other>,<third>

Without --with, the agent is compared with a network that has not learned. How to read the figures:
docs/analysis.md.
"""
BASELINE, UNTRAINED = "two random networks", "a random network"
FEATURES = "features"  # name of what the torso hands on
OBSERVATIONS = 256  # on which activations are compared
ENVS = 8  # that play for the observations, or as many as there are games
STRIDE = 16  # of their steps one is kept: neighbours show nearly the same
MAX_STEPS = 10_000  # of each of them, where few stacks are whole
MAX_LAYERS = 4  # whose preferred images are drawn, evenly spread, the last among them
MAX_FILTERS = 16  # of a layer
STEPS = 60  # of ascent to a preferred image
STEP = 0.08  # of the range of pixels, per step of ascent
JITTER = 1  # pixels that the image is shifted by at most, each step of the first half
BLUR_EVERY = 4  # steps of the first half
BLUR = (0.25, 0.5, 0.25)  # along both axes
WIDTH = 6.5  # inches of a figure of filters


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    parser = agent_parser("filters", __doc__, EXAMPLES)
    about = "other run folders, checkpoint files or model folders to compare it with"
    parser.add_argument("--with", dest="others", default="", metavar="PLACE,...", help=about)
    options: argparse.Namespace = parser.parse_args(arguments)
    agent = load_agent(options.load_model_url)
    others = {place: load_agent(place) for place in places_in(options.others)}
    own_shape = tuple(agent.model.obs_shape)
    for place, other in others.items():
        if tuple(other.model.obs_shape) != own_shape:
            raise ConfigError(
                f"{place} sees {tuple(other.model.obs_shape)}, not {own_shape}: the networks "
                "cannot be shown the same observations."
            )
    folder = writable_folder(options.output or agent.folder / "filters")
    drawn = draw_filters(agent, folder)
    obs, games = played_observations(agent, OBSERVATIONS, options.seed)
    first, second = (_answers(agent, random_model(agent, seed), obs, games) for seed in (1, 2))
    own = _answers(agent, agent.model, obs, games)
    maps = {BASELINE: cka_map(first, second)}
    for place, other in others.items():
        maps[place] = cka_map(own, _answers(other, other.model, obs, games))
    if not others:
        maps[UNTRAINED] = cka_map(own, first)
    _draw_maps(maps, agent.label, folder / "cka.png")
    say_written(folder, "cka.png", *drawn)
    return 0


def linear_cka(one: Tensor, two: Tensor) -> float:
    """Return the linear CKA of the activations of two layers, [N, ...] each.

    ||Y^T X||_F^2 / (||X^T X||_F ||Y^T Y||_F) with centred columns, computed from the Gram matrices
    (Kornblith et al. 2019, section 3). NaN if a layer has the same output for all observations.
    """
    grams = []
    for layer in (one, two):
        rows = layer.flatten(1).float()
        rows = rows - rows.mean(0)
        grams.append((rows @ rows.T).double())
    x, y = grams
    return float((x * y).sum() / (x.norm() * y.norm()))


def cka_map(one: Mapping[str, Tensor], two: Mapping[str, Tensor]) -> dict[tuple[str, str], float]:
    """Return the CKA of each layer of one network with each of another, see `activations`."""
    return {(a, b): linear_cka(one[a], two[b]) for a in one for b in two}


@torch.no_grad()
def activations(model: ActorCritic, obs: Tensor, games: Tensor) -> dict[str, Tensor]:
    """Run a model on observations and return the output of each layer of its torso.

    Args:
      model: any model; its core, such as an LSTM, comes after the torso and is not run.
      obs: [N, *obs_shape]; all are shown at once, so that some hundreds are enough.
      games: [N] int64, number of the game of each observation, as the model knows it.

    Returns:
      layer -> [N, ...]: each convolution, before its nonlinearity, and FEATURES.
    """
    layers = convolutions(model)
    with ExitStack() as watched:
        caught = {name: watched.enter_context(outputs_of(layer)) for name, layer in layers.items()}
        features = model.torso(obs, games)
    return {**{name: output for name, (output,) in caught.items()}, FEATURES: features}


@contextmanager
def outputs_of(layer: nn.Module) -> Iterator[list[Tensor]]:
    """Yield a list to which each output of a layer is added within the block."""
    caught: list[Tensor] = []
    handle = layer.register_forward_hook(lambda _, __, output: caught.append(output.clone()))
    try:
        yield caught
    finally:
        handle.remove()


def _answers(
    agent: LoadedAgent, model: ActorCritic, obs: Tensor, games: Sequence[str]
) -> dict[str, Tensor]:
    """Return the activations of a model that knows the games which `agent` knows."""
    # A game that the agent does not know is told as its first one, as in a test.
    tasks = [agent.games.index(game) if game in agent.games else 0 for game in games]
    return activations(model, obs, torch.tensor(tasks))


def played_observations(
    agent: LoadedAgent, count: int, seed: int = 0
) -> tuple[Tensor, Sequence[str]]:
    """Let an agent play; return N observations [N, *obs_shape], and the game of each.

    Stacks that reach over a reset are left out: a few pictures that are partly black are so unlike
    all others that they alone would decide how alike two layers are.

    Raises:
      ConfigError: if games are over before there are two whole stacks.
    """
    envs = max(ENVS, len(agent.games))
    frames = torch.zeros(envs, dtype=torch.int64)  # of this game so far
    seen: list[Tensor] = []
    games: list[str] = []
    for number, step in enumerate(play_many(agent, envs, seed=seed, steps=MAX_STEPS)):
        frames = torch.where(step.inputs.first, 1, frames + 1)
        if number % STRIDE == 0:
            whole = frames >= agent.env_spec.frames_stacked
            assert step.inputs.task_id is not None
            seen.append(step.inputs.obs[whole])
            games += [agent.games[task] for task in step.inputs.task_id[whole].tolist()]
        if len(games) >= count:
            break
    if len(games) < 2:
        raise ConfigError(
            f"games of {agent.url} are over before a stack of {agent.env_spec.frames_stacked} "
            "frames is whole: there are no observations on which layers could be compared."
        )
    return torch.cat(seen)[:count], games[:count]


def random_model(agent: LoadedAgent, seed: int) -> ActorCritic:
    """Return an untrained network of the agent's kind that sees pixels as the agent does."""
    model = agent.blueprint.model(seed).eval()
    learned = agent.model.state_dict().items()
    seen = {k: v for k, v in learned if ".statistics." in k or k.startswith("game_pixels.")}
    model.load_state_dict(seen, strict=False)
    return model


def convolutions(model: ActorCritic) -> dict[str, nn.Conv2d]:
    """Return the convolutions of a model's torso by name."""
    return {n: m for n, m in model.torso_net.named_modules() if isinstance(m, nn.Conv2d)}


def preferred_images(model: ActorCritic, conv: nn.Conv2d, steps: int) -> Tensor:
    """Climb from noise to images that excite the first MAX_FILTERS filters of a layer most.

    The objective is a filter's mean activation over the image, before the nonlinearity; all steps
    have the same size, whatever the gradient is. The model's weights must not require gradients.

    Returns:
      [filters, *obs_shape] float32, in units of pixels, 0 to 255.
    """
    generator = torch.Generator().manual_seed(0)
    count = min(MAX_FILTERS, conv.out_channels)
    low, high = _bounds(model)
    span = (high - low).mean()
    middle = (low + high) / 2
    noise = torch.randn(count, *model.obs_shape, generator=generator)
    images = (middle + 0.1 * span * noise).clamp(low, high)
    own = torch.arange(count)
    for step in range(steps):
        is_early = step < steps // 2
        jitter = JITTER * is_early
        shift = torch.randint(-jitter, jitter + 1, (2,), generator=generator).tolist()
        shifted = images.roll(shift, (-2, -1)).requires_grad_()
        with outputs_of(conv) as caught:
            model.torso_net(shifted)
        (gradient,) = torch.autograd.grad(caught[0][own, own].mean((-2, -1)).sum(), shifted)
        size = gradient.square().mean((1, 2, 3), keepdim=True).sqrt()
        with torch.no_grad():
            # A filter that is dead everywhere has no way up: its image stays as it is.
            images = shifted + STEP * span * gradient / size.clamp(min=1e-12)
            images = images.roll([-s for s in shift], (-2, -1))
            if is_early and step % BLUR_EVERY == 0:
                for axis in (-2, -1):
                    blurred = ndimage.convolve1d(images.numpy(), BLUR, axis, mode="nearest")
                    images = torch.from_numpy(blurred)
            images = images.clamp(low, high)
    return (images.detach() - low) / (high - low) * PIXEL_MAX


def _bounds(model: ActorCritic) -> tuple[Tensor, Tensor]:
    """Return black and white of game 0 as the first layer gets them, each [*obs_shape] or []."""
    statistics = model.pixel_statistics()
    if statistics is None:
        return torch.zeros(()), torch.ones(())
    scale, mean = statistics.scale(), statistics.mean
    return -mean * scale, (PIXEL_MAX - mean) * scale


def draw_filters(agent: LoadedAgent, folder: Path) -> list[str]:
    """Draw first_layer.png and preferred_<layer>.png for some layers; return the names.

    There are no files if the agent sees no image, or one beside other things.
    """
    convs = convolutions(agent.model) if agent.env_spec.is_image else {}
    names = list(convs)
    if not names:
        return []
    weight = convs[names[0]].weight.detach()  # [out, in, kh, kw]
    weight = weight / weight.abs().amax((1, 2, 3), keepdim=True)  # each filter by its own scale
    tiles = _by_frame(weight, agent) / 2 + 0.5  # grey is 0
    title = "first convolution: a line per filter (two side by side), oldest frame left"
    drawn = [_save_tiles(tiles, title, folder / "first_layer.png")]
    for index in evenly(len(names), MAX_LAYERS):
        name = names[index]
        images = preferred_images(agent.model, convs[name], STEPS)
        title = f"what excites {name}: a line per filter (two side by side)"
        path = folder / f"preferred_{name}.png"
        drawn.append(_save_tiles(_by_frame(images / PIXEL_MAX, agent), title, path))
    return drawn


def _by_frame(images: Tensor, agent: LoadedAgent) -> np.ndarray:
    """Take stacks apart: [N, S*C, H, W] -> [N, S, H, W] grey or [N, S, H, W, 3]."""
    channels = agent.env_spec.frame_shape[0]
    frames = images.reshape(len(images), -1, channels, *images.shape[2:]).numpy()
    colour = frames.transpose(0, 1, 3, 4, 2)
    return np.asarray(colour if channels == 3 else colour.mean(-1))


def _save_tiles(tiles: np.ndarray, title: str, path: Path) -> str:
    """Draw [N, S, H, W(, 3)] in 0..1: a line of S tiles per filter, two lines side by side."""
    gap = max(1, tiles.shape[2] // 12)
    odd = len(tiles) % 2
    around = [(0, odd), (0, 0), (0, gap), (0, gap), *[(0, 0)] * (tiles.ndim - 4)]
    padded = np.pad(tiles, around, constant_values=1.0)
    lines = np.concatenate([*padded.swapaxes(0, 1)], axis=2)  # [N, H, S W(, 3)]
    halves = (np.concatenate([*half]) for half in np.split(lines, 2))
    canvas = np.concatenate([*halves], axis=1)
    figure = new_figure(WIDTH, WIDTH * canvas.shape[0] / canvas.shape[1] + 0.4, dpi=110)
    axes = figure.add_subplot()
    axes.imshow(canvas.clip(0, 1), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_axis_off()
    axes.set_title(title, loc="left", color=INK, fontsize=8)
    save(figure, path)
    return path.name


def _draw_maps(maps: Mapping[str, Mapping[tuple[str, str], float]], label: str, path: Path) -> None:
    """Draw one map per pair of networks, each layer against each."""
    figure = new_figure(4.6 * len(maps) + 0.6, 4.6, dpi=110)
    for number, (name, values) in enumerate(maps.items(), start=1):
        axes = figure.add_subplot(1, len(maps), number)
        rows, columns = (list(dict.fromkeys(each)) for each in zip(*values, strict=True))
        table = np.array([[values[row, column] for column in columns] for row in rows])
        heat_map(axes, table, figure_text(name[-48:]), rows, (0, 1))
        axes.set_xticks(range(len(columns)), columns, rotation=90)
    figure.supylabel(figure_text(label[-48:]), fontsize=9, color=INK)
    save(figure, path)
