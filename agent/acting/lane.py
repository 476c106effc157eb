"""Environments that step together, where they are now, and how both are saved.

agent/acting/rollout.py steps the lanes of a worker in turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from ritornello.agent.acting.actor import ActionSource, LocalActor, Observation
from ritornello.core.saved_state import array, item, within
from ritornello.wrappers.vector import EnvVector, check_actions


@dataclass
class Lane:
    """n environments that step together, their actor, and their present observation."""

    env: EnvVector
    actor: ActionSource
    task_id: np.ndarray  # [n] int64, number of the game that each plays
    rows: slice = field(init=False)  # its rows of a block
    now: Observation = field(init=False)  # with the last action and reward

    def start(self, first_row: int) -> None:
        """Reset the environments, whose rows of a block begin at `first_row`; ask for actions."""
        self.rows = slice(first_row, first_row + self.env.num_envs)
        stacks, mask = self.env.reset(), self.env.action_mask
        self.now = Observation.at_start(stacks, self.task_id, self.env.spec.actions, mask)
        self.actor.ask(self.now)

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state on which the next step depends.

        Needs a restorable environment and a `LocalActor`.
        """
        return {
            "env": self.env.state_dict(),
            "actor": cast("LocalActor", self.actor).actor.state_dict(),
            "first": self.now.first.astype(np.uint8),
            "last_action": self.now.last_action.copy(),
            "last_reward": self.now.last_reward.copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state from `state_dict`, and ask the actor for the next action, as then.

        Raises:
          StateError: if it is of other environments.
        """
        env = self.env
        with within("env"):
            stacks = env.load_state_dict(item(state, "env", dict))
        last = self.now.last_action
        last_action = array(state, "last_action", last.dtype, last.shape)
        with within("last_action"):
            check_actions(last_action, env.num_envs, env.spec.actions)
        count = (env.num_envs,)
        self.now = Observation(
            stacks=stacks,
            first=array(state, "first", np.uint8, count).astype(np.bool_),
            last_action=last_action,
            last_reward=array(state, "last_reward", np.float32, count),
            task_id=self.task_id,
            action_mask=env.action_mask,
        )
        with within("actor"):
            cast("LocalActor", self.actor).actor.load_state_dict(item(state, "actor", dict))
        self.actor.ask(self.now)
