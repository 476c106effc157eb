"""A model that acts by the values of actions: it takes the best one, or any by chance.

The network is that of `ActorCritic`. The outputs of the policy layer are advantages here, which
with the value head make the values of the actions (dueling: Wang et al. 2016,
https://arxiv.org/abs/1511.06581, equation 9):

    Q(x, a) = V(x) + A(x, a) - mean_b A(x, b)

The policy that all other parts see, from workers to exported networks, is the epsilon-greedy one:
its log-probabilities stand in the place of logits, and the value of a state is that of its best
action.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ritornello.agent.distributions import Categorical, masked
from ritornello.agent.models.base import ActorCritic, Heads
from ritornello.core.errors import ConfigError

EPSILON = "epsilon"  # its name among the weights, by which saved ones are known
SMALLEST_SHARE = 1e-6  # of epsilon, as log 0 is no number; and by which the best action is ahead


class ActionValueModel(ActorCritic):
    """Values of one of A actions, over a torso and a core. `epsilon` is saved with the weights."""

    epsilon: Tensor

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Put the parts together, as `ActorCritic`.

        Raises:
          ConfigError: if an action is anything but one of several.
        """
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        if not isinstance(self.distribution, Categorical):
            raise ConfigError(
                "an algorithm that learns values of actions takes one of several actions, and here "
                "an action is something else. Use --algorithm=impala."
            )
        self.register_buffer(EPSILON, torch.ones(()))

    @torch.no_grad()
    def explore(self, epsilon: float | Tensor) -> None:
        """Set epsilon, the share of steps in which any action is equally probable."""
        self.epsilon.copy_(torch.as_tensor(epsilon).clamp(min=SMALLEST_SHARE))

    def action_values(self, hidden: Tensor, task_id: Tensor | None = None) -> Tensor:
        """Return Q(x, a) [..., A] float32 of hidden units [..., H], in reward units."""
        advantages = self.policy_head(hidden)
        values = self.value_head(hidden, task_id).value
        made: Tensor = values.unsqueeze(-1) + advantages - advantages.mean(-1, keepdim=True)
        return made

    def heads(
        self, hidden: Tensor, task_id: Tensor | None = None, action_mask: Tensor | None = None
    ) -> Heads:
        """Return the epsilon-greedy policy, and the value of the best action that is allowed."""
        with torch.no_grad():
            allowed = masked(self.action_values(hidden, task_id), action_mask)
            best = allowed.max(-1)
            params = masked(self._log_probs(allowed, action_mask, best.indices), action_mask)
        return Heads(params, best.values, best.values)

    def _log_probs(self, values: Tensor, action_mask: Tensor | None, best: Tensor) -> Tensor:
        count = values.shape[-1] if action_mask is None else action_mask.sum(-1, keepdim=True)
        any_action = (self.epsilon / count).expand(values.shape)
        is_best = best.unsqueeze(-1) == torch.arange(values.shape[-1], device=values.device)
        ahead = (1 - self.epsilon).clamp(min=SMALLEST_SHARE)  # for whoever asks for no chance
        return (any_action + ahead * is_best).log()
