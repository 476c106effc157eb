"""How much a network's answer changes when a small part of what it sees is blurred.

Perturbation saliency of Greydanus et al., "Visualizing and Understanding Atari Agents" (2018),
https://arxiv.org/abs/1711.00138. Equations 1 to 3: for a mask M_ij with its peak of 1 at (i, j),

    I'(i, j) = I (1 - M_ij) + blur(I) M_ij
    S_policy(i, j) = 1/2 |logits(I) - logits(I'(i, j))|^2     S_value(i, j) = 1/2 (V(I) - V(I'))^2

Written down like that, each point of the grid costs a picture and a forward pass, hundreds of them
per frame. Here the first convolution is never computed on a perturbed picture. It is linear, so

    conv(I') = conv(I) + conv((blur(I) - I) M_ij)

and the masks are sums of products of a column and a row, M_ij(y, x) = sum_r a_ri(y) b_rj(x), so the
last term takes two small matrix products for all points of the grid together (`_FirstLayer`). The
rest of the network follows in a few large batches. `tests/analysis` holds the slow twin.

N is the number of points, I x J the grid, [C, H, W] an observation, R the rank of the masks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy import ndimage
from torch import Tensor

from ritornello.agent.models.base import ActorCritic, Heads, Inputs
from ritornello.agent.models.pixels import PIXEL_MAX
from ritornello.agent.models.torsos import PixelConv2d
from ritornello.core.errors import ConfigError

BLUR_SIGMA = 3.0  # pixels; of what a point is blended with (sigma_A in the paper)
BLENDS = ("blur", "average")
FORMS = ("paper", "earlier")
# Of the first layer's output in one batch: fits a processor's cache, and keeps two cores busy.
BATCH_FLOATS = 1_000_000


@dataclass(frozen=True)
class Grid:
    """Where masks have their centres and how they look, for observations of one size."""

    height: int
    width: int
    radius: float  # sigma of the masks, in pixels of the observation
    density: int  # pixels from one centre to the next
    form: str = "paper"  # paper: a Gaussian; earlier: a small disc, blurred

    def __post_init__(self) -> None:
        """Raise ConfigError on values out of range."""
        if self.form not in FORMS:
            raise ConfigError(f"form is {self.form!r}, expected one of {', '.join(FORMS)}.")
        if self.radius <= 0:
            raise ConfigError(f"radius is {self.radius}, expected above 0 pixels.")
        if not 1 <= self.density <= min(self.height, self.width):
            raise ConfigError(
                f"density is {self.density}, expected 1 to {min(self.height, self.width)} pixels, "
                "the distance from one point of the grid to the next."
            )

    @property
    def rows(self) -> np.ndarray:
        """Centres from top to bottom, [I] pixels."""
        return np.arange(self.density // 2, self.height, self.density)

    @property
    def columns(self) -> np.ndarray:
        """Centres from left to right, [J] pixels."""
        return np.arange(self.density // 2, self.width, self.density)

    def factors(self) -> tuple[np.ndarray, np.ndarray]:
        """Return a [R, I, H] and b [R, J, W] float64 with M_ij(y, x) = sum_r a_ri(y) b_rj(x)."""
        down = np.arange(self.height) - self.rows[:, None]
        across = np.arange(self.width) - self.columns[:, None]
        bell_down, bell_across = self._bell(down), self._bell(across)
        if self.form == "paper":
            return bell_down[None], bell_across[None]
        # A disc of radius 1 is a pixel and its four neighbours: a column of three, and two more.
        column = self._bell(down - 1) + bell_down + self._bell(down + 1)
        sides = self._bell(across - 1) + self._bell(across + 1)
        peak = 1 + 4 * float(self._bell(np.array(1.0)))
        return np.stack([column, bell_down]) / peak, np.stack([bell_across, sides])

    def masks(self) -> np.ndarray:
        """Return all masks, [I, J, H, W] float64 in [0, 1]: for pictures and tests, it is large."""
        masks: np.ndarray = np.einsum("riy,rjx->ijyx", *self.factors())
        return masks

    def enlarged(self, maps: np.ndarray, height: int, width: int) -> np.ndarray:
        """Return maps [N, I, J] as pictures [N, height, width] float32 over the whole observation.

        Between the points of the grid values are interpolated, and where several bands meet
        smoothed; each map keeps its peak.
        """
        small = torch.from_numpy(np.ascontiguousarray(maps, np.float32))[:, None]
        covered = (len(self.rows) * self.density, len(self.columns) * self.density)
        full = F.interpolate(small, covered, mode="bilinear")[..., : self.height, : self.width]
        full = F.interpolate(full, (height, width), mode="bilinear")[:, 0]
        peak = full.amax((1, 2), keepdim=True).clamp(min=np.finfo(np.float32).tiny)
        pictures: np.ndarray = (full * small.amax((2, 3)).unsqueeze(2) / peak).numpy()
        return pictures

    def _bell(self, distance: np.ndarray) -> np.ndarray:
        """Return exp(-distance² / 2 sigma²); the paper's sigma² of 25 is a radius of 5."""
        bell: np.ndarray = np.exp(-np.square(distance) / (2 * self.radius**2))
        return bell


