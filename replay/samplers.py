"""Who is drawn: the rules by which a buffer's items become part of a batch.

A draw has two halves. The buffer *proposes* candidates at random, under the manager's lock and
without a model. If there are more than needed, the sampler *chooses* among them, outside the lock,
from `Evidence` that a model gave.

Next to read: replay/removers.py (who is dropped), then replay/buffer.py.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from core.errors import ConfigError
from replay.distance import Distance, Evidence, Floats

STRATEGIES = (1, 2, 3, 4)

Indices = NDArray[np.intp]


class Sampler(Protocol):
    """A rule to draw. Stateless: what it needs to remember is kept with the items."""

    consumes: bool  # propose takes the oldest items out for good
    scores: bool  # proposes more than needed, and chooses
    needs_queries: bool  # choose compares with the present states of the agent
    needs_stored_features: bool

    def pool_size(self, n: int, progress: float) -> int:
        """Return how many candidates to propose for n draws, at least n.

        Args:
          n: draws wanted.
          progress: share of training done, 0 to 1.
        """
        ...

    def choose(self, n: int, draws: NDArray[np.int64], evidence: Evidence) -> Indices:
        """Return the positions `[n]` of the candidates to draw.

        Args:
          n: draws wanted, fewer than candidates.
          draws: [C] times each candidate was drawn before.
          evidence: what the model says of the C candidates.
        """
        ...


class _Unscored:
    """What the samplers share that take their proposal as it is."""

    scores = False
    needs_queries = False
    needs_stored_features = False

    def pool_size(self, n: int, progress: float) -> int:
        """Propose no more than needed."""
        del progress
        return n

    def choose(self, n: int, draws: NDArray[np.int64], evidence: Evidence) -> Indices:
        """Never called: there is nothing to choose from."""
        raise AssertionError(f"asked to choose {n} of {len(draws)}, but the proposal is the choice")


class Fifo(_Unscored):
    """Oldest first, each once. The proposal already takes items out of the buffer.

    So two threads can never draw the same unroll.
    """

    consumes = True


class Uniform(_Unscored):
    """Every item equally likely."""

    consumes = False


class _Scored:
    """Propose lambda * n candidates, keep n by their distance.

    Lambda falls linearly from its initial value to 1 while training goes on, and stays there:

        lambda(progress) = max(1, lambda_0 - (lambda_0 - 1) * progress / alfa)

    It is a function of progress alone, never of how often somebody asked (cf. Sun, Zhou and Li,
    "Attentive Experience Replay", AAAI 2020). At lambda = 1 the sampler is uniform and needs no
    model.
    """

    consumes = False
    scores = True

    def __init__(
        self, distance: Distance, initial_lambda: float, alfa: float, strategy: int
    ) -> None:
        if strategy not in STRATEGIES:
            raise ConfigError(f"elite_sampling_strategy is {strategy}, expected 1, 2, 3 or 4.")
        self.distance = distance
        self.initial_lambda = initial_lambda
        self.alfa = alfa
        self.strategy = strategy

    def current_lambda(self, progress: float) -> float:
        """Return the multiplier in force after this share of training."""
        return max(1.0, self.initial_lambda - (self.initial_lambda - 1) * progress / self.alfa)

    def pool_size(self, n: int, progress: float) -> int:
        """Return lambda * n, rounded."""
        return max(n, round(self.current_lambda(progress) * n))

    def measure(self, evidence: Evidence) -> Floats:
        """Return the distance `[C]` by which candidates are ranked."""
        raise NotImplementedError

    def choose(self, n: int, draws: NDArray[np.int64], evidence: Evidence) -> Indices:
        """Rank the candidates and apply the strategy."""
        return select(self.strategy, self.measure(evidence), draws, n)


class Elite(_Scored):
    """Prefer unrolls whose rows look to the model as they did when they were made.

    Distance: features now (or action distribution now) against those stored with the unroll. What
    has moved little is what the present policy still mostly agrees with.
    """

    needs_queries = False

    def __init__(
        self,
        distance: Distance | None = None,
        initial_lambda: float = 6.0,
        alfa: float = 1.0,
        strategy: int = 3,
    ) -> None:
        """Build the sampler.

        Args:
          distance: how change is measured; the 2-norm of features unless given.
          initial_lambda: candidates per draw at the start of training, at least 1.
          alfa: share of training over which lambda falls to 1; may exceed 1.
          strategy: 1 to 4, see `select`.
        """
        super().__init__(distance or Distance(), initial_lambda, alfa, strategy)
        self.needs_stored_features = self.distance.needs_stored_features

    def measure(self, evidence: Evidence) -> Floats:
        """Return how far each candidate has drifted since it was made."""
        return self.distance.drift(evidence)


class Attentive(_Scored):
    """Prefer unrolls through states like those where the agent is now.

    Distance: mean over the rows of a candidate of the distance to the nearest query, both under the
    present model. Queries are the last rows of the newest unrolls.
    """

    needs_queries = True
    needs_stored_features = False

    def __init__(
        self,
        distance: Distance | None = None,
        initial_lambda: float = 6.0,
        alfa: float = 1.0,
        strategy: int = 1,
    ) -> None:
        """Build the sampler; the arguments are those of `Elite`.

        Raises:
          ConfigError: for policy_kl, which compares policies on one state, not two states.
        """
        super().__init__(distance or Distance(), initial_lambda, alfa, strategy)
        if self.distance.name == "policy_kl":
            raise ConfigError(
                "attentive_sampling cannot use dist_function policy_kl: it compares states. "
                "Use ln_norm, cos_dist or kl_div."
            )

    def measure(self, evidence: Evidence) -> Floats:
        """Return how far each candidate is from the present states."""
        return self.distance.to_nearest(evidence)


def select(strategy: int, distances: Floats, draws: NDArray[np.int64], n: int) -> Indices:
    """Return the positions of exactly n of C >= 1 candidates; all different if C >= n.

    Strategies, over the candidates sorted by distance:
      1. the n nearest;
      2. cut into n strata of equal size (but for one), the nearest of each: keeps some variety;
      3. the least drawn, among equals the nearest;
      4. as 2, but of each stratum the least drawn, among equals the nearest.

    With fewer candidates than n all are taken, and again from the start of the order.

    Args:
      strategy: 1 to 4.
      distances: [C] smaller is closer.
      draws: [C] times drawn before.
      n: draws wanted.
    """
    nearest_first = np.argsort(distances, kind="stable")
    count = len(nearest_first)
    if strategy == 3:
        order = np.lexsort((distances, draws))  # the last key is the primary one
    elif strategy == 1 or count <= n:
        order = nearest_first
    else:
        bounds = np.arange(n + 1) * count // n
        order = nearest_first[bounds[:-1]]
        if strategy == 4:
            # argmin takes the first of equals, which is the nearest.
            order = nearest_first[
                [
                    start + int(np.argmin(draws[nearest_first[start:stop]]))
                    for start, stop in pairwise(bounds)
                ]
            ]
    return np.resize(order, n)  # repeats the order if it is shorter than n
