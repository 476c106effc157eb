"""A target network: a copy of the model that stays as it is for a while.

An algorithm that learns from the same batches several times measures its steps against a policy
that does not move with each of them (agent/algorithms/impact.py). The copy is a whole model. It has
the statistics of PopArt and of the observations that belong to its weights, so what it says of a
state in reward units changes only when it is copied anew, however the model's own units move.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ritornello.agent.models.base import ActorCritic
from ritornello.core.saved_state import item, whole


class TargetNetwork:
    """Owns the copy, and knows when it is due. Belongs to the learner's thread."""

    def __init__(self, model: ActorCritic, period: int) -> None:
        """Copy the model, which is not prepared for learning yet (`Learner.__init__`).

        Args:
          model: the network that is trained, on its device.
          period: number of updates for which a copy is used.
        """
        self.network = copy.deepcopy(model).requires_grad_(False)
        self.period = period
        # Updates with the present copy; None: it is of no use yet, because weights may still be
        # loaded into the model.
        self.age: int | None = None

    @property
    def is_due(self) -> bool:
        """Whether the next update begins with a new copy."""
        return self.age is None or self.age >= self.period

    @torch.no_grad()
    def count_update(self, model: ActorCritic) -> int:
        """Copy the model if that is due, and count one update with the copy.

        Returns:
          The age of the copy: the number of updates that have been made with it before this one.
        """
        if self.is_due:
            self._load(model.state_dict())
            self.age = 0
        age = self.age or 0
        self.age = age + 1
        return age

    def snapshot(self) -> Callable[[], None]:
        """Remember what `count_update` changes; return a function that restores it."""
        age = self.age
        weights = None
        if self.is_due:  # else the weights stay as they are, and need no copy
            weights = copy.deepcopy(self.network.state_dict())

        def restore() -> None:
            self.age = age
            if weights is not None:
                self._load(weights)

        return restore

    def state_dict(self) -> dict[str, Any]:
        """Return weights and age; the tensors are those in use."""
        return {"weights": dict(self.network.state_dict()), "age": self.age}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`; a state of another network raises RuntimeError."""
        self._load(item(state, "weights", dict))
        self.age = whole(state, "age", default=None)

    def _load(self, weights: Mapping[str, Tensor]) -> None:
        self.network.load_state_dict(weights)
