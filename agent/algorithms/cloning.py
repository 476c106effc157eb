"""CLEAR's terms: a policy and values that stay near those with which replayed data was made.

Rolnick et al. 2019, https://arxiv.org/abs/1811.11682.
"""

from __future__ import annotations

from torch import Tensor

from ritornello.agent.algorithms import losses
from ritornello.agent.algorithms.batch import Batch
from ritornello.agent.algorithms.impala_config import ImpalaConfig
from ritornello.agent.algorithms.passes import Pass
from ritornello.agent.models.base import ActorCritic


def cloning_terms(
    model: ActorCritic,
    batch: Batch,
    seen: Pass,
    values: Tensor,
    valid: Tensor,
    config: ImpalaConfig,
) -> dict[str, Tensor]:
    """Return CLEAR's terms per step of replayed data, or none if their costs are 0.

    They are not for trusted states only: cloning is for just those that LASER drops.

    Args:
      model: whose value head knows the units of the values.
      batch: T steps of B unrolls.
      seen: of the model, over the batch.
      values: [T, B] float32, in the units of the value loss, with a gradient.
      valid: [T, B] bool, steps that count.
      config: has the costs.
    """
    terms: dict[str, Tensor] = {}
    mask = valid & ~batch.is_online
    if config.policy_cloning_cost:
        cloning = losses.policy_cloning(seen.mu, seen.pi)
        terms["policy_cloning"] = config.policy_cloning_cost * cloning * mask
    if config.value_cloning_cost:
        # Stored in reward units, because the statistics have moved since; compared in today's.
        behaviour_values = model.value_head.normalise(batch.behaviour_value, batch.task_id)
        cloning = losses.value_cloning(values, behaviour_values)
        terms["value_cloning"] = config.value_cloning_cost * cloning * mask
    return terms
