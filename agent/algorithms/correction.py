"""V-trace of a whole batch, with the settings of an algorithm.

agent/algorithms/vtrace.py has the formula; here is what a batch and a config give to it.
"""

from __future__ import annotations

from torch import Tensor

from ritornello.agent.algorithms.batch import Batch
from ritornello.agent.algorithms.impala_config import VTraceConfig
from ritornello.agent.algorithms.rewards import REWARD_TRANSFORMS
from ritornello.agent.algorithms.vtrace import VTrace, vtrace


def correct(
    config: VTraceConfig,
    batch: Batch,
    log_rhos: Tensor,
    values: Tensor,
    trust: Tensor | None = None,
) -> VTrace:
    """Run V-trace in reward units; twice if the advantages have a lambda of their own.

    A policy gains from little noise and values from little bias, so that a smaller lambda may
    suit the advantages (Aitchison & Sweetser, "DNA", 2022, https://arxiv.org/abs/2206.10027).

    Args:
      config: has the discount, the bars and the lambdas.
      batch: T steps of B unrolls.
      log_rhos: [T, B] float32, log-ratio of the policy whose values are wanted and the one that
        acted; -inf where nothing is learned.
      values: [T+1, B] float32, in reward units.
      trust: [T, B] bool, states over which corrections flow back; None: all.
    """

    def with_lambda(lambda_: float) -> VTrace:
        return vtrace(
            log_rhos,
            config.discount * ~batch.terminated,
            REWARD_TRANSFORMS[config.reward_transform](batch.reward),
            values,
            rho_bar=config.rho_bar,
            c_bar=config.c_bar,
            rho_pg_bar=config.rho_pg_bar,
            lambda_=lambda_,
            trust=trust,
        )

    corrected = with_lambda(config.lambda_)
    if config.advantage_lambda is None:
        return corrected
    return corrected._replace(advantages=with_lambda(config.advantage_lambda).advantages)
