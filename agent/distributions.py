"""Distributions of actions: what a policy's parameters mean.

A model says for each observation the P parameters of the distribution from which an action is
drawn. Everything that depends on what these mean is here: the loss asks for log-probabilities,
entropy and divergences, and who acts for a draw or the mode. What an action is, and how it is
stored, is core/spec.py's `ActionSpec`; `distribution_of` goes from one to the other.

    distribution = distribution_of(env_spec.actions)
    action = distribution.sample(params, generator)     # [..., *action_shape]
    pi, mu = distribution.policy(params), distribution.policy(behaviour_params)
    pi.log_prob(action), pi.entropy(), mu.kl(pi)        # [...] each

* `Categorical`: one of A actions; the parameters are logits.
* `DiagGaussian`: D real numbers, each by itself; the parameters are D means, and then D logarithms
  of standard deviations. A draw may be any number: the environment is given what its bounds leave
  of it (wrappers/gym_actions.py), while the log-probability is that of the draw.
* `Joint`: several of these side by side, independent given the observation, so that
  log-probabilities, entropies and divergences are sums over the parts.

tests/reference/distribution_loops.py has the slow twins. Sizes: P parameters, A actions, D numbers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from ritornello.core.errors import ConfigError
from ritornello.core.spec import CHOICE, ActionPart, ActionSpec

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
# Of a log-ratio of two densities, which unlike that of two probabilities has no bound in practice:
# beyond it the ratio would overflow where it is squared.
MAX_LOG_RATIO = 20.0
# Logit of a choice that is not allowed. It is finite, so that p log p is 0 rather than NaN where
# p = 0, and far below any other, so that its probability is exactly 0 in float32.
FORBIDDEN = -1e9


def masked(params: Tensor, action_mask: Tensor | None) -> Tensor:
    """Return parameters whose choices that are not allowed have probability 0, and no gradient.

    Log-probabilities, entropies and divergences of them are those of the policy over what is
    allowed, and draws and modes are allowed ones (Huang and Ontanon 2020,
    https://arxiv.org/abs/2006.14171, section 3.2).

    Args:
      params: [..., P] float32.
      action_mask: [..., P] bool, False at the logit of each choice that is not allowed; at least
        one of each choice is. None: all are allowed.
    """
    return params if action_mask is None else params.masked_fill(~action_mask, FORBIDDEN)


# The formulas of one of A actions, of log-probabilities: [..., A] -> [...].


def entropy(log_pi: Tensor) -> Tensor:
    """Return H(pi) >= 0 in nats."""
    return -(log_pi.exp() * log_pi).sum(-1)


def kl_divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return KL(p || q) >= 0 in nats."""
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def implied_kl(log_pi: Tensor, log_mu: Tensor, rho_bar: float = 1.0) -> Tensor:
    """Return KL(pi || pi_mu), LASER's behaviour relevance of a state.

    pi_mu = min(rho_bar mu, pi) / Z is the policy whose value V-trace really learns. In closed form

        log Z + sum_a pi(a) max(0, log pi(a) - log mu(a) - log rho_bar)
        Z = sum_a min(rho_bar mu(a), pi(a))

    From the definition in Schmitt et al. 2019, section 4, https://arxiv.org/abs/1909.11583. With
    rho_bar = 1 it is at most KL(pi || mu), so thresholds of the two are not interchangeable.
    """
    excess = (log_pi - log_mu - math.log(rho_bar)).clamp(min=0)
    # log min(rho_bar mu, pi) = log pi - excess. Z itself may be too small for float32.
    return (log_pi - excess).logsumexp(-1) + (log_pi.exp() * excess).sum(-1)


class Policy(ABC):
    """A distribution at given parameters `[..., P]`. Results carry gradients to them."""

    params: Tensor  # [..., P]; of choices log-probabilities in place of logits

    def highest_entropy(self, action_mask: Tensor | None) -> Tensor | float | None:
        """Return the highest entropy that there is, in nats; None: there is no highest.

        Args:
          action_mask: [..., P] bool, as for `masked`; there is one result for each row of it.
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
        """Return LASER's KL(self || policy that V-trace learns of), [...].

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
    """A family of policies. Stateless; equal specs have equal ones."""

    param_count: int  # P

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
        """Return log-ratios of two policies at an action: at most MAX_LOG_RATIO, if of densities.

        Those of one choice are as they are: they have a bound, as one of the two drew the action.
        """
        return log_ratio.clamp(max=MAX_LOG_RATIO)

    @property
    def has_implied_kl(self) -> bool:
        """Whether `Policy.implied_kl` has a closed form."""
        return False


class CategoricalPolicy(Policy):
    """One of A actions; `params` are log-probabilities [..., A]."""

    def __init__(self, log_probs: Tensor) -> None:
        """Take log-probabilities [..., A] whose exponentials sum to 1."""
        self.params = log_probs

    def highest_entropy(self, action_mask: Tensor | None) -> Tensor | float:
        """Return that of equal odds."""
        if action_mask is None:
            return math.log(self.params.shape[-1])
        return action_mask.sum(-1).log()

    def log_prob(self, action: Tensor) -> Tensor:
        """Return log pi(a), [...], of actions [...] int64."""
        return self.params.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """Return H >= 0."""
        return entropy(self.params)

    def kl(self, other: Policy) -> Tensor:
        """Return KL(self || other)."""
        return kl_divergence(self.params, other.params)

    def detach(self) -> Policy:
        """Return the same without gradients."""
        return CategoricalPolicy(self.params.detach())

    def implied_kl(self, behaviour: Policy, rho_bar: float) -> Tensor:
        """Return LASER's implied KL."""
        return implied_kl(self.params, behaviour.params, rho_bar)


class Categorical(Distribution):
    """One of A actions, from logits."""

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
        """Return them as they are."""
        return log_ratio

    @property
    def has_implied_kl(self) -> bool:
        """It has."""
        return True


class DiagGaussianPolicy(Policy):
    """D independent real numbers; `params` [..., 2D] are means and log standard deviations."""

    def __init__(self, params: Tensor) -> None:
        """Take means and logarithms of standard deviations."""
        self.params = params
        self.mean, self.log_std = params.chunk(2, -1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Return log-densities [...] of actions [..., D], summed over the numbers."""
        standard = (action - self.mean) * (-self.log_std).exp()
        return -(0.5 * standard.square() + self.log_std + HALF_LOG_TWO_PI).sum(-1)

    def entropy(self) -> Tensor:
        """Return the differential entropy."""
        return (self.log_std + (0.5 + HALF_LOG_TWO_PI)).sum(-1)

    def kl(self, other: Policy) -> Tensor:
        """Return KL(self || other)."""
        assert isinstance(other, DiagGaussianPolicy)
        difference = self.log_std - other.log_std
        standard = (self.mean - other.mean) * (-other.log_std).exp()
        return (0.5 * ((2 * difference).exp() + standard.square() - 1) - difference).sum(-1)

    def detach(self) -> Policy:
        """Return the same without gradients."""
        return DiagGaussianPolicy(self.params.detach())


class DiagGaussian(Distribution):
    """D real numbers, each normally distributed by itself."""

    def __init__(self, count: int) -> None:
        """Draw D = `count` numbers."""
        self.param_count = 2 * count

    def policy(self, params: Tensor) -> DiagGaussianPolicy:
        """Return the policy of parameters [..., 2D]."""
        return DiagGaussianPolicy(params)

    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        """Draw actions [..., D] float32."""
        mean, log_std = params.detach().chunk(2, -1)
        noise = torch.empty_like(mean).normal_(generator=generator)
        return mean + log_std.exp() * noise

    def mode(self, params: Tensor) -> Tensor:
        """Return the means [..., D]."""
        return params.chunk(2, -1)[0]


class JointPolicy(Policy):
    """Independent parts. An action [..., W] has the numbers of one part after those of another."""

    def __init__(self, policies: Sequence[Policy], parts: Sequence[ActionPart]) -> None:
        """Take the policy of each part."""
        self.policies = tuple(policies)
        self._parts = tuple(parts)
        self.params = torch.cat([policy.params for policy in policies], -1)

    def highest_entropy(self, action_mask: Tensor | None) -> Tensor | float | None:
        """Return the sum over the parts, if all have one."""
        masks: Sequence[Tensor | None] = [None] * len(self.policies)
        if action_mask is not None:
            widths = [each.params.shape[-1] for each in self.policies]
            masks = action_mask.split_with_sizes(widths, -1)
        pairs = zip(self.policies, masks, strict=True)
        highest = [each.highest_entropy(own) for each, own in pairs]
        known = [value for value in highest if value is not None]
        return sum(known) if len(known) == len(highest) else None

    def log_prob(self, action: Tensor) -> Tensor:
        """Return the sum over the parts, [...], for actions [..., W]."""
        numbers = action.split_with_sizes([part.width for part in self._parts], -1)
        terms = [
            policy.log_prob(own.squeeze(-1).long() if part.kind == CHOICE else own)
            for policy, part, own in zip(self.policies, self._parts, numbers, strict=True)
        ]
        return torch.stack(terms).sum(0)

    def entropy(self) -> Tensor:
        """Return the sum over the parts."""
        return torch.stack([policy.entropy() for policy in self.policies]).sum(0)

    def kl(self, other: Policy) -> Tensor:
        """Return the sum over the parts."""
        assert isinstance(other, JointPolicy)
        pairs = zip(self.policies, other.policies, strict=True)
        return torch.stack([own.kl(others) for own, others in pairs]).sum(0)

    def detach(self) -> Policy:
        """Return the same without gradients."""
        return JointPolicy([policy.detach() for policy in self.policies], self._parts)


class Joint(Distribution):
    """Several distributions side by side, independent of each other."""

    def __init__(self, actions: ActionSpec) -> None:
        """Put together the distributions of the parts of an action."""
        self._parts = actions.parts
        self._each = [_of_part(part) for part in actions.parts]
        self._widths = [each.param_count for each in self._each]
        self._dtype = getattr(torch, actions.dtype)
        self.param_count = sum(self._widths)

    def policy(self, params: Tensor) -> JointPolicy:
        """Return the policy of parameters [..., P], those of one part after those of another."""
        pairs = zip(self._each, params.split_with_sizes(self._widths, -1), strict=True)
        return JointPolicy([each.policy(own) for each, own in pairs], self._parts)

    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        """Draw actions [..., W], the parts in turn."""
        pairs = zip(self._each, params.split_with_sizes(self._widths, -1), strict=True)
        return self._joined([each.sample(own, generator) for each, own in pairs])

    def mode(self, params: Tensor) -> Tensor:
        """Return the modes of the parts, [..., W]."""
        pairs = zip(self._each, params.split_with_sizes(self._widths, -1), strict=True)
        return self._joined([each.mode(own) for each, own in pairs])

    def _joined(self, drawn: Sequence[Tensor]) -> Tensor:
        columns = [
            (own.unsqueeze(-1) if part.kind == CHOICE else own).to(self._dtype)
            for part, own in zip(self._parts, drawn, strict=True)
        ]
        return torch.cat(columns, -1)


def distribution_of(actions: ActionSpec) -> Distribution:
    """Return the distribution from which such actions are drawn."""
    if len(actions.parts) == 1:
        return _of_part(actions.parts[0])
    return Joint(actions)


def _of_part(part: ActionPart) -> Distribution:
    return Categorical(part.count) if part.kind == CHOICE else DiagGaussian(part.count)
