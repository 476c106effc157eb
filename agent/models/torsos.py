"""The torsos of the networks that are shipped: observations in, features out.

Every torso takes `[N, C, H, W]` uint8 (or float32) images of any size, or `[N, D]` float32
vectors for `mlp`, and returns `[N, F]`. Layer sizes after the convolutions are measured, not
assumed, so any frame size and stack depth works if the convolutions fit into it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ritornello.agent.models.networks import Network, NetworkRequest
from ritornello.agent.models.pixels import PIXEL_MAX, Normalise, PixelStatistics
from ritornello.agent.models.precision import compute_dtype
from ritornello.core.errors import ConfigError
from ritornello.flags.parts import NETWORKS


class PixelConv2d(nn.Conv2d):
    """A first convolution that takes uint8 pixels, and normalises them or scales them to [0, 1].

    The weights are scaled instead of the pixels: the product is the same, the big tensor is read
    once, and integers up to 256 stay exact in bfloat16 while x / 255 would be rounded.
    """

    def __init__(
        self,
        image_shape: tuple[int, ...],
        channels: int,
        kernel: int,
        stride: int = 1,
        padding: int = 0,
        *,
        normalise: Normalise = False,
    ) -> None:
        """Build the layer.

        Args:
          image_shape: (C, H, W) of one image.
          channels: number of output channels.
          kernel: width and height of the kernel.
          stride: stride in both directions.
          padding: padding on all sides; it has the mean colour if pixels are normalised.
          normalise: subtract the mean image and divide by the deviation; see `Normalise` in
            pixels.py.
        """
        super().__init__(image_shape[0], channels, kernel, stride, padding)
        self.statistics = PixelStatistics(image_shape, normalise) if normalise else None

    def forward(self, input: Tensor) -> Tensor:
        """Convolve `[N, C, H, W]`; float input is taken as already scaled."""
        # Convert straight to the layout the convolution wants; with weights that are contiguous
        # either way (one input channel) the usual one.
        layout = torch.contiguous_format if self.weight.is_contiguous() else torch.channels_last
        dtype = compute_dtype(self.weight)
        if input.dtype != torch.uint8:
            converted, weight = input.to(dtype, memory_format=layout), self.weight
        elif self.statistics is None:
            converted = input.to(dtype, memory_format=layout)
            weight = self.weight * (1 / PIXEL_MAX)
        elif self.statistics.is_of_each:  # no weight could stand for it
            converted, weight = self.statistics.normalised(input, dtype, layout), self.weight
        else:
            converted, scale = self.statistics.centred(input, dtype, layout)
            weight = self.weight * scale
        return self._conv_forward(converted, weight, self.bias)


def map_shape(name: str, convs: nn.Module, image_shape: tuple[int, ...]) -> torch.Size:
    """Return (channels, height, width) of the output of the convolutions of model `name`.

    Raises:
      ConfigError: if the convolutions do not fit into the image.
    """
    try:
        with torch.no_grad():
            return convs(torch.zeros(1, *image_shape)).shape[1:]
    except RuntimeError as error:
        raise ConfigError(
            f"model {name!r} needs larger frames: its convolutions do not fit into "
            f"{image_shape[1]}x{image_shape[2]} pixels. Use larger ones (Atari: "
            "--frame_scale_resolution), or --model=resnet, which fits any size."
        ) from error


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


# (channels, kernel, stride, padding) -> the first convolution, which sees the pixels
FirstConv = Callable[..., PixelConv2d]


def _plain_convs(*layers: tuple[int, int, int]) -> Callable[[FirstConv], list[nn.Module]]:
    """Return a function that builds convolutions (channels, kernel, stride), each with a ReLU."""

    def build(first: FirstConv) -> list[nn.Module]:
        convs: list[nn.Module] = [first(*layers[0])]
        convs += [nn.Conv2d(before[0], *layer) for before, layer in pairwise(layers)]
        return [module for conv in convs for module in (conv, nn.ReLU(inplace=True))]

    return build


def _resnet_convs(first: FirstConv) -> list[nn.Module]:
    modules: list[nn.Module] = []
    for before, width in ((0, 16), (16, 32), (32, 32)):
        conv = nn.Conv2d(before, width, 3, 1, 1) if before else first(width, 3, 1, 1)
        modules += [conv, nn.MaxPool2d(3, stride=2, padding=1)]
        modules += [ResidualBlock(width), ResidualBlock(width)]
    return [*modules, nn.ReLU()]


def _resnet_light_convs(first: FirstConv) -> list[nn.Module]:
    return [
        first(32, 8, 4),
        ResidualBlock(32),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        ResidualBlock(64),
        nn.ReLU(),
    ]


def _resnet_small_convs(first: FirstConv) -> list[nn.Module]:
    return [
        first(16, 8, 4),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, 2),
        ResidualBlock(32),
        ResidualBlock(32),
        nn.ReLU(),
    ]


# name -> (its convolutions, default F)
IMAGE_TORSOS: dict[str, tuple[Callable[[FirstConv], list[nn.Module]], int]] = {
    # Mnih et al. 2015, methods
    "nature": (_plain_convs((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512),
    # Espeholt et al. 2018, figure 3 left
    "impala_shallow": (_plain_convs((16, 8, 4), (32, 4, 2)), 256),
    "resnet": (_resnet_convs, 256),  # Espeholt et al. 2018, figure 3 right: 15 convolutions
    # The blocks of `resnet` behind the first layer of `nature`: two fifths of its
    # multiplications, 22 against 54 million for a frame stack of Atari.
    "resnet_light": (_resnet_light_convs, 256),
    # `impala_shallow` with two of these blocks on its last maps, of 9x9 for Atari, where they are
    # cheap: twice its multiplications, 6 million for a frame stack, and six convolutions deep.
    "resnet_small": (_resnet_small_convs, 256),
    # of the older elite-replay platform: wide and shallow
    "elite": (_plain_convs((64, 3, 3), (64, 3, 2), (128, 3, 2)), 512),
}


class ImageTorso(nn.Module):
    """Convolutions, then one linear layer with ReLU to the features."""

    def __init__(self, name: str, request: NetworkRequest) -> None:
        """Build torso `name` of IMAGE_TORSOS.

        Layer normalisation (Ba et al. 2016) follows the request's `layer_norm`: "features"
        normalises the output of the linear layer before its ReLU, "all" those of the convolutions
        as well.

        Raises:
          ConfigError: if the convolutions do not fit into the frame, or cannot be normalised.
        """
        super().__init__()
        build, default_count = IMAGE_TORSOS[name]
        self.feature_count = request.feature_count or default_count
        shape = request.obs_shape
        modules = build(partial(PixelConv2d, shape, normalise=request.normalise_pixels))
        if request.layer_norm == "all":
            modules = _normalised_convs(name, modules)
        self.convs = nn.Sequential(*modules)
        self.linear = nn.Linear(map_shape(name, self.convs, shape).numel(), self.feature_count)
        has_norm = request.layer_norm != "none"
        self.norm = nn.LayerNorm(self.feature_count) if has_norm else nn.Identity()

    def forward(self, obs: Tensor) -> Tensor:
        """Map `[N, C, H, W]` to features `[N, F]`."""
        maps = self.convs(obs)
        if maps.requires_grad and maps.is_contiguous(memory_format=torch.channels_last):
            # The gradient of flat features comes in NCHW order. The backward pass of a ReLU takes
            # ten times as long or more where its two inputs are in different orders.
            maps.register_hook(_in_nhwc)
        return F.relu(self.norm(self.linear(maps.flatten(1))))


def _normalised_convs(name: str, modules: list[nn.Module]) -> list[nn.Module]:
    """Return the layers of torso `name` with layer normalisation after each convolution.

    One group of all channels is layer normalisation over a map, with a gain for each channel.
    """
    if any(isinstance(module, ResidualBlock) for module in modules):
        raise ConfigError(
            f"layer_norm is all, but the convolutions of model {name!r} are in residual "
            "blocks, which are not normalised: expected features or none."
        )
    found: list[nn.Module] = []
    for module in modules:
        found.append(module)
        if isinstance(module, nn.Conv2d):
            found.append(nn.GroupNorm(1, module.out_channels))
    return found


def _in_nhwc(gradient: Tensor) -> Tensor:
    return gradient.contiguous(memory_format=torch.channels_last)


class MlpTorso(nn.Module):
    """Two fully connected tanh layers, for vector observations (images are flattened)."""

    def __init__(self, request: NetworkRequest) -> None:
        """Build the torso; both layers are F wide (default 256).

        With `layer_norm` "features" the second layer is normalised before its tanh, with "all"
        both.
        """
        super().__init__()
        self.feature_count = width = request.feature_count or 256
        self.linear1 = nn.Linear(int(torch.Size(request.obs_shape).numel()), width)
        self.linear2 = nn.Linear(width, width)
        norm = request.layer_norm
        self.norm1 = nn.LayerNorm(width) if norm == "all" else nn.Identity()
        self.norm2 = nn.Identity() if norm == "none" else nn.LayerNorm(width)

    def forward(self, obs: Tensor) -> Tensor:
        """Map `[N, *obs_shape]` to features `[N, F]`."""
        x = obs.flatten(1).to(compute_dtype(self.linear1.weight))
        if obs.dtype == torch.uint8:
            x = x / PIXEL_MAX
        x = torch.tanh(self.norm1(self.linear1(x)))
        return torch.tanh(self.norm2(self.linear2(x)))


class FloatInput(nn.Module):
    """Converts observations to the dtype of the weights of a user's network.

    Pixels are normalised, or scaled to [0, 1], so that a network need not know what its weights and
    its inputs are stored as.
    """

    def __init__(self, net: nn.Module, request: NetworkRequest) -> None:
        """Put `net` behind the conversion."""
        super().__init__()
        kind = request.normalise_pixels
        self.statistics = PixelStatistics(request.obs_shape, kind) if kind else None
        self.net = net

    def forward(self, obs: Tensor) -> Tensor:
        """Map `[N, *obs_shape]` of any dtype to features `[N, F]`."""
        dtype = next((compute_dtype(weight) for weight in self.net.parameters()), torch.float32)
        if obs.dtype != torch.uint8:
            seen = obs.to(dtype, copy=True)  # a network may write into it, a batch is used again
        elif self.statistics is None:
            seen = obs.to(dtype) / PIXEL_MAX
        else:
            seen = self.statistics.shown(obs, dtype, torch.contiguous_format)
        features: Tensor = self.net(seen)
        return features


for _name in IMAGE_TORSOS:
    _network = Network(
        partial(ImageTorso, _name),
        "images",
        takes_raw=True,
        takes_layer_norm=True,
        channels_last=_name.startswith("resnet"),
    )
    NETWORKS.add(_name, _network, __name__)
NETWORKS.add("mlp", Network(MlpTorso, "vectors", takes_raw=True, takes_layer_norm=True), __name__)
