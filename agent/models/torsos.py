"""The torsos of the networks that are shipped: observations in, features out.

Every torso takes `[N, C, H, W]` uint8 (or float32) images of any size, or `[N, D]` float32
vectors for `mlp`, and returns `[N, F]`. Layer sizes after the convolutions are measured, not
assumed, so any frame size and stack depth works if the convolutions fit into it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ritornello.agent.models.networks import Network, NetworkRequest
from ritornello.agent.models.pixels import PIXEL_MAX, Normalise, PixelStatistics, statistics_of
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
        """Build the layer for images `image_shape` = (C, H, W).

        Args:
          image_shape: (C, H, W) of one input.
          channels: number of output channels.
          kernel: width and height of the kernel.
          stride: stride in both directions.
          padding: padding on all sides; it has the mean colour if pixels are normalised.
          normalise: subtract the mean image and divide by the deviation, "each": of each pixel.
        """
        super().__init__(image_shape[0], channels, kernel, stride, padding)
        self.statistics = statistics_of(image_shape, normalise)

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


@dataclass(frozen=True)
class ConvsRequest:
    """Shapes and settings for which the convolutions of a torso are built."""

    image_shape: tuple[int, ...]  # (C, H, W) of one stacked observation
    normalise_pixels: Normalise = False  # see PixelStatistics
    layer_norm: bool = False  # whether the output of each layer is normalised before its ReLU


def _relu_convs(*layers: tuple[int, int, int]) -> Callable[[ConvsRequest], nn.Sequential]:
    """Return what builds convolutions (channels, kernel, stride), each followed by ReLU."""

    def build(want: ConvsRequest) -> nn.Sequential:
        modules: list[nn.Module] = []
        before = 0
        for channels, kernel, stride in layers:
            conv = (
                nn.Conv2d(before, channels, kernel, stride)
                if modules
                else PixelConv2d(
                    want.image_shape, channels, kernel, stride, normalise=want.normalise_pixels
                )
            )
            # One group of all channels is layer normalisation over a map, a gain for each channel.
            norm = [nn.GroupNorm(1, channels)] if want.layer_norm else []
            modules += [conv, *norm, nn.ReLU(inplace=True)]
            before = channels
        return nn.Sequential(*modules)

    return build


def _resnet_convs(want: ConvsRequest) -> nn.Sequential:
    modules: list[nn.Module] = []
    channels = 0
    for width in (16, 32, 32):
        conv = (
            nn.Conv2d(channels, width, 3, padding=1)
            if modules
            else PixelConv2d(want.image_shape, width, 3, padding=1, normalise=want.normalise_pixels)
        )
        modules += [conv, nn.MaxPool2d(3, stride=2, padding=1)]
        modules += [ResidualBlock(width), ResidualBlock(width)]
        channels = width
    return nn.Sequential(*modules, nn.ReLU())


def _resnet_light_convs(want: ConvsRequest) -> nn.Sequential:
    return nn.Sequential(
        PixelConv2d(want.image_shape, 32, 8, 4, normalise=want.normalise_pixels),
        ResidualBlock(32),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        ResidualBlock(64),
        nn.ReLU(),
    )


def _resnet_small_convs(want: ConvsRequest) -> nn.Sequential:
    return nn.Sequential(
        PixelConv2d(want.image_shape, 16, 8, 4, normalise=want.normalise_pixels),
        nn.ReLU(inplace=True),
        nn.Conv2d(16, 32, 4, 2),
        ResidualBlock(32),
        ResidualBlock(32),
        nn.ReLU(),
    )


# name -> (its convolutions, default F)
IMAGE_TORSOS: dict[str, tuple[Callable[[ConvsRequest], nn.Sequential], int]] = {
    # Mnih et al. 2015, methods
    "nature": (_relu_convs((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512),
    # Espeholt et al. 2018, figure 3 left
    "impala_shallow": (_relu_convs((16, 8, 4), (32, 4, 2)), 256),
    "resnet": (_resnet_convs, 256),  # Espeholt et al. 2018, figure 3 right: 15 convolutions
    # The blocks of `resnet` behind the first layer of `nature`: two fifths of its
    # multiplications, 22 against 54 million for a frame stack of Atari.
    "resnet_light": (_resnet_light_convs, 256),
    # `impala_shallow` with two of these blocks on its last maps, of 9x9 for Atari, where they are
    # cheap: twice its multiplications, 6 million for a frame stack, and six convolutions deep.
    "resnet_small": (_resnet_small_convs, 256),
    # of the older elite-replay platform: wide and shallow
    "elite": (_relu_convs((64, 3, 3), (64, 3, 2), (128, 3, 2)), 512),
}


class ImageTorso(nn.Module):
    """Convolutions, then one linear layer with ReLU to the features."""

    def __init__(
        self,
        name: str,
        obs_shape: tuple[int, ...],
        feature_count: int = 0,
        *,
        normalise_pixels: Normalise = False,
        layer_norm: str = "none",
    ) -> None:
        """Build torso `name` of IMAGE_TORSOS.

        Args:
          name: name of the torso.
          obs_shape: (C, H, W) of the images.
          feature_count: F; 0 is the torso's own.
          normalise_pixels: see PixelStatistics.
          layer_norm: which layers are normalised before their ReLU (Ba et al. 2016): none,
            features (the linear one), or all; the last not in the residual networks.

        Raises:
          ConfigError: if the convolutions do not fit into the frame, or are not normalised.
        """
        super().__init__()
        build, default_count = IMAGE_TORSOS[name]
        self.feature_count = feature_count or default_count
        want = ConvsRequest(tuple(obs_shape), normalise_pixels, layer_norm == "all")
        self.convs = build(want)
        if want.layer_norm and not any(isinstance(m, nn.GroupNorm) for m in self.convs):
            raise ConfigError(
                f"layer_norm is all, but the convolutions of model {name!r} are in residual "
                "blocks, which are not normalised: expected features or none."
            )
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
        self.norm = nn.Identity() if layer_norm == "none" else nn.LayerNorm(self.feature_count)

    def forward(self, obs: Tensor) -> Tensor:
        """Map `[N, C, H, W]` to features `[N, F]`."""
        maps = self.convs(obs)
        if maps.requires_grad and maps.is_contiguous(memory_format=torch.channels_last):
            # The gradient of flat features comes in NCHW order. The backward pass of a ReLU takes
            # ten times as long or more where its two inputs are in different orders.
            maps.register_hook(_in_nhwc)
        return F.relu(self.norm(self.linear(maps.flatten(1))))


def _in_nhwc(gradient: Tensor) -> Tensor:
    return gradient.contiguous(memory_format=torch.channels_last)


class MlpTorso(nn.Module):
    """Two fully connected tanh layers, for vector observations (images are flattened)."""

    def __init__(
        self, obs_shape: tuple[int, ...], feature_count: int = 0, layer_norm: str = "none"
    ) -> None:
        """Build the torso; both layers are F wide (default 256).

        Args:
          obs_shape: shape of one observation.
          feature_count: F; 0 means 256.
          layer_norm: which layers are normalised before their tanh: none, features, or all.
        """
        super().__init__()
        self.feature_count = width = feature_count or 256
        self.linear1 = nn.Linear(int(torch.Size(obs_shape).numel()), width)
        self.linear2 = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width) if layer_norm == "all" else nn.Identity()
        self.norm2 = nn.Identity() if layer_norm == "none" else nn.LayerNorm(width)

    def forward(self, obs: Tensor) -> Tensor:
        """Map `[N, *obs_shape]` to features `[N, F]`."""
        x = obs.flatten(1).to(compute_dtype(self.linear1.weight))
        if obs.dtype == torch.uint8:
            x = x / PIXEL_MAX
        x = torch.tanh(self.norm1(self.linear1(x)))
        return torch.tanh(self.norm2(self.linear2(x)))


class FloatInput(nn.Module):
    """Shows a network of the user's floating-point numbers in the dtype of its weights.

    Pixels are normalised, or scaled to [0, 1], so that a network need not know what its weights
    and its inputs are stored as.
    """

    def __init__(self, net: nn.Module, pixels: PixelStatistics | None = None) -> None:
        """Put `net` behind the conversion; `pixels` normalises uint8 images, None scales them."""
        super().__init__()
        self.statistics = pixels
        self.net = net

    def forward(self, obs: Tensor) -> Tensor:
        """Map `[N, *obs_shape]` of any dtype to features `[N, F]`."""
        dtype = next((compute_dtype(weight) for weight in self.net.parameters()), torch.float32)
        if obs.dtype != torch.uint8:
            seen = obs.to(dtype)
        elif self.statistics is None:
            seen = obs.to(dtype) / PIXEL_MAX
        else:
            seen = self.statistics.shown(obs, dtype, torch.contiguous_format)
        features: Tensor = self.net(seen)
        return features


def _image_network(name: str) -> Network:
    def build(request: NetworkRequest) -> nn.Module:
        return ImageTorso(
            name,
            request.obs_shape,
            request.feature_count,
            normalise_pixels=request.normalise_pixels,
            layer_norm=request.layer_norm,
        )

    return Network(
        build,
        sees="images",
        takes_raw=True,
        takes_layer_norm=True,
        channels_last=name.startswith("resnet"),
    )


for _name in IMAGE_TORSOS:
    NETWORKS.add(_name, _image_network(_name), __name__)
NETWORKS.add(
    "mlp",
    Network(
        lambda want: MlpTorso(want.obs_shape, want.feature_count, want.layer_norm),
        "vectors",
        takes_raw=True,
        takes_layer_norm=True,
    ),
    __name__,
)
