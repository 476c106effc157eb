"""Maps of many-dimensional points: PCA, and exact t-SNE.

t-SNE is here and not from a library because its exact form is one page, and fast enough for the
few thousand points that a picture can show; the libraries' approximations are for millions.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

INITIAL_DIMENSIONS = 50  # that t-SNE keeps of the points, the principal ones
EXAGGERATION, EXAGGERATED_SHARE = 12.0, 0.25  # of the attraction, and for which share of the steps


def pca(points: Tensor, dimensions: int = 2) -> tuple[Tensor, Tensor]:
    """Project points onto the axes along which they vary most.

    Args:
      points: N points of F numbers, [N, F] float32.
      dimensions: number of dimensions of the result; there are fewer if the points have fewer.

    Returns:
      The centred points [N, dimensions] float32, and the share of the whole variance along each
      axis, [dimensions].
    """
    left, sizes, _ = torch.linalg.svd(points - points.mean(0), full_matrices=False)
    variances = sizes.square()
    share = variances / variances.sum().clamp(min=1e-30)
    return left[:, :dimensions] * sizes[:dimensions], share[:dimensions]


def tsne(
    points: Tensor,
    *,
    perplexity: float = 30.0,
    steps: int = 500,
    seed: int = 0,
    on_step: Callable[[], object] = lambda: None,
) -> Tensor:
    """Lay points out on a plane such that neighbours stay neighbours.

    van der Maaten and Hinton, "Visualizing Data using t-SNE" (2008), gradient descent with
    momentum and gains as there; started from the principal axes, with the learning rate N / 12 of
    Belkina et al., "Automated optimized parameters for t-SNE" (2019). Distances between clusters
    mean little, and neither do their sizes.

    Args:
      points: [N, F] float32, some thousands at most, as several matrices of [N, N] are held;
        projected to INITIAL_DIMENSIONS first.
      perplexity: about how many neighbours a point has; at most a third of the points is used.
      steps: number of steps of gradient descent.
      seed: seed of the noise that tells equal points apart.
      on_step: function that is called after each step.

    Returns:
      [N, 2] float32.
    """
    points, _ = pca(points, INITIAL_DIMENSIONS)
    count = len(points)
    attraction = affinities(points, min(perplexity, max(1.0, (count - 1) / 3)))
    layout = 1e-6 * torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))
    axes = points[:, :2]  # one alone if the points are on a line
    layout[:, : axes.shape[1]] += axes / points[:, :1].std().clamp(min=1e-12) * 1e-4
    rate = max(count / EXAGGERATION, 50.0)
    velocity, gains = torch.zeros_like(layout), torch.ones_like(layout)
    strong_attraction = attraction * EXAGGERATION
    for step in range(steps):
        exaggerated = step < EXAGGERATED_SHARE * steps
        gradient = tsne_gradient(layout, strong_attraction if exaggerated else attraction)
        same_direction = (gradient > 0) == (velocity > 0)
        gains = torch.where(same_direction, gains * 0.8, gains + 0.2).clamp(min=0.01)
        velocity = (0.5 if exaggerated else 0.8) * velocity - rate * gains * gradient
        layout = layout + velocity
        layout = layout - layout.mean(0)
        on_step()
    return layout


def affinities(points: Tensor, perplexity: float) -> Tensor:
    """Return P, how near each two points are: [N, N], symmetric, of sum 1, 0 on the diagonal.

    p_j|i is Gaussian around point i, with the width at which its perplexity is as wanted (found
    by bisection); p_ij = (p_j|i + p_i|j) / 2N.
    """
    count = len(points)
    squares = torch.cdist(points, points).square()
    squares = squares / squares.mean().clamp(min=1e-30)  # so that the search starts near
    squares.fill_diagonal_(torch.inf)
    squares = squares - squares.amin(1, keepdim=True)  # the nearest has weight 1: nothing vanishes
    squares.fill_diagonal_(0)
    wanted = torch.tensor(perplexity).log()
    precision = torch.ones(count)
    low, high = torch.zeros(count), torch.full((count,), torch.inf)
    for _ in range(50):
        weights = torch.exp(-precision[:, None] * squares).fill_diagonal_(0)
        total = weights.sum(1)
        entropy = total.log() + precision * (weights * squares).sum(1) / total
        is_wide = entropy > wanted
        low, high = torch.where(is_wide, precision, low), torch.where(is_wide, high, precision)
        precision = torch.where(high.isinf(), precision * 2, (low + high) / 2)
    conditional = weights / total[:, None]
    return (conditional + conditional.T) / (2 * count)


def tsne_gradient(layout: Tensor, attraction: Tensor) -> Tensor:
    """Return the gradient of KL(P || Q) by the layout: [N, 2], for P `attraction` [N, N].

    q_ij is proportional to 1 / (1 + |y_i - y_j|^2); the gradient is
    4 sum_j (p_ij - q_ij) (y_i - y_j) / (1 + |y_i - y_j|^2).
    """
    norms = layout.square().sum(1)
    # In place: the time goes into walking over matrices of points x points.
    squares = (layout @ layout.T).mul_(-2).add_(norms).add_(norms[:, None]).clamp_(min=0)
    nearness = squares.add_(1).reciprocal_().fill_diagonal_(0)
    force = torch.sub(attraction, nearness, alpha=1 / float(nearness.sum())).mul_(nearness)
    return 4 * (force.sum(1, keepdim=True) * layout - force @ layout)
