"""Two ways to learn more from what went well: upgoing advantages, and replay of successes alone.

    --algorithm=experiments.trials.upgoing:upgoing --algorithm_kwargs='{"upgoing_weight": 1}'

Both leave the value targets as V-trace has them and change the advantages only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ritornello.agent.algorithms.base import register_algorithm
from ritornello.agent.algorithms.batch import Batch
from ritornello.agent.algorithms.correction import correct
from ritornello.agent.algorithms.impala import Impala
from ritornello.agent.algorithms.impala_config import ImpalaConfig, VTraceConfig
from ritornello.agent.algorithms.rewards import REWARD_TRANSFORMS
from ritornello.agent.algorithms.vtrace import VTrace
from ritornello.core.errors import ConfigError


@dataclass(frozen=True)
class UpgoingConfig(ImpalaConfig):
    """Fields of ImpalaConfig come from their flags, these from --algorithm_kwargs."""

    upgoing_weight: float = 0.0  # of the upgoing advantage, added to V-trace's
    replay_successes: bool = False  # replayed steps push up only what went better than expected

    def __post_init__(self) -> None:
        """Raise ConfigError on values out of range."""
        super().__post_init__()
        if not self.upgoing_weight >= 0:
            raise ConfigError(f"upgoing_weight is {self.upgoing_weight}, expected 0 or more.")


@register_algorithm("upgoing")
class Upgoing(Impala):
    """IMPALA whose advantages look for what went better than expected."""

    Config = UpgoingConfig
    config: UpgoingConfig

    @staticmethod
    def correct(
        config: VTraceConfig,
        batch: Batch,
        log_rhos: Tensor,
        values: Tensor,
        trust: Tensor | None = None,
    ) -> VTrace:
        """Return V-trace's targets, and the advantages of the config."""
        assert isinstance(config, UpgoingConfig)
        found = correct(config, batch, log_rhos, values, trust)
        advantages = found.advantages
        if config.upgoing_weight:
            upgoing = upgoing_advantages(
                log_rhos,
                config.discount * ~batch.terminated,
                REWARD_TRANSFORMS[config.reward_transform](batch.reward),
                values,
                rho_pg_bar=config.rho_pg_bar,
            )
            advantages = advantages + config.upgoing_weight * upgoing
        if config.replay_successes:
            advantages = torch.where(batch.is_online, advantages, advantages.clamp(min=0))
        return found._replace(advantages=advantages)


@torch.no_grad()
def upgoing_advantages(
    log_rhos: Tensor,
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    *,
    rho_pg_bar: float = 1.0,
) -> Tensor:
    """Return how much better a step is than its value if only what goes well is followed.

    The upgoing policy update of Vinyals et al., "Grandmaster level in StarCraft II using
    multi-agent reinforcement learning" (2019), https://doi.org/10.1038/s41586-019-1724-z,
    supplementary methods: the return follows what was done as long as that was better than
    expected, and is cut by the value where it was worse.

        G_t = r_t + discount_t (G_{t+1} if r_{t+1} + discount_{t+1} V_{t+2} >= V_{t+1} else V_{t+1})
        A_t = rho_pg_t (G_t - V_t)

    Args:
      log_rhos: [T, B] float32, log pi(a_t|x_t) - log mu(a_t|x_t); -inf on reset rows, which nothing
        is followed into.
      discounts: [T, B] float32 in [0, 1]; 0 where the episode terminated.
      rewards: [T, B] float32, in the units of `values`.
      values: [T+1, B] float32; the last row bootstraps.
      rho_pg_bar: upper bound of the ratio.

    Returns:
      [T, B] float32, in the units of the values.
    """
    delta = rewards + discounts * values[1:] - values[:-1]
    goes_well = (delta >= 0) & ~log_rhos.isneginf()
    gain = torch.zeros_like(values[0])  # G_{t+1} - V_{t+1}; 0 where the value cuts it
    backwards = []
    for delta_t, discount_t, well_t in zip(
        reversed(delta.unbind()),
        reversed(discounts.unbind()),
        reversed(goes_well.unbind()),
        strict=True,
    ):
        gain_t = delta_t + discount_t * gain
        backwards.append(gain_t)
        gain = gain_t * well_t
    return log_rhos.exp().clamp(max=rho_pg_bar) * torch.stack(backwards[::-1])
