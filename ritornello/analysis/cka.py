"""Linear CKA: how alike two layers are, by what they say about the same observations.

Centred kernel alignment of Kornblith et al., "Similarity of Neural Network Representations
Revisited" (2019), https://arxiv.org/abs/1905.00414, with the linear kernel. It does not care for
the order of units, for rotations and for scale, and the layers may be of different width and of
different networks; so it can be asked where comparing weights makes no sense. 1: the same up to a
rotation; 0: nothing in common. Layers wider than the number of observations look more alike than
they are, which is why analysis/filters.py shows what two random networks come to.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ritornello.agent.models.base import ActorCritic

FEATURES = "features"  # name of what the torso hands on


def centred_gram(activations: Tensor) -> Tensor:
    """Return how alike each two observations are to a layer: X X^T with centred columns.

    Args:
      activations: [N, ...], what a layer says about N observations.

    Returns:
      [N, N] float64.
    """
    rows = activations.flatten(1).float()
    rows = rows - rows.mean(0)
    # The products are long sums of float32, but only their ratios are of interest: 1e-6 is plenty.
    return (rows @ rows.T).double()


def linear_cka(one: Tensor, two: Tensor) -> float:
    """Return the linear CKA of two layers from their Gram matrices.

    ||Y^T X||_F^2 / (||X^T X||_F ||Y^T Y||_F), which is <X X^T, Y Y^T> over the product of the
    norms of these (Kornblith et al. 2019, section 3): N x N instead of width x width.

    Args:
      one: [N, N] float64, result of `centred_gram` for N observations.
      two: the same of the other layer, for the same observations.

    Returns:
      A number in [0, 1]; NaN if a layer says the same about all observations.
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
        def take(_: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> None:
            grams[name] = centred_gram(output)

        return module.register_forward_hook(take)

    handles = [
        watch(name, module)
        for name, module in model.torso_net.named_modules()
        if isinstance(module, nn.Conv2d)
    ]
    try:
        grams[FEATURES] = centred_gram(model.torso(obs, games))
    finally:
        for handle in handles:
            handle.remove()
    return grams
