"""`error_of` finds the quantity that was not finite when an update could not be made.

The learner asks only after a loss or a gradient has turned out not to be finite. The inputs of the
loss are checked first, in the order in which they were computed, then the terms of the loss, and
then the gradient. Each of several learners finds out whether its own batch is to blame.

Next to read: agent/learning/learner.py, which asks; agent/learning/bad_updates.py, which says what
follows.
Sizes: T steps, B unrolls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ritornello.agent.algorithms.base import Algorithm, Loss
from ritornello.agent.algorithms.batch import REWARD_TRANSFORMS, Batch
from ritornello.agent.learning.bad_updates import Culprit, NonFiniteUpdate
from ritornello.agent.models.base import ActorCritic
from ritornello.agent.process_group import ProcessGroup, listed


class Given(NamedTuple):
    """Something that a loss is made of."""

    culprit: str  # a key of ADVICE
    name: str  # name of the tensor
    tensor: Tensor  # must be finite
    column_axis: int | None = None  # axis of the unrolls; None: it has none


def error_of(
    loss: Loss,
    batch: Batch,
    algorithm: Algorithm,
    model: ActorCritic,
    update: int,
    group: ProcessGroup,
) -> NonFiniteUpdate:
    """Return the error of an update that is not finite.

    Args:
      loss: the loss of this learner's batch.
      batch: this learner's batch.
      algorithm: the algorithm that computed the loss.
      model: the network, in its state before the update, with the gradient of this batch.
      update: number of the update.
      group: sums over learners.
    """
    given = list(_given(algorithm, model, batch))
    culprit = _find_culprit(given, batch)
    # Not by the own loss: through the sums, it is no better than that of the others.
    is_own = [float(culprit is not None and rank == group.rank) for rank in range(group.world_size)]
    bad = [rank for rank, count in enumerate(group.sum_numbers(is_own)) if count]
    if culprit is None and bad:
        culprit = Culprit("learner", f"the batch of {listed(bad)} is not finite")
    culprit = culprit or _blame_loss(loss, given, model) or _blame_gradient(model)
    return NonFiniteUpdate(update, culprit)


def _given(algorithm: Algorithm, model: ActorCritic, batch: Batch) -> Iterator[Given]:
    """Yield what every actor-critic loss is given, in the order in which it came about."""
    config = algorithm.config
    reward = REWARD_TRANSFORMS[getattr(config, "reward_transform", "none")](batch.reward)
    yield Given("reward", "reward", reward, 1)
    extras = getattr(model.core, "extras", None)
    if extras is not None and extras.reward:
        last_reward = batch.last_reward.masked_fill(batch.first, 0)
        seen = last_reward.clamp(-1, 1) if extras.clamp_reward else last_reward
        yield Given("reward", "last_reward", seen, 1)
    if batch.obs.is_floating_point():
        yield Given("observation", "obs", batch.obs, 1)
    for name, tensor in model.state_dict().items():
        yield Given("weights", name, tensor)
    yield Given("memory", "state", batch.state, 0)
    acted = batch.behaviour_params
    if not getattr(config, "policy_cloning_cost", 0):  # then what acted on a reset row is of no use
        acted = acted.masked_fill(batch.reset_row.unsqueeze(-1), 0)
    yield Given("ratio", "behaviour_params", acted, 1)
    if getattr(config, "value_cloning_cost", 0):
        yield Given("value", "behaviour_value", batch.behaviour_value, 1)


def _find_culprit(all_given: list[Given], batch: Batch) -> Culprit | None:
    """Return what was bad first of all that the loss was given, or None if nothing was."""
    bad = [(given, places) for given in all_given if len(places := _bad_places(given.tensor))]
    if not bad:
        return None
    columns: set[int] = set()
    for given, places in bad:
        if given.column_axis is not None:
            columns.update(places[:, given.column_axis].tolist())
    first, places = bad[0]
    return Culprit(first.culprit, _describe(first, places, batch), tuple(sorted(columns)))


def _bad_places(tensor: Tensor) -> Tensor:
    """Return [places, axes], where a tensor is not finite."""
    return torch.nonzero(~tensor.isfinite()).cpu()


def _blame_loss(loss: Loss, all_given: list[Given], model: ActorCritic) -> Culprit | None:
    """Return which term of the loss is not finite, though all that it was given is.

    The entropy depends on the policy alone, so it tells bad probabilities from bad values.
    """
    of_policy = ("loss/entropy", "loss/policy_cloning")
    for name in (*of_policy, "loss/value", *loss.metrics):
        term = loss.metrics.get(name)
        if term is None or not name.startswith("loss/") or term.isfinite():
            continue
        # A number may be finite and overflow float32 (3e38) when it is squared.
        # What else is among the weights may be a square already, as PopArt's, or hold no numbers.
        named = {"reward", "last_reward", "obs", *(name for name, _ in model.named_parameters())}
        sizes = {x.name: float(x.tensor.abs().max()) for x in all_given if x.name in named}
        largest = max(sizes, key=lambda name: sizes[name])
        what = (
            f"{name} is {float(term):g}, though all that it was given is finite, the largest of it "
            f"{sizes[largest]:g} in {largest}"
        )
        return Culprit("ratio" if name in of_policy else "value", what)
    return None


def _blame_gradient(model: ActorCritic) -> Culprit:
    """Return where the gradient is not finite, or largest."""
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    for name, gradient in gradients.items():
        if not gradient.isfinite().all():
            return Culprit("gradient", f"the gradient of {name} is not finite")
    sizes = {name: float(gradient.abs().max()) for name, gradient in gradients.items()}
    worst = max(sizes, key=lambda name: sizes[name], default="")
    size = f": in {worst} it is {sizes[worst]:g}" if worst else ""
    return Culprit("gradient", f"the norm of the gradient overflows{size}")


def _describe(given: Given, places: Tensor, batch: Batch) -> str:
    """Say which number is the first that is bad, and where it is from."""
    place = places[0].tolist()
    text = f"{given.name}{place if place else ''} is {float(given.tensor[tuple(place)]):g}"
    if given.column_axis is not None:
        row = f"row {place[0]} of " if given.column_axis else ""
        text += f" ({row}{_unroll(place[given.column_axis], batch)})"
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
