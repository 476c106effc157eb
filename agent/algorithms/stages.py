"""`note` records the tensors that a loss is made of, if `recorded` asks (non_finite.py does).

The functions that losses are made of note their tensors in the order in which one follows from
another. Nothing is kept unless `recorded` is active in the same thread.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

# The largest that is believed of numbers which an update could not be made with. They are far from
# what is ever learned from, and near to what overflows float32 (3e38): the gradient of the value
# has an error times a feature in it, and its norm the square of that.
LARGEST_REWARD = 1e15  # a discounted sum of a hundred, squared, is 1e34
LARGEST_OBSERVATION = 1e9  # it is a factor of the error and of the feature
LARGEST_WEIGHT = 1e5  # four layers of a hundred of them make 1e28 of 1


@dataclass(frozen=True)
class Stage:
    """Something that a loss is made of."""

    culprit: str  # one of non_finite.CULPRITS
    name: str  # of the tensor
    tensor: Tensor  # in which nothing may be NaN, infinite or beyond `largest`
    axes: str = ""  # what its first axes are: "row, unroll", "unroll" or "" for others
    largest: float = math.inf
    is_given: bool = False  # not computed from other stages: comes with the batch, or is a weight
    shown: Tensor | None = None  # what is said of it; None: the tensor itself


class _Recording(threading.local):
    stages: list[Stage] | None = None


_recording = _Recording()


def note(
    culprit: str, name: str, tensor: Tensor, largest: float = math.inf, *, is_given: bool = False
) -> None:
    """Note a tensor of [rows, B, ...]; the arguments are those of `Stage`."""
    if _recording.stages is not None:
        stage = Stage(culprit, name, tensor, "row, unroll", largest, is_given)
        _recording.stages.append(stage)


@contextmanager
def recorded() -> Iterator[list[Stage]]:
    """Collect what is noted in this thread within the block."""
    stages: list[Stage] = []
    _recording.stages = stages
    try:
        yield stages
    finally:
        _recording.stages = None
