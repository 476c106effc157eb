"""`find_culprit` names what an update could not be made with, because it is not finite.

The learner asks only after a loss or a gradient has turned out not to be finite. What the loss was
given is looked at first, in the order in which it came about; then the terms of the loss, and then
the gradient.

Next to read: agent/learning/learner.py, which asks; agent/learning/bad_updates.py, which says what
follows.
Sizes: T steps, B unrolls.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ritornello.agent.algorithms.base import Algorithm
from ritornello.agent.algorithms.batch import REWARD_TRANSFORMS, Batch
from ritornello.agent.models.base import ActorCritic
from ritornello.core.errors import PlatformError

# The largest that is believed of numbers which an update could not be made with. They are far from
# what is ever learned from, and near to what overflows float32 (3e38): the gradient of the value
# has an error times a feature in it, and its norm the square of that.
LARGEST_REWARD = 1e15  # a discounted sum of a hundred, squared, is 1e34
LARGEST_OBSERVATION = 1e9  # it is a factor of the error and of the feature
LARGEST_WEIGHT = 1e5  # four layers of a hundred of them make 1e28 of 1

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
    "value": "Values have diverged: give --use_popart=True (not q_lambda) or "
    "--reward_clipping_method=abs_one_sign, or resume the last checkpoint with a lower --lr.",
    "gradient": "The loss is finite, but it is too steep: resume the last checkpoint with a lower "
    "--lr.",
    "learner": "Its own log says what was bad, and it keeps the batch.",
}


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

    name: str  # a key of ADVICE
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


@dataclass(frozen=True)
class Given:
    """Something that a loss is made of."""

    culprit: str  # a key of ADVICE
    name: str  # of the tensor
    tensor: Tensor  # in which nothing may be NaN, infinite or beyond `largest`
    axes: str = ""  # what its first axes are: "row, unroll", "unroll" or "" for others
    largest: float = math.inf
    shown: Tensor | None = None  # what is said of it; None: the tensor itself


def _given(algorithm: Algorithm, model: ActorCritic, batch: Batch) -> Iterator[Given]:
    """Yield what every actor-critic loss is given, in the order in which it came about."""
    both, config = "row, unroll", algorithm.config
    reward = REWARD_TRANSFORMS[getattr(config, "reward_transform", "none")](batch.reward)
    yield Given("reward", "reward", reward, both, LARGEST_REWARD, batch.reward)
    extras = getattr(model.core, "extras", None)
    if extras is not None and extras.reward:
        last_reward = batch.last_reward.masked_fill(batch.first, 0)
        seen = last_reward.clamp(-1, 1) if extras.clamp_reward else last_reward
        yield Given("reward", "last_reward", seen, both, LARGEST_REWARD, last_reward)
    if batch.obs.is_floating_point():
        yield Given("observation", "obs", batch.obs, both, LARGEST_OBSERVATION)
    parameters = {name for name, _ in model.named_parameters()}
    for name, tensor in model.state_dict().items():
        is_scaled = name.startswith("value_head.")  # by PopArt, as far as its sigma goes
        largest = LARGEST_WEIGHT if name in parameters and not is_scaled else math.inf
        yield Given("weights", name, tensor, "", largest)
    yield Given("memory", "state", batch.state, "unroll")
    acted = batch.behaviour_params
    if not getattr(config, "policy_cloning_cost", 0):  # then what acted on a reset row is of no use
        acted = acted.masked_fill(batch.reset_row.unsqueeze(-1), 0)
    yield Given("ratio", "behaviour_params", acted, both)
    if getattr(config, "value_cloning_cost", 0):
        yield Given("value", "behaviour_value", batch.behaviour_value, both, LARGEST_REWARD)


def find_culprit(algorithm: Algorithm, model: ActorCritic, batch: Batch) -> Culprit | None:
    """Return what was bad first of all that the loss was given, or None if nothing was.

    Something that is not finite goes before something that is only too large.

    Args:
      algorithm: whose loss it is.
      model: the network, in its state before the update.
      batch: the batch of the loss.
    """
    first: Culprit | None = None
    too_large: Culprit | None = None
    columns: set[int] = set()
    for given in _given(algorithm, model, batch):
        bad = ~given.tensor.isfinite()
        if bad.any():
            columns |= _columns(bad, given)
            first = first or Culprit(given.culprit, _describe(given, bad, batch))
            continue
        large = given.tensor.abs() > given.largest
        if too_large is None and large.any():
            text = f"{_describe(given, large, batch)}, beyond {given.largest:g}"
            too_large = Culprit(given.culprit, text, is_finite=True)
    found = first or too_large
    return found and replace(found, columns=tuple(sorted(columns)))


def blame_loss(metrics: Mapping[str, Tensor]) -> Culprit | None:
    """Return which term of the loss is not finite, though all that it was given is.

    The entropy depends on the policy alone, so it tells bad probabilities from bad values.
    """
    for name in ("loss/entropy", "loss/policy_cloning", "loss/value", *metrics):
        if name in metrics and name.startswith("loss/") and not metrics[name].isfinite():
            is_of_policy = name in ("loss/entropy", "loss/policy_cloning")
            what = f"{name} is {float(metrics[name]):g}, though all that it was given is finite"
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


def _columns(bad: Tensor, given: Given) -> set[int]:
    """Return the unrolls of the batch in which something is bad; none where it is a weight."""
    if not given.axes:
        return set()
    axis = 1 if given.axes == "row, unroll" else 0
    return set(torch.nonzero(bad)[:, axis].tolist())


def _describe(given: Given, bad: Tensor, batch: Batch) -> str:
    """Say which number is the first that is bad, and where it is from."""
    places = torch.nonzero(bad)
    place = places[0].tolist()
    shown = given.tensor if given.shown is None else given.shown
    text = f"{given.name}{place if place else ''} is {float(shown[tuple(place)]):g}"
    if given.axes == "row, unroll":
        text += f" (row {place[0]} of {_unroll(place[1], batch)})"
    elif given.axes == "unroll":
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
