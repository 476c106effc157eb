"""One pass of the model over a batch: what it says now, beside what acted said then."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ritornello.agent.algorithms.batch import Batch
from ritornello.agent.distributions import Policy
from ritornello.agent.models.base import ActorCritic, Heads


class Pass(NamedTuple):
    """What the model says of T steps of B unrolls, with a gradient; H hidden units."""

    hidden: Tensor  # [T+1, B, H]
    heads: Heads  # of [T+1, B]; the last row bootstraps
    pi: Policy  # of [T, B], the policy that is trained
    mu: Policy  # of [T, B], the policy that acted; without a gradient
    log_pi_action: Tensor  # [T, B], log pi of the action that was done
    log_mu_action: Tensor  # [T, B], log mu of it
    log_ratio: Tensor  # [T, B], log pi - log mu of it; bounded where actions are numbers


def look_at(model: ActorCritic, batch: Batch, keep_gradient: Tensor | None = None) -> Pass:
    """Run the model once over all rows.

    Args:
      model: the network, on the batch's device.
      batch: T steps of B unrolls.
      keep_gradient: see `ActorCritic.hidden`.
    """
    features = model.torso(batch.obs, batch.task_id)  # [T+1, B, F], its one pass
    hidden, _ = model.hidden(features, batch.inputs(), batch.state, keep_gradient)
    heads = model.heads(hidden, batch.task_id)
    pi = model.distribution.policy(heads.params[:-1])
    mu = model.distribution.policy(batch.behaviour_params)
    log_pi_action, log_mu_action = pi.log_prob(batch.action), mu.log_prob(batch.action)
    log_ratio = model.distribution.bounded(log_pi_action - log_mu_action)
    return Pass(hidden, heads, pi, mu, log_pi_action, log_mu_action, log_ratio)
