"""Games that are played and not learned from: by test mode, and by everything that looks at agents.

Equal seeds, in equally many environments at once and at the same precision, give the same games,
whatever they are played for. Training steps its environments in agent/acting/rollout.py, with the
same actors and observations. Next to read: agent/testing/whole_games.py, analysis/playing.py.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from ritornello.agent.acting.actor import Actor, Observation
from ritornello.agent.assembly import Blueprint, env_config
from ritornello.agent.models.base import ActorCritic, Heads, Inputs
from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import ConfigError
from ritornello.core.rng import child_seed
from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.gym_vector import GymVector
from ritornello.wrappers.registry import make_env_vector
from ritornello.wrappers.vector import EnvVector, StepResult


def game_config(blueprint: Blueprint, env: str) -> EnvConfig:
    """Return the config of one game as agents play it: whole games, lost lives end nothing.

    `env` may be one of the agent's games or another one; the actions are the agent's.
    """
    config = env_config(blueprint.flags, testing=True)
    if blueprint.env_spec.tasks == (env,):
        return config
    return replace(config, env_id=env, actions=blueprint.env_spec.action_meanings)


def env_seeds(seed: int, count: int, purpose: str = "test") -> list[int]:
    """Return the seeds of `count` environments; another `purpose` gives other games."""
    return [child_seed(seed, purpose, index) for index in range(count)]


def make_filmed_env(config: EnvConfig, seeds: Sequence[int]) -> GymVector:
    """Make environments that can be rendered as pictures, one per seed.

    Raises:
      ConfigError: if their backend draws no pictures.
    """
    env = make_env_vector(config, len(seeds), seeds, render_mode="rgb_array")
    if not isinstance(env, GymVector):
        raise ConfigError("rendering needs the Gymnasium backend; leave --env_backend at auto.")
    return env


@dataclass(frozen=True)
class Step:
    """One decision in each of E environments, and its results."""

    inputs: Inputs  # [E, ...], what the model looked at
    state: torch.Tensor  # [E, state_count], its memory before the decision
    features: torch.Tensor  # [E, F] float32
    heads: Heads  # [E, ...]
    action: np.ndarray  # [E, *action_shape]
    reward: np.ndarray  # [E] float32, raw, what the action earned
    result: StepResult  # all that it led to; its arrays are valid until the next step

    @property
    def episodes(self) -> list[EpisodeEnd]:
        """Whole games that ended with this step."""
        return self.result.episodes


class Player:
    """A model that plays in E environments. Not thread-safe: it owns a random stream."""

    def __init__(
        self,
        model: ActorCritic,
        env: EnvVector,
        tasks: Sequence[int],
        *,
        seed: int = 0,
        games_before: int = 0,
        greedy: bool = False,
        keep_inputs: bool = False,
    ) -> None:
        """Start all environments. The caller closes them.

        Args:
          model: the network, on the CPU.
          env: E environments.
          tasks: number of the game in each environment, as the model knows it.
          seed: seed of the draws of actions.
          games_before: games that were already played with this seed; other actions are then drawn.
          greedy: take the most probable action instead of a draw.
          keep_inputs: copy the observations, so that the inputs of a step outlive the next step.
        """
        self._actor = Actor(
            model, child_seed(seed, "test actor", games_before), with_features=False, greedy=greedy
        )
        self._env = env
        self._keep_inputs = keep_inputs
        self._state = model.initial_state(env.num_envs)
        self.observation = Observation.at_start(
            env.reset(), np.array(tasks, np.int64), env.spec.actions, env.action_mask
        )

    @torch.inference_mode()
    def step(self, action: np.ndarray | None = None) -> Step:
        """Decide and act once in each environment.

        If `action` [E, *action_shape] is given, it is done in place of the model's; the model still
        decides.
        """
        shown = self.observation
        if self._keep_inputs:
            shown = copy.deepcopy(shown)
        passed = self._actor.forward(shown, self._state)
        if action is None:
            action = self._actor.choose(passed.heads.params).numpy()
        result = self._env.step(action)
        self.observation = shown.after(action, result)
        before, self._state = self._state, passed.state
        reward = result.reward.copy()
        return Step(passed.inputs, before, passed.features, passed.heads, action, reward, result)
