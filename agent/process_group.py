"""Sums over the batches of all learners of a run, which make several learners one.

Each learner has a batch of its own, and all of them hold the same weights. They learn what one
learner would learn from all batches together if every sum over a batch is one over all batches:

| `what` | the sum | where |
|---|---|---|
| gradient | of the loss, and the loss itself | agent/learning/learner.py |
| popart | of the value targets of each game | agent/models/popart.py |
| advantages | of the squares that make the rms of each game | agent/algorithms/losses.py |
| count | of the steps that `--loss_reduction=mean` divides by | agent/algorithms/losses.py |
| pixels | of the images that make a mean image | agent/models/pixels.py |
| vectors, vector_squares | of the numbers that make mean and deviation | agent/models/vectors.py |

Sums, not means: the bound of the gradient's norm and the learning rate then mean the same as for
one learner with the whole batch. A missing gradient sum shows at once, because the weights drift
apart. The others do not show: with them missing, all learners agree on something else.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ritornello.core.errors import PlatformError


class LearnerLost(PlatformError):
    """A learner does not take part any more, so no further update can be made."""

    def __init__(self, message: str, ranks: Sequence[int]) -> None:
        """Say in one sentence which learners are lost; without `ranks` it is not known."""
        super().__init__(message)
        self.ranks = tuple(ranks)


class ProcessGroup:
    """Adds up over learners. Every learner makes the same calls in the same order.

    This class is for a single learner: the sum over all learners is its own.
    agent/learners/group.py has the class for several.
    """

    rank = 0  # number of this learner, from 0
    world_size = 1  # number of learners

    def sum_(self, tensor: Tensor, what: str) -> Tensor:
        """Replace `tensor` by the sum over all learners, in place; return it.

        It has the same shape and dtype at every learner, is contiguous, and has no gradient. `what`
        is the name of the sum in messages.

        Raises:
          LearnerLost: if a learner does not take part.
        """
        return tensor

    def sum_numbers(self, numbers: Sequence[float]) -> list[float]:
        """Return the sum of each number over all learners, the same everywhere.

        Raises:
          LearnerLost: if a learner does not take part.
        """
        return list(numbers)


SINGLE_PROCESS = ProcessGroup()


def listed(ranks: Sequence[int]) -> str:
    """Return "learner 1", or "learners 1, 2"."""
    return f"learner{'s' if len(ranks) > 1 else ''} {', '.join(str(rank) for rank in ranks)}"
