"""LASER's trust region: states in which the policy has changed too much are not learned from.

Schmitt et al., "Off-policy actor-critic with shared experience replay", 2019,
https://arxiv.org/abs/1909.11583.
"""

from __future__ import annotations

from torch import Tensor

from ritornello.agent.algorithms.impala_config import ImpalaConfig
from ritornello.agent.algorithms.passes import Pass
from ritornello.agent.distributions import NO_IMPLIED_KL
from ritornello.agent.models.base import ActorCritic
from ritornello.core.errors import ConfigError


def trusted(seen: Pass, config: ImpalaConfig) -> Tensor | None:
    """Return [T, B] bool, states whose policy is still near the one that acted; None: all are."""
    if config.trust_region == "none":
        return None
    if config.trust_region == "implied":
        distance = seen.pi.implied_kl(seen.mu, config.rho_bar)
    elif config.trust_region == "kl_pi_mu":
        distance = seen.pi.kl(seen.mu)
    else:
        distance = seen.mu.kl(seen.pi)
    return distance < config.trust_threshold


def check_trust(model: ActorCritic, config: ImpalaConfig) -> None:
    """Raise ConfigError if the distance is not known of the policies of this model."""
    if config.trust_region == "implied" and not model.distribution.has_implied_kl:
        raise ConfigError(NO_IMPLIED_KL)