class Saliency(NamedTuple):
    """Maps of one frame, [I, J] float32 each."""

    policy: np.ndarray  # in squared logits
    value: np.ndarray  # in squared reward units


class Perturbation:
    """Asks one model about all points of a grid. Not thread-safe: it borrows the model's layer."""

    def __init__(
        self, model: ActorCritic, grid: Grid, newest_channels: int = 0, blend: str = "blur"
    ) -> None:
        """Prepare the masks.

        Args:
          model: on the CPU, in eval mode, its precision chosen.
          grid: for observations of the model's size.
          newest_channels: perturb only so many of the last channels of a stack; 0: all.
          blend: blur: with the blurred picture, as in the paper; average: with the mean picture
            that the model subtracts, so that what moves disappears and the background stays.

        Raises:
          ConfigError: if the model does not begin with one convolution over pixels, or knows no
            mean picture and is to be blended with it.
        """
        layers = [m for m in model.torso_net.modules() if isinstance(m, PixelConv2d)]
        if len(layers) != 1 or model.obs_shape[1:] != (grid.height, grid.width):
            raise ConfigError(
                "saliency maps need a model with convolutions over images of "
                f"{grid.height}x{grid.width} pixels, got one that sees {model.obs_shape}. "
                "--model=mlp has no such layer."
            )
        if blend == "average" and model.pixel_statistics() is None:
            raise ConfigError(
                "this model knows no average picture (it was trained with "
                "--normalise_pixels=False): expected --blend=blur."
            )
        self._to_average = blend == "average"
        self._model = model
        self._grid = grid
        self._newest = newest_channels
        # As the layer itself would answer: in bf16, what follows need not convert it.
        dtype = torch.bfloat16 if model.precision == "bf16" else torch.float32
        self._first = _FirstLayer(layers[0], grid, dtype)
        # A Gaussian blur is linear and treats rows and columns alike: two matrix products.
        self._blur_down = _blur_matrix(grid.height)
        self._blur_across = _blur_matrix(grid.width)

    @torch.inference_mode()
    def maps(self, inputs: Inputs, state: Tensor, heads: Heads) -> Saliency:
        """Return the maps of one observation.

        Args:
          inputs: one observation of uint8 pixels with its other inputs, each [1, ...].
          state: [1, state_count], before this step: it is the same for all perturbed inputs.
          heads: [1, ...], what the model says of the unperturbed inputs.
        """
        game = 0 if inputs.task_id is None else int(inputs.task_id)
        statistics = self._model.pixel_statistics(game)
        shown = inputs.obs[0]
        pixels = (shown if statistics is None else statistics.bounded(shown)).float()
        if self._to_average and statistics is not None:
            change = statistics.mean - pixels
        else:
            change = self._blur_down @ pixels @ self._blur_across.T - pixels
        if self._newest:
            change[: -self._newest] = 0
        policy, value = [], []
        # From here on in the units of the first layer.
        change *= 1 / PIXEL_MAX if statistics is None else statistics.scale()
        for output in self._first.outputs(self._model.seen(inputs.obs, inputs.task_id), change):
            perturbed = self._ask(inputs, state, output)
            policy.append(0.5 * (perturbed.params - heads.params).square().sum(-1))
            value.append(0.5 * (perturbed.value - heads.value).square())
        shape = (len(self._grid.rows), len(self._grid.columns))
        return Saliency(torch.cat(policy).view(shape).numpy(), torch.cat(value).view(shape).numpy())

    def _ask(self, inputs: Inputs, state: Tensor, output: Tensor) -> Heads:
        """Return the heads for [N, ...] outputs of the first layer, all else being equal."""

        def many(part: Tensor) -> Tensor:
            return part.expand(len(output), *part.shape[1:])

        obs, first, action, reward, task_id = inputs
        repeated = Inputs(
            many(obs),
            many(first),
            many(action),
            many(reward),
            None if task_id is None else many(task_id),
        )
        with _answering(self._first.layer, output):
            heads: Heads = self._model(repeated, many(state))[0]
        return heads


