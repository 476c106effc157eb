"""The torsos that `--model` chooses from: observations in, features out.

Every torso takes `[N, C, H, W]` uint8 (or float32) images of any size, or `[N, D]` float32
vectors for `mlp`, and returns `[N, F]`. Layer sizes after the convolutions are measured, not
assumed, so any frame size and stack depth works if the convolutions fit into it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.errors import ConfigError

PIXEL_MAX = 255.0


def _compute_dtype(parameter: Tensor) -> torch.dtype:
    """Return the dtype this layer will run in: autocast's if it is on, else the parameter's."""
    device = parameter.device.type
    if torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return parameter.dtype


class PixelConv2d(nn.Conv2d):
    """A first convolution that takes uint8 pixels and sees them scaled to [0, 1].

    The weights are divided by 255 instead of the pixels: the product is the same, the big tensor
    is read once, and integers up to 256 stay exact in bfloat16 while x / 255 would be rounded.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Convolve `[N, C, H, W]`; float input is taken as already scaled."""
        # Convert straight to the layout the convolution wants; with weights that are contiguous
        # either way (one input channel) the usual one.
        layout = torch.contiguous_format if self.weight.is_contiguous() else torch.channels_last
        is_pixels = input.dtype == torch.uint8
        weight = self.weight * (1 / PIXEL_MAX) if is_pixels else self.weight
        converted = input.to(_compute_dtype(self.weight), memory_format=layout)
        return self._conv_forward(converted, weight, self.bias)


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with ReLU before each, added to the input."""

    def __init__(self, channels: int) -> None:
        """Build the block for `channels` in and out."""
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[N, C, H, W]` to the same shape."""
        return x + self.conv2(F.relu(self.conv1(F.relu(x)), inplace=True))


def _relu_convs(channels_in: int, layers: list[tuple[int, int, int]]) -> nn.Sequential:
    """Return convolutions (channels, kernel, stride), each followed by ReLU."""
    modules: list[nn.Module] = []
    for index, (channels, kernel, stride) in enumerate(layers):
        conv = PixelConv2d if index == 0 else nn.Conv2d
        modules += [conv(channels_in, channels, kernel, stride), nn.ReLU(inplace=True)]
        channels_in = channels
    return nn.Sequential(*modules)


def _nature_convs(channels: int) -> nn.Sequential:
    return _relu_convs(channels, [(32, 8, 4), (64, 4, 2), (64, 3, 1)])


def _impala_shallow_convs(channels: int) -> nn.Sequential:
    return _relu_convs(channels, [(16, 8, 4), (32, 4, 2)])


def _elite_convs(channels: int) -> nn.Sequential:
    return _relu_convs(channels, [(64, 3, 3), (64, 3, 2), (128, 3, 2)])


def _resnet_convs(channels: int) -> nn.Sequential:
    modules: list[nn.Module] = []
    for width in (16, 32, 32):
        conv = PixelConv2d if not modules else nn.Conv2d
        modules += [conv(channels, width, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1)]
        modules += [ResidualBlock(width), ResidualBlock(width)]
        channels = width
    return nn.Sequential(*modules, nn.ReLU())


# name -> (convolutions for that many input channels, default F)
IMAGE_TORSOS: dict[str, tuple[Callable[[int], nn.Sequential], int]] = {
    "nature": (_nature_convs, 512),  # Mnih et al. 2015, methods
    "impala_shallow": (_impala_shallow_convs, 256),  # Espeholt et al. 2018, figure 3 left
    "resnet": (_resnet_convs, 256),  # Espeholt et al. 2018, figure 3 right: 15 convolutions
    "elite": (_elite_convs, 512),  # of the older elite-replay platform: wide and shallow
}


class ImageTorso(nn.Module):
    """Convolutions, then one linear layer with ReLU to the features."""

    def __init__(self, name: str, obs_shape: tuple[int, ...], feature_count: int = 0) -> None:
        """Build torso `name` of IMAGE_TORSOS for images `obs_shape` = (C, H, W); F 0 = default.

        Raises:
          ConfigError: if the convolutions do not fit into the frame.
        """
        super().__init__()
        build, default_count = IMAGE_TORSOS[name]
        self.feature_count = feature_count or default_count
        self.convs = build(obs_shape[0])
        try:
            with torch.no_grad():
                flat_count = self.convs(torch.zeros(1, *obs_shape)).numel()
        except RuntimeError as error:
            raise ConfigError(
                f"model {name!r} needs larger frames: its convolutions do not fit into "
                f"{obs_shape[1]}x{obs_shape[2]} pixels. Use larger frames, or --model=resnet, "
                "which fits any size."
            ) from error
        self.linear = nn.Linear(flat_count, self.feature_count)

    def forward(self, obs: Tensor) -> Tensor:
        """Map `[N, C, H, W]` to features `[N, F]`."""
        return F.relu(self.linear(self.convs(obs).flatten(1)))


class MlpTorso(nn.Module):
    """Two fully connected tanh layers, for vector observations (images are flattened)."""

    def __init__(self, obs_shape: tuple[int, ...], feature_count: int = 0) -> None:
        """Build the torso; both layers are F wide (default 256)."""
        super().__init__()
        self.feature_count = feature_count or 256
        self.linear1 = nn.Linear(int(torch.Size(obs_shape).numel()), self.feature_count)
        self.linear2 = nn.Linear(self.feature_count, self.feature_count)

    def forward(self, obs: Tensor) -> Tensor:
        """Map `[N, *obs_shape]` to features `[N, F]`."""
        x = obs.flatten(1).to(_compute_dtype(self.linear1.weight))
        if obs.dtype == torch.uint8:
            x = x / PIXEL_MAX
        return torch.tanh(self.linear2(torch.tanh(self.linear1(x))))
