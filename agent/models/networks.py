"""`NETWORKS`, the choices of `--model`: each network is one function, registered by its name.

A function gets a `NetworkRequest` and returns the *torso*, a module that maps observations
`[N, *obs_shape]` to features `[N, F]`. What remembers (`--use_lstm`), the policy head and the value
heads are put on top of it by agent/models/factory.py. A network that needs a core of its own, as
attention does, returns it as well.

A network of your own is registered in a module of yours, and found by `--model=<module>:<name>`
(docs/your_own.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ritornello.agent.models.extra_inputs import ExtraInputs
from ritornello.agent.models.pixels import Normalise
from ritornello.core.errors import ConfigError
from ritornello.flags.parts import NETWORKS

if TYPE_CHECKING:
    from torch import nn

    from ritornello.agent.models.base import Core

SEES = ("images", "vectors", "anything")


@dataclass(frozen=True)
class NetworkRequest:
    """Shapes and settings for which a network is built."""

    obs_shape: tuple[int, ...]  # of one stacked observation: (C, H, W) of an image, (D,)
    feature_count: int = 0  # F as --feature_out_layer_size says; 0: the network's own
    normalise_pixels: Normalise = False  # whether the first layer is to normalise uint8 images
    layer_norm: str = "none"  # which layers are normalised: none, features (the last) or all
    extras: ExtraInputs = field(default_factory=ExtraInputs)  # inputs of a core that it brings
    lstm_size: int = 256  # H, units of a core of its own


@dataclass(frozen=True)
class Network:
    """One entry of NETWORKS."""

    build: Callable[[NetworkRequest], nn.Module | tuple[nn.Module, Core]]
    sees: str = "anything"  # one of SEES
    has_memory: bool = False  # whether it brings a recurrent core
    # Whether its torso takes uint8 pixels and any dtype of weights. Others get floating-point
    # numbers in the dtype of their weights, pixels normalised or in [0, 1].
    takes_raw: bool = False
    # Whether it normalises layers as the request's `layer_norm` says; others refuse to be asked.
    takes_layer_norm: bool = False
    # Whether its kernels are kept in NHWC order wherever it computes, because that is faster.
    channels_last: bool = False


def register_network(
    name: str, *, sees: str = "anything", takes_layer_norm: bool = False
) -> Callable[[Callable[[NetworkRequest], nn.Module]], Callable[[NetworkRequest], nn.Module]]:
    """Return a decorator that makes a function a network of `--model=<its module>:<name>`.

    The function maps a `NetworkRequest` to a module `[N, *obs_shape]` float -> `[N, F]`. Weights of
    linear layers and 2-d convolutions are then made orthogonal; other layers keep those that they
    draw themselves. All follow from the seed of the run.

    `sees` is "images", "vectors" or "anything"; the network is refused for an environment that
    shows something else. `takes_layer_norm` says whether the function follows `layer_norm` of the
    request.
    """
    if sees not in SEES:
        raise ConfigError(f"network {name!r} sees {sees!r}, expected one of {', '.join(SEES)}.")

    def added(
        build: Callable[[NetworkRequest], nn.Module],
    ) -> Callable[[NetworkRequest], nn.Module]:
        network = Network(build, sees, takes_layer_norm=takes_layer_norm)
        NETWORKS.add(name, network, build.__module__)
        return build

    return added
