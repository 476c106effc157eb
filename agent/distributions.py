"""Distributions of actions: what a policy's parameters mean.

A model says for each observation the P parameters of the distribution from which an action is
drawn. Everything that depends on what these mean is here: the loss asks for log-probabilities,
entropy and divergences, and actors ask for a draw or the mode. What an action is, and how it is
stored, is core/spec.py's `ActionSpec`; `distribution_of` goes from one to the other.

    distribution = distribution_of(env_spec.actions)
    action = distribution.sample(params, generator)     # [..., *action_shape]
    pi, mu = distribution.policy(params), distribution.policy(behaviour_params)
    pi.log_prob(action), pi.entropy(), mu.kl(pi)        # [...] each

* `Categorical`: one of A actions; the parameters are logits.

Real numbers, and several distributions side by side, are in agent/other_distributions.py.

tests/reference/distribution_loops.py has the slow twins. Sizes: P parameters, A actions.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ritornello.core.errors import ConfigError
from ritornello.core.spec import ActionSpec

# Of a log-ratio of two densities, which unlike that of two probabilities has no bound in practice:
# beyond it the ratio would overflow where it is squared.
MAX_LOG_RATIO = 20.0
# Logit of a choice that is not allowed. It is finite, so that p log p is 0 rather than NaN where
# p = 0, and far below any other, so that its probability is exactly 0 in float32.
FORBIDDEN = -1e9


def masked(params: Tensor, action_mask: Tensor | None) -> Tensor:
    """Return parameters in which choices that are not allowed have probability 0, and no gradient.

    `params` are [..., P]. `action_mask`, [..., P] bool, is False at the logit of each choice that
    is not allowed; of each choice at least one option is. None allows all. Log-probabilities,
    entropies and divergences are then those of the policy over what is allowed, and draws and modes
    are allowed ones (Huang and Ontanon 2020, https://arxiv.org/abs/2006.14171, section 3.2).
    """
    return params if action_mask is None else params.masked_fill(~action_mask, FORBIDDEN)


class Policy(ABC):
    """A distribution at given parameters `[..., P]`. Results carry gradients to them."""

    params: Tensor  # [..., P]; of choices log-probabilities in place of logits

    def highest_entropy(self, action_mask: Tensor | None) -> Tensor | float | None:
        """Return the highest possible entropy, in nats; None if there is none.

        With a mask as for `masked`, it is one number for each row.
        """
        return None

    @abstractmethod
    def log_prob(self, action: Tensor) -> Tensor:
        """Return log-probabilities (of numbers: log-densities) [...] of actions, in nats."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """Return the entropy [...] in nats; that of a density may be negative."""

    @abstractmethod
    def kl(self, other: Policy) -> Tensor:
        """Return KL(self || other) >= 0 [...] in nats; `other` is of the same distribution."""

    @abstractmethod
    def detach(self) -> Policy:
        """Return the same without gradients."""

    def implied_kl(self, behaviour: Policy, rho_bar: float) -> Tensor:
        """Return LASER's KL(self || the policy whose value V-trace learns), [...].

        Raises:
          ConfigError: if the distribution has no closed form of it.
        """
        raise ConfigError(NO_IMPLIED_KL)


NO_IMPLIED_KL = (
    "kl_mask_kind is implied, expected one of the other kinds for these actions: the policy that "
    "V-trace implies has a closed form only where one of several actions is chosen. Use "
    "--kl_mask_kind=kl_pi_mu."
)


class Distribution(ABC):
    """A family of policies. It has no state, and equal specs have equal distributions."""

    param_count: int  # P
    has_implied_kl = False  # whether `Policy.implied_kl` has a closed form

    @abstractmethod
    def policy(self, params: Tensor) -> Policy:
        """Return the policy at parameters [..., P] float32."""

    @abstractmethod
    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        """Draw actions [..., *action_shape] on the device of `params`; no gradient."""

    @abstractmethod
    def mode(self, params: Tensor) -> Tensor:
        """Return the most probable actions [..., *action_shape]."""

    def bounded(self, log_ratio: Tensor) -> Tensor:
        """Return the log-ratio of two policies at an action; of densities, at most MAX_LOG_RATIO.

        That of one choice is unchanged: it is bounded, because one of the two drew the action.
        """
        return log_ratio.clamp(max=MAX_LOG_RATIO)


class CategoricalPolicy(Policy):
    """One of A actions; `params` are log-probabilities [..., A]."""

    def __init__(self, log_probs: Tensor) -> None:
        """Take log-probabilities [..., A] whose exponentials sum to 1."""
        self.params = log_probs

    def highest_entropy(self, action_mask: Tensor | None) -> Tensor | float:
        """Return the entropy of equal probabilities."""
        if action_mask is None:
            return math.log(self.params.shape[-1])
        return action_mask.sum(-1).log()

    def log_prob(self, action: Tensor) -> Tensor:
        """Return log pi(a), [...], of actions [...] int64."""
        return self.params.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """Return H >= 0."""
        return -(self.params.exp() * self.params).sum(-1)

    def kl(self, other: Policy) -> Tensor:
        """Return KL(self || other)."""
        return (self.params.exp() * (self.params - other.params)).sum(-1)

    def detach(self) -> Policy:
        """Return the same without gradients."""
        return CategoricalPolicy(self.params.detach())

    def implied_kl(self, behaviour: Policy, rho_bar: float) -> Tensor:
        """Return KL(pi || pi_mu), LASER's behaviour relevance of a state.

        pi_mu = min(rho_bar mu, pi) / Z is the policy whose value V-trace really learns. In closed
        form

            log Z + sum_a pi(a) max(0, log pi(a) - log mu(a) - log rho_bar)
            Z = sum_a min(rho_bar mu(a), pi(a))

        From the definition in Schmitt et al. 2019, section 4, https://arxiv.org/abs/1909.11583.
        With rho_bar = 1 it is at most KL(pi || mu): thresholds of the two are not interchangeable.
        """
        log_pi = self.params
        excess = (log_pi - behaviour.params - math.log(rho_bar)).clamp(min=0)
        # log min(rho_bar mu, pi) = log pi - excess. Z itself may be too small for float32.
        return (log_pi - excess).logsumexp(-1) + (log_pi.exp() * excess).sum(-1)


class Categorical(Distribution):
    """One of A actions, from logits."""

    has_implied_kl = True

    def __init__(self, count: int) -> None:
        """Choose among A = `count` actions."""
        self.param_count = count

    def policy(self, params: Tensor) -> CategoricalPolicy:
        """Return the policy of logits [..., A]."""
        return CategoricalPolicy(params.log_softmax(-1))

    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        """Draw actions [...] int64."""
        # Exponential race: argmax(p / Exp(1)) is a draw from p; one pass, no cumulative sums.
        noise = torch.empty_like(params).exponential_(generator=generator)
        return (params - noise.log()).argmax(-1)

    def mode(self, params: Tensor) -> Tensor:
        """Return the actions [...] int64 with the highest logits."""
        return params.argmax(-1)

    def bounded(self, log_ratio: Tensor) -> Tensor:
        """Return the log-ratios as they are."""
        return log_ratio


def distribution_of(actions: ActionSpec) -> Distribution:
    """Return the distribution from which such actions are drawn."""
    if actions.is_single_choice:
        return Categorical(actions.parts[0].count)
    from ritornello.agent.other_distributions import DiagGaussian, Joint

    if len(actions.parts) == 1:
        return DiagGaussian(actions.parts[0].count)
    return Joint(actions)
