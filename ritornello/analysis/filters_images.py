"""Pictures of filters: the weights of the first layer, and the images that excite a filter most.

The second is activation maximisation (Erhan et al., "Visualizing Higher-Layer Features of a Deep
Network", 2009): gradient ascent on the image itself, from noise. Without a hand on it the result
is noise of high frequency, so the image is shifted a little at each step and blurred now and then,
as usual, and kept within what pixels can be. Both end half way: a filter with a stride prefers a
pattern that repeats with the stride, and shifts that are no multiple of it would wash that out.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from rich.progress import Progress
from scipy import ndimage
from torch import Tensor, nn

from ritornello.agent.models.base import ActorCritic
from ritornello.agent.models.pixels import PIXEL_MAX
from ritornello.analysis.figure import save
from ritornello.analysis.layers import convolutions
from ritornello.analysis.playing import LoadedAgent
from ritornello.metrics.charts import INK, new_figure

MAX_LAYERS = 4  # that are drawn, evenly spread, the last among them
MAX_FILTERS = 16  # of a layer
STEPS = 60  # of ascent to a preferred image
STEP = 0.08  # of the range of pixels, per step of ascent
JITTER = 1  # pixels that the image is shifted by at most, each step of the first half
BLUR_EVERY = 4  # steps of the first half
WIDTH = 6.5  # inches of a figure


def draw_filters(agent: LoadedAgent, folder: Path, progress: Progress) -> list[str]:
    """Draw first_layer.png, its weights, and preferred_<layer>.png for some layers.

    Args:
      agent: the agent whose filters are shown.
      folder: folder of the files.
      progress: shows how far it is.

    Returns:
      The names of the files drawn: none if the network has no convolution.
    """
    convs = convolutions(agent.model)
    names = list(convs)
    if not names:
        return []
    weight = convs[names[0]].weight.detach()  # [out, in, kh, kw]
    weight = weight / weight.abs().amax((1, 2, 3), keepdim=True)  # each filter by its own scale
    tiles = _by_frame(weight, agent) / 2 + 0.5  # grey is 0
    title = "first convolution: a line per filter (two side by side), oldest frame left"
    drawn = [_save_tiles(tiles, title, folder / "first_layer.png")]
    picked = np.unique(np.linspace(0, len(names) - 1, MAX_LAYERS).round().astype(int))
    for index in progress.track(picked, description="images that filters prefer"):
        name = names[index]
        images = preferred_images(agent.model, convs[name], STEPS)
        tiles = _by_frame(images / PIXEL_MAX, agent)
        title = f"what excites {name}: a line per filter (two side by side)"
        drawn.append(_save_tiles(tiles, title, folder / f"preferred_{name}.png"))
    return drawn


def preferred_images(
    model: ActorCritic, conv: nn.Conv2d, steps: int, count: int = MAX_FILTERS, seed: int = 0
) -> Tensor:
    """Climb from noise to images that excite the filters of a layer most.

    What is climbed is a filter's mean activation over the image, before the nonlinearity.

    Args:
      model: the model; its weights must not ask for gradients.
      conv: one of the model's convolutions.
      steps: number of steps of ascent, all of the same size whatever the gradient is.
      count: number of filters, the first of the layer.
      seed: seed of the noise.

    Returns:
      [filters, *obs_shape] float32, in units of pixels, 0 to 255.
    """
    generator = torch.Generator().manual_seed(seed)
    count = min(count, conv.out_channels)
    low, high = _bounds(model)
    span = (high - low).mean()
    middle = (low + high) / 2
    noise = torch.randn(count, *model.obs_shape, generator=generator)
    images = (middle + 0.1 * span * noise).clamp(low, high)
    caught: list[Tensor] = []
    handle = conv.register_forward_hook(lambda _, __, output: caught.append(output.clone()))
    own = torch.arange(count)
    try:
        for step in range(steps):
            is_early = step < steps // 2
            jitter = JITTER * is_early
            shift = torch.randint(-jitter, jitter + 1, (2,), generator=generator).tolist()
            shifted = images.roll(shift, (-2, -1)).requires_grad_()
            caught.clear()
            model.torso_net(shifted)
            (gradient,) = torch.autograd.grad(caught[0][own, own].mean((-2, -1)).sum(), shifted)
            size = gradient.square().mean((1, 2, 3), keepdim=True).sqrt()
            with torch.no_grad():
                # A filter that is dead everywhere has no way up: its image stays as it is.
                images = shifted + STEP * span * gradient / size.clamp(min=1e-12)
                images = images.roll([-s for s in shift], (-2, -1))
                if is_early and step % BLUR_EVERY == 0:
                    images = _blurred(images)
                images = images.clamp(low, high)
    finally:
        handle.remove()
    return (images.detach() - low) / (high - low) * PIXEL_MAX


def _bounds(model: ActorCritic) -> tuple[Tensor, Tensor]:
    """Return what black and white of game 0 are to the first layer, each [*obs_shape] or []."""
    statistics = model.pixel_statistics()
    if statistics is None:
        return torch.zeros(()), torch.ones(())
    scale, mean = statistics.scale(), statistics.mean
    return -mean * scale, (PIXEL_MAX - mean) * scale


def _blurred(images: Tensor) -> Tensor:
    """Blur `[N, C, H, W]` with (1/4, 1/2, 1/4) along both axes."""
    for dimension in (-2, -1):
        images = ndimage.convolve1d(images.numpy(), (0.25, 0.5, 0.25), dimension, mode="nearest")
        images = torch.from_numpy(images)
    return images


def _by_frame(images: Tensor, agent: LoadedAgent) -> np.ndarray:
    """Take stacks apart: [N, S*C, H, W] -> [N, S, H, W] grey or [N, S, H, W, 3]."""
    channels = agent.env_spec.frame_shape[0]
    frames = images.reshape(len(images), -1, channels, *images.shape[2:]).numpy()
    colour = frames.transpose(0, 1, 3, 4, 2)
    return np.asarray(colour if channels == 3 else colour.mean(-1))


def _save_tiles(tiles: np.ndarray, title: str, path: Path) -> str:
    """Draw [N, S, H, W(, 3)] in 0..1: a line of S tiles per filter, two lines side by side."""
    count, frames, height, width = tiles.shape[:4]
    gap = max(1, height // 12)
    rows = math.ceil(count / 2)
    line_width = frames * (width + gap)
    canvas = np.ones((rows * (height + gap), 2 * line_width + 2 * gap, *tiles.shape[4:]))
    for number, line in enumerate(tiles):
        top = number % rows * (height + gap)
        left = number // rows * (line_width + 2 * gap)
        for frame, tile in enumerate(line):
            x = left + frame * (width + gap)
            canvas[top : top + height, x : x + width] = tile
    figure = new_figure(WIDTH, WIDTH * canvas.shape[0] / canvas.shape[1] + 0.4, dpi=110)
    axes = figure.add_subplot()
    axes.imshow(canvas.clip(0, 1), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_axis_off()
    axes.set_title(title, loc="left", color=INK, fontsize=8)
    save(figure, path)
    return path.name
