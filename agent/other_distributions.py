"""Distributions of actions that are not one choice: real numbers, and several parts side by side.

* `DiagGaussian`: D real numbers, each by itself; the parameters are D means, and then D logarithms
  of standard deviations. A draw may be any number: the environment is given what its bounds leave
  of it (wrappers/gym_actions.py), while the log-probability is that of the draw.
* `Joint`: several of these side by side, independent given the observation, so that
  log-probabilities, entropies and divergences are sums over the parts.

Sizes: P parameters, D numbers, W numbers of an action of several parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ritornello.agent.distributions import Categorical, Distribution, Policy
from ritornello.core.spec import CHOICE, ActionPart, ActionSpec

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


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
        """Return the sum over the parts; None if a part has none."""
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


def _of_part(part: ActionPart) -> Distribution:
    return Categorical(part.count) if part.kind == CHOICE else DiagGaussian(part.count)
