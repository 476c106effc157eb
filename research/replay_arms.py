"""Other uses of replayed data in IMPALA's loss: arms of queue.yaml.

    --algorithm=research.replay_arms:policy_on_new --entropy_on=online
    --algorithm=research.replay_arms:uncut_traces

Both are IMPALA in all else.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ritornello.agent.algorithms import losses
from ritornello.agent.algorithms.base import VTraceConfig, register_algorithm
from ritornello.agent.algorithms.batch import Batch
from ritornello.agent.algorithms.impala import Impala
from ritornello.agent.algorithms.vtrace import VTrace


def of_new_data(
    config: VTraceConfig,
    batch: Batch,
    log_rhos: Tensor,
    values: Tensor,
    trust: Tensor | None = None,
) -> VTrace:
    """Return V-trace's targets, and advantages [T, B] that are 0 in replayed unrolls."""
    corrected = losses.correct(config, batch, log_rhos, values, trust)
    return corrected._replace(advantages=corrected.advantages * batch.is_online)


def uncut(
    config: VTraceConfig,
    batch: Batch,
    log_rhos: Tensor,
    values: Tensor,
    trust: Tensor | None = None,
) -> VTrace:
    """Return lambda-returns of what was done, and their advantages [T, B] by the clipped ratio.

    No ratio cuts a trace, as in Peng's Q(lambda) (Kozuno et al. 2021,
    https://arxiv.org/abs/2103.00107): targets are biased towards the policy that acted.
    """
    as_acted = log_rhos.masked_fill(torch.isfinite(log_rhos), 0.0)
    corrected = losses.correct(config, batch, as_acted, values, trust)
    ratio = log_rhos.exp().clamp(max=config.rho_pg_bar)
    return corrected._replace(advantages=corrected.advantages * ratio)


@register_algorithm("policy_on_new")
class PolicyOnNew(Impala):
    """The value learns from all data, the policy from new data only.

    So does the auxiliary phase of PPG (Cobbe et al. 2021, https://arxiv.org/abs/2009.04416), which
    found that values gain from data used often, and policies do not.
    """

    correct = staticmethod(of_new_data)


@register_algorithm("uncut_traces")
class UncutTraces(Impala):
    """Targets and advantages whose traces no ratio cuts."""

    correct = staticmethod(uncut)