class _FirstLayer:
    """The first convolution, for a picture and for all its perturbed forms at once.

    Notation: output places p, q; kernel offsets u, v, so that the layer sees pixel
    (s p + u, s q + v) of the padded picture; output channels o.
    """

    def __init__(self, layer: PixelConv2d, grid: Grid, dtype: torch.dtype) -> None:
        self.layer = layer
        kernel, stride = int(layer.kernel_size[0]), int(layer.stride[0])
        padding = int(layer.padding[0])
        self._kernel, self._stride, self._padding = kernel, stride, padding
        down, across = (torch.from_numpy(factor).float() for factor in grid.factors())
        # The masks as each output place sees them, [R, I, p, u] and [R, J, q, v].
        seen_down = F.pad(down, (padding, padding)).unfold(-1, kernel, stride)
        seen_across = F.pad(across, (padding, padding)).unfold(-1, kernel, stride)
        self._across = seen_across.permute(2, 0, 1, 3).contiguous()  # [q, R, J, v]
        rank, rows, height, _ = seen_down.shape
        width, _, columns, _ = self._across.shape
        # [p, I, (R u) + 1]: the last one adds the output for the unperturbed picture.
        products = seen_down.permute(2, 1, 0, 3).flatten(2)
        self._down = torch.cat([products, torch.ones(height, rows, 1)], -1)
        self._shape = (columns, height, width, layer.out_channels)
        self._split = (rank, kernel, columns, width, layer.out_channels)
        floats = columns * height * width * layer.out_channels
        self._row_floats = floats  # of the output, for one row of the grid
        self._rows_per_batch = max(1, BATCH_FLOATS // floats)
        # Kept from frame to frame: fresh memory of this size costs as much as the products.
        self._part = torch.empty(height, rank * kernel + 1, floats // height)
        self._summed = torch.empty(self._rows_per_batch * floats)
        self._output = torch.empty(self._rows_per_batch * floats, dtype=dtype)

    def outputs(self, obs: Tensor, change: Tensor) -> Iterator[Tensor]:
        """Yield batches of the layer's output for all points, row by row of the grid.

        Args:
          obs: [1, C, H, W], as the layer takes it.
          change: [C, H, W] float32, what it is blended with - obs, in units of the layer's weights.

        Yields:
          [n * J, o, p, q] float32 or bfloat16, in NHWC order of memory; valid until the next one.
        """
        columns, height, width, channels = self._shape
        part = self._part  # [p, (r u) + 1, (j q o)]
        rows = part[:, :-1].view(height, *self._split)  # [p, r, u, j, q, o]
        rows.copy_(torch.einsum("qrjv,uvpqo->prujqo", self._across, self._convolved(change)))
        whole = self.layer(obs)[0].permute(1, 2, 0)  # [p, q, o]
        part[:, -1].view(height, columns, width, channels).copy_(whole[:, None])
        for start in range(0, self._down.shape[1], self._rows_per_batch):
            down = self._down[:, start : start + self._rows_per_batch]
            summed = self._summed[: down.shape[1] * self._row_floats]
            summed = summed.view(height, down.shape[1], -1)
            torch.bmm(down, part, out=summed)  # [p, i, (j q o)]
            output = self._output[: summed.numel()].view(-1, *self._shape)
            output.copy_(summed.view(height, -1, columns, width, channels).permute(1, 2, 0, 3, 4))
            yield output.flatten(0, 1).permute(0, 3, 1, 2)

    def _convolved(self, change: Tensor) -> Tensor:
        """Return [u, v, p, q, o]: what each place of the kernel adds to each place of the output.

        Channels in have the same mask, so they are summed here, once for all points.
        """
        layer, pad = self.layer, self._padding
        windows = F.pad(change, (pad, pad, pad, pad)).unfold(1, self._kernel, self._stride)
        windows = windows.unfold(2, self._kernel, self._stride)  # [C, p, q, u, v]
        kernel = layer.weight.permute(2, 3, 1, 0)  # [u, v, C, o]
        products: Tensor = windows.permute(3, 4, 1, 2, 0).flatten(2, 3) @ kernel
        return products.view(self._kernel, self._kernel, *self._shape[1:])


@contextmanager
def _answering(layer: PixelConv2d, output: Tensor) -> Iterator[None]:
    """Let `layer` answer `output` to whatever it is shown, so that the rest follows from there."""

    def answer(input: Tensor) -> Tensor:
        return output

    layer.forward = answer  # type: ignore[method-assign]
    try:
        yield
    finally:
        del layer.forward


def _blur_matrix(size: int) -> Tensor:
    """Return [size, size] float32 that blurs a line of pixels, as SciPy's Gaussian filter does."""
    identity = np.eye(size)
    return torch.from_numpy(ndimage.gaussian_filter1d(identity, BLUR_SIGMA, axis=0)).float()
