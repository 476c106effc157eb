"""How alike the layers of two networks are: by their weights (matching) and by what they say (CKA).

The units of a layer have no order of their own: two networks may have learned the same filters and
keep them in different places. So the filters of a layer are matched one to one such that the sum of
squared distances is least (the assignment problem, solved exactly by SciPy's variant of the
Hungarian method), and what is left is the distance that no reordering explains.

Linear CKA is the centred kernel alignment of Kornblith et al., "Similarity of Neural Network
Representations Revisited" (2019), https://arxiv.org/abs/1905.00414. It does not care for the order
of units, for rotations and for scale, and the layers may be of different width. 1: the same up to a
rotation; 0: nothing in common. Layers wider than the number of observations look more alike than
they are, which is why analysis/filters.py shows what two random networks come to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from torch import Tensor, nn

from ritornello.agent.models.base import ActorCritic
from ritornello.agent.models.torsos import ResidualBlock

FEATURES = "features"  # name of what the torso hands on


@dataclass(frozen=True)
class ConvLayer:
    """One convolution, and how it hangs together with those before it."""

    name: str
    weight: np.ndarray  # [out, in, kh, kw] float32
    reads: int | None  # number of the layer whose outputs are its input channels; None: the image
    adds_to: int | None  # number of the layer to whose outputs its own are added


@dataclass(frozen=True)
class LayerDistance:
    """How far one layer of two networks is apart: mean squared distance of its filters."""

    name: str
    default: float  # each filter and the one in the same place of the other network
    optimal: float  # each filter and the one it is matched with
    order: np.ndarray  # [out] int64: filter i of the first network is matched with order[i]


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


def distances(first: Sequence[ConvLayer], second: Sequence[ConvLayer]) -> list[LayerDistance]:
    """Compare the layers of two networks of one architecture, results of `conv_layers`.

    For the optimal distance the input channels of a layer are reordered as the outputs they read
    were matched, so that networks which differ in nothing but the order of their filters are at
    distance 0 in every layer; layers whose outputs are added up (residual blocks) share one order.
    """
    found: list[LayerDistance] = []
    for one, two in zip(first, second, strict=True):
        reordered = two.weight if two.reads is None else two.weight[:, found[two.reads].order]
        ours, as_they_stand, theirs = (
            weight.reshape(len(weight), -1).astype(np.float64)
            for weight in (one.weight, two.weight, reordered)
        )
        cost = cdist(ours, theirs, "sqeuclidean")
        shared = None if two.adds_to is None else found[two.adds_to].order
        order = linear_sum_assignment(cost)[1] if shared is None else shared
        default = float(np.square(ours - as_they_stand).sum(1).mean())
        optimal = float(cost[np.arange(len(ours)), order].mean())
        found.append(LayerDistance(one.name, default, optimal, order))
    return found


def centred_gram(activations: Tensor) -> Tensor:
    """Return X X^T with centred columns, [N, N] float64, for activations X [N, ...]."""
    rows = activations.flatten(1).float()
    rows = rows - rows.mean(0)
    return (rows @ rows.T).double()


def linear_cka(one: Tensor, two: Tensor) -> float:
    """Return the linear CKA of two layers from their Gram matrices, [N, N] of `centred_gram`.

    ||Y^T X||_F^2 / (||X^T X||_F ||Y^T Y||_F), which is <X X^T, Y Y^T> over the product of the
    norms of these (Kornblith et al. 2019, section 3). NaN if a layer says the same about all
    observations.
    """
    return float((one * two).sum() / (one.norm() * two.norm()))


@torch.no_grad()
def layer_grams(model: ActorCritic, obs: Tensor, games: Tensor) -> dict[str, Tensor]:
    """Show observations to a model and return the Gram matrix of each layer of its torso.

    Args:
      model: any; what remembers (LSTMs) comes after the torso and is not looked at.
      obs: [N, *obs_shape]; all are shown at once, so that some hundreds are enough.
      games: [N] int64, the number of each one's game as the model knows it.

    Returns:
      layer -> [N, N] float64: each convolution, before its nonlinearity, and FEATURES.
    """
    grams: dict[str, Tensor] = {}

    def watch(name: str, module: nn.Module) -> torch.utils.hooks.RemovableHandle:
        return module.register_forward_hook(
            lambda _, __, output: grams.__setitem__(name, centred_gram(output))
        )

    handles = [watch(name, module) for name, module in convolutions(model).items()]
    try:
        grams[FEATURES] = centred_gram(model.torso(obs, games))
    finally:
        for handle in handles:
            handle.remove()
    return grams


def convolutions(model: ActorCritic) -> dict[str, nn.Conv2d]:
    """Return the convolutions of a model's torso by name."""
    return {n: m for n, m in model.torso_net.named_modules() if isinstance(m, nn.Conv2d)}
