"""Prioritised replay: an unroll is drawn the likelier, the more there was to learn from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from ritornello.replay.evidence import Floats
from ritornello.replay.keys import Key, share
from ritornello.replay.sampler import Candidates, Contents, Outcome, Sampler

# So that what was learned perfectly can still be drawn: the epsilon of the paper. A thousandth of
# a (clipped) reward, below which errors are noise.
SMALLEST_ERROR = 1e-3


def _share(default: float, meaning: str) -> Key:
    return Key("number in [0, 1]", default, meaning, share)


class Prioritised(Sampler):
    """Draw in proportion to the errors of the values, and weigh the losses down in return.

    The proportional variant of Schaul, Quan, Antonoglou and Silver, "Prioritized Experience Replay"
    (ICLR 2016, https://arxiv.org/abs/1511.05952), for unrolls in place of transitions, drawn in a
    stratified way (section 3.3). With N unrolls:

        P(i) = p_i^alpha / sum_k p_k^alpha
        w_i  = (N P(i))^-beta / (the largest such number among the n draws)
        p    = eta max_t |delta_t| + (1 - eta) mean_t |delta_t| + epsilon

    The priority p follows R2D2 (Kapturowski et al., ICLR 2019, section 2.3); delta_t is the value
    target of V-trace minus the value, of the steps t that were learned from. Beta rises linearly to
    1 at the end of training. docs/replay.md, "Priorities", says which bias remains.
    """

    about = (
        "in proportion to the priority, which comes from the latest value errors, to the power α"
    )
    keys: ClassVar[Mapping[str, Key]] = {
        "alpha": _share(
            0.6, "α, how much priorities matter: with 0 the draw is uniform, with 1 proportional."
        ),
        "beta": _share(
            0.4,
            "β₀, how much of the bias the importance weights take back at the start of training; "
            "it rises linearly to 1.",
        ),
        "eta": _share(
            0.9,
            "η, share of an unroll's largest error in its priority; the mean error has the rest.",
        ),
    }
    uses_priorities = True

    def __init__(self, alpha: float = 0.6, beta: float = 0.4, eta: float = 0.9) -> None:
        """Take the values of `keys`, each 0 to 1."""
        self.alpha = alpha
        self.initial_beta = beta
        self.eta = eta

    def beta(self, progress: float) -> float:
        """Return beta, the exponent of the weights; `progress` is the share of training done."""
        return self.initial_beta + (1 - self.initial_beta) * min(1.0, progress)

    def propose(
        self, contents: Contents, n: int, progress: float, rng: np.random.Generator
    ) -> Candidates:
        """Return n positions with their importance weights."""
        tree = contents.priorities
        assert tree is not None, "a buffer keeps priorities for a sampler that uses them"
        positions = tree.find((np.arange(n) + rng.random(n)) * (tree.total / n))
        probabilities = tree[positions] / tree.total
        weights = (len(contents.entries) * probabilities) ** -self.beta(progress)
        return Candidates(positions, weights / weights.max())

    def priorities(self, outcome: Outcome) -> Floats:
        """Return p^alpha of each unroll, [n] float64."""
        errors = np.where(outcome.learned, outcome.errors, 0).astype(np.float64)
        largest = errors.max(axis=1)
        mean = errors.sum(axis=1) / np.maximum(outcome.learned.sum(axis=1), 1)
        mixed = self.eta * largest + (1 - self.eta) * mean
        return np.asarray((mixed + SMALLEST_ERROR) ** self.alpha)
