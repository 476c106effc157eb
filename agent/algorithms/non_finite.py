"""`find_culprit` names the first quantity that is not finite between a batch and its gradient.

The learner asks only after a loss or a gradient has turned out not to be finite. The loss is then
computed once more and notes what it is made of, in the order in which one thing follows from
another (stages.py), and `find_culprit` walks along until something is wrong: what comes later is
bad because of it.

Next to read: agent/learning/learner.py, which asks; agent/learning/bad_updates.py, which says what
follows.
Sizes: T steps, B unrolls.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ritornello.agent.algorithms.base import Algorithm
from ritornello.agent.algorithms.batch import REWARD_TRANSFORMS, Batch
from ritornello.agent.algorithms.stages import (
    LARGEST_OBSERVATION,
    LARGEST_REWARD,
    LARGEST_WEIGHT,
    Stage,
    recorded,
)
from ritornello.agent.models.base import ActorCritic
from ritornello.core.errors import PlatformError

# What to do, by culprit; of a number that is finite, but too large, where that is something else.
ADVICE = {
    "reward": "An environment gave this reward: look at what its step() returns. With "
    "--debug=True the worker that is given it names the environment.",
    "reward, finite": "An environment gave this reward, and it is too large to be squared in "
    "float32: give --reward_clipping_method=abs_one_sign, or divide rewards in the environment.",
    "observation": "An environment showed this: look at what its reset() and step() return. With "
    "--debug=True the worker that is shown it names the environment.",
    "observation, finite": "An environment showed this, and it is too large for a network: scale "
    "observations to about 1 in the environment.",
    "weights": "Training has diverged: resume an earlier checkpoint with a lower --lr.",
    "memory": "The memory of the agent that acted has diverged: lower --lr, or look whether "
    "observations are far from 1.",
    "ratio": "The probabilities of actions have diverged, those of today's policy or of the one "
    "that acted: resume the last checkpoint with a lower --lr.",
    "value": "Values have diverged: give --use_popart=True or "
    "--reward_clipping_method=abs_one_sign, or resume the last checkpoint with a lower --lr.",
    "gradient": "The loss is finite, but it is too steep: resume the last checkpoint with a lower "
    "--lr.",
    "learner": "Its own log says what was bad, and it keeps the batch.",
}
CULPRITS = ("reward", "observation", "weights", "memory", "ratio", "value", "gradient", "learner")


class NonFiniteUpdate(PlatformError):
    """A loss or a gradient is NaN or infinite: the update was not made, and nothing has moved."""

    def __init__(self, update: int, culprit: Culprit) -> None:
        """Say what was bad first.

        Args:
          update: number of the update that was to be made.
          culprit: the first bad quantity.
        """
        super().__init__(
            f"update {update} cannot be made: {culprit.what}; expected finite numbers. "
            f"{culprit.advice}"
        )
        self.update = update
        self.culprit = culprit


@dataclass(frozen=True)
class Culprit:
    """The first quantity that was not finite, or too large."""

    name: str  # one of CULPRITS
    what: str  # what is wrong with it, and where
    is_finite: bool = False  # it is only too large
    columns: tuple[int, ...] = ()  # unrolls of the batch that hold something that is not finite

    @property
    def advice(self) -> str:
        """A sentence on how to mend it."""
        return (
            ADVICE.get(f"{self.name}, finite" if self.is_finite else self.name, "")
            or (ADVICE[self.name])
        )


def stages_of(
    algorithm: Algorithm, model: ActorCritic, batch: Batch, progress: float
) -> list[Stage]:
    """Return what a loss is made of: what is given first, then what follows from it.

    It computes the loss once more, which moves what a loss may move: restore that afterwards.

    Args:
      algorithm: whose loss it is.
      model: the network, in its state before the update.
      batch: the batch of the loss.
      progress: share of the training that is done, as it was told to the loss.
    """
    with torch.no_grad(), recorded() as noted:
        algorithm.loss(model, batch, None, progress)
    transform = REWARD_TRANSFORMS[getattr(algorithm.config, "reward_transform", "none")]
    given = [*_given(model, batch, transform(batch.reward)), *(s for s in noted if s.is_given)]
    given.sort(key=lambda stage: CULPRITS.index(stage.culprit))
    return [*given, *(stage for stage in noted if not stage.is_given)]


def _given(model: ActorCritic, batch: Batch, reward: Tensor) -> Iterator[Stage]:
    """Yield what every actor-critic loss is given, in the order in which it came about.

    Args:
      model: the network of the loss.
      batch: the batch of the loss.
      reward: [T, B] float32, as it is learned from.
    """
    both = "row, unroll"
    yield Stage("reward", "reward", reward, both, LARGEST_REWARD, True, batch.reward)
    extras = getattr(model.core, "extras", None)
    if extras is not None and extras.reward:
        last_reward = batch.last_reward.masked_fill(batch.first, 0)
        seen = last_reward.clamp(-1, 1) if extras.clamp_reward else last_reward
        yield Stage("reward", "last_reward", seen, both, LARGEST_REWARD, True, last_reward)
    if batch.obs.is_floating_point():
        yield Stage("observation", "obs", batch.obs, both, LARGEST_OBSERVATION, True)
    parameters = {name for name, _ in model.named_parameters()}
    for name, tensor in model.state_dict().items():
        is_scaled = name.startswith("value_head.")  # by PopArt, as far as its sigma goes
        largest = LARGEST_WEIGHT if name in parameters and not is_scaled else math.inf
        yield Stage("weights", name, tensor, "", largest, True)
    yield Stage("memory", "state", batch.state, "unroll", is_given=True)


def find_culprit(stages: Iterable[Stage], batch: Batch) -> Culprit | None:
    """Return what was bad first, or None if nothing is.

    Something given that is not finite goes before something that is only too large, and both go
    before what was computed from them.

    Args:
      stages: in the order of the flow, what is given first.
      batch: the batch of the stages.
    """
    first: Culprit | None = None
    too_large: Culprit | None = None
    columns: set[int] = set()
    for stage in stages:
        if not stage.is_given and (first or too_large):
            break
        bad = ~stage.tensor.isfinite()
        if bad.any():
            if stage.is_given and stage.axes:
                columns |= _columns(bad, stage)
            first = first or Culprit(stage.culprit, _describe(stage, bad, batch))
            continue
        large = stage.tensor.abs() > stage.largest
        if too_large is None and large.any():
            text = f"{_describe(stage, large, batch)}, beyond {stage.largest:g}"
            too_large = Culprit(stage.culprit, text, is_finite=True)
    found = first or too_large
    if found is None:
        return None
    return Culprit(found.name, found.what, found.is_finite, tuple(sorted(columns)))


def blame_loss(metrics: dict[str, Tensor]) -> Culprit | None:
    """Return which term of the loss is not finite, though all that it is made of is."""
    for name, value in metrics.items():
        if name.startswith("loss/") and name != "loss/total" and not value.isfinite():
            is_of_policy = name in ("loss/entropy", "loss/policy_cloning")
            what = f"{name} is {float(value):g}, though all that it is made of is finite"
            return Culprit("ratio" if is_of_policy else "value", what)
    return None


def blame_gradient(model: ActorCritic) -> Culprit:
    """Return where the gradient is not finite, or largest."""
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    for name, gradient in gradients.items():
        if not gradient.isfinite().all():
            return Culprit("gradient", f"the gradient of {name} is not finite")
    sizes = {name: float(gradient.abs().max()) for name, gradient in gradients.items()}
    worst = max(sizes, key=lambda name: sizes[name], default="")
    size = f": in {worst} it is {sizes[worst]:g}" if worst else ""
    return Culprit("gradient", f"the norm of the gradient overflows{size}")


def _columns(bad: Tensor, stage: Stage) -> set[int]:
    axis = 1 if stage.axes == "row, unroll" else 0
    return set(torch.nonzero(bad)[:, axis].tolist())


def _describe(stage: Stage, bad: Tensor, batch: Batch) -> str:
    """Say which number is the first that is bad, and where it is from."""
    places = torch.nonzero(bad)
    place = places[0].tolist()
    shown = stage.tensor if stage.shown is None else stage.shown
    text = f"{stage.name}{place if place else ''} is {float(shown[tuple(place)]):g}"
    if stage.axes == "row, unroll":
        text += f" (row {place[0]} of {_unroll(place[1], batch)})"
    elif stage.axes == "unroll":
        text += f" ({_unroll(place[0], batch)})"
    others = len(places) - 1
    if others:
        text += ", as is another" if others == 1 else f", as are {others} others"
    return text


def _unroll(column: int, batch: Batch) -> str:
    kind = "new" if batch.is_online[column] else "replayed"
    return (
        f"unroll {column}, which is {kind}, of task {int(batch.task_id[column])} and acted by "
        f"version {int(batch.version[column])}"
    )
