"""How far the filters of two networks are apart, in the order they stand in and in the best one.

The units of a layer have no order of their own: two networks may have learned the same filters and
keep them in different places. So the filters of a layer are matched one to one such that the sum of
squared distances is least (the assignment problem, solved exactly by SciPy's variant of the
Hungarian method), and what is left is the distance that no reordering explains.

What reads a layer that was reordered has its input channels in another order too. With `propagate`
each match is carried on to the layers that read it, so that networks which differ in nothing but
the order of their units are at distance 0 in every layer; layers whose outputs are added up (in
residual blocks) then share one order. Pure functions on arrays, but for `conv_layers`, which reads
the weights off a model. Next to read: analysis/filters.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment
from torch import nn

from ritornello.agent.models.torsos import ResidualBlock
from ritornello.core.errors import ConfigError

UNITS = ("filters", "kernels")
MAX_UNITS = 4096  # of a layer: the assignment takes the cube of it, here about half a minute


@dataclass(frozen=True)
class ConvLayer:
    """One convolution, and how it hangs together with those before it."""

    name: str
    weight: np.ndarray  # [out, in, kh, kw] float32
    reads: int | None  # number of the layer whose outputs are its input channels; None: the image
    adds_to: int | None  # number of the layer to whose outputs its own are added


@dataclass(frozen=True)
class LayerDistance:
    """How far one layer of two networks is apart: mean squared Euclidean distance of its units."""

    name: str
    default: float  # each unit and the one in the same place of the other network
    optimal: float  # each unit and the one it is matched with
    order: np.ndarray  # [units] int64: unit i of the first network is matched with order[i]


def conv_layers(torso: nn.Module) -> list[ConvLayer]:
    """Return the convolutions of a torso in the order in which they compute.

    Args:
      torso: whose children compute one after another, as those of agent/models/torsos.py.
    """
    layers: list[ConvLayer] = []
    newest: int | None = None  # layer whose channels are those of the image that is passed on

    def add(name: str, conv: nn.Conv2d, reads: int | None, adds_to: int | None = None) -> int:
        weight = conv.weight.detach().cpu().float().numpy()
        layers.append(ConvLayer(name, weight, reads, adds_to))
        return len(layers) - 1

    def visit(module: nn.Module, prefix: str) -> None:
        nonlocal newest
        for name, child in module.named_children():
            path = f"{prefix}{name}"
            if isinstance(child, ResidualBlock):
                inner = add(f"{path}.conv1", child.conv1, newest)
                add(f"{path}.conv2", child.conv2, inner, adds_to=newest)
            elif isinstance(child, nn.Conv2d):
                newest = add(path, child, newest)
            else:
                visit(child, f"{path}.")

    visit(torso, "")
    return layers


def distances(
    first: Sequence[ConvLayer],
    second: Sequence[ConvLayer],
    *,
    unit: str = "filters",
    propagate: bool = False,
) -> list[LayerDistance]:
    """Compare the layers of two networks of one architecture.

    Args:
      first: convolutions of the first network, result of `conv_layers`.
      second: those of the second network.
      unit: "filters", all weights of an output channel, [in, kh, kw]; or "kernels", each [kh, kw]
        slice by itself, wherever it stands: the loosest comparison, which the multi-task study
        with TorchBeast and PopArt made.
      propagate: reorder the input channels of a layer as the outputs they read were matched.

    Raises:
      ConfigError: if the layers do not have the same shapes, or are too large to be matched.
    """
    if propagate and unit != "filters":
        raise ConfigError(f"only whole filters can be propagated, not {unit}: leave one out.")
    shapes = [[layer.weight.shape for layer in layers] for layers in (first, second)]
    if shapes[0] != shapes[1]:
        raise ConfigError(
            "the networks have other convolutions, so there is no filter to compare with: "
            f"{_text(shapes[0])} and {_text(shapes[1])}, as (out, in, height, width)."
        )
    found: list[LayerDistance] = []
    for one, two in zip(first, second, strict=True):
        weight = two.weight
        if propagate and two.reads is not None:
            weight = weight[:, found[two.reads].order]
        units, default_units, matched_units = (
            _units(array, unit) for array in (one.weight, two.weight, weight)
        )
        if len(units) > MAX_UNITS:
            raise ConfigError(
                f"layer {one.name} has {len(units)} {unit}, at most {MAX_UNITS} can be matched. "
                "Compare filters."
            )
        cost = squared_distances(units, matched_units)
        if propagate and two.adds_to is not None:
            order = found[two.adds_to].order
        else:
            order = linear_sum_assignment(cost)[1]
        default = float(np.square(units - default_units).sum(1).mean())
        optimal = float(cost[np.arange(len(units)), order].mean())
        found.append(LayerDistance(one.name, default, optimal, order))
    return found


def squared_distances(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Return the squared Euclidean distance of all pairs: [n, d] and [m, d] -> [n, m] float64."""
    squares = np.square(one).sum(1)[:, None] + np.square(two).sum(1) - 2 * one @ two.T
    return np.asarray(np.maximum(squares, 0))  # rounding can leave less than 0


def _units(weight: np.ndarray, unit: str) -> np.ndarray:
    """Return [units, weights of each] float64."""
    out, channels = weight.shape[:2]
    rows = out if unit == "filters" else out * channels
    return weight.reshape(rows, -1).astype(np.float64)


def _text(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(map(str, shapes)) or "none"
