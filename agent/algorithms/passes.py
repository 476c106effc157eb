"""One pass of the model over a batch: what it says now, beside what acted said then."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from agent.algorithms.batch import Batch
from agent.models.base import ActorCritic, Heads


class Pass(NamedTuple):
    """What the model says of T steps of B unrolls, with a gradient; A actions, H hidden units."""

    hidden: Tensor  # [T+1, B, H]
    heads: Heads  # of [T+1, B]; the last row bootstraps
    log_pi: Tensor  # [T, B, A], log-probabilities of the policy that is trained
    log_mu: Tensor  # [T, B, A], of the policy that acted; without a gradient
    log_pi_action: Tensor  # [T, B], log pi of the action that was done
    log_mu_action: Tensor  # [T, B], log mu of it


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
    log_pi = heads.params[:-1].log_softmax(-1)
    log_mu = batch.behaviour_params.log_softmax(-1)
    action = batch.action.unsqueeze(-1)
    return Pass(
        hidden,
        heads,
        log_pi,
        log_mu,
        log_pi.gather(-1, action).squeeze(-1),
        log_mu.gather(-1, action).squeeze(-1),
    )
