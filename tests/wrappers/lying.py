"""Environments that break a rule of Gymnasium each, and an honest one: for tests of what is said.

`tests.wrappers.lying:Lying-v0` does at its third step what `make_lying` was told.
"""

from contextlib import contextmanager

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.registry import forget_tried


class LyingEnv(gymnasium.Env):
    """Honest until `lie_at`; then it returns what `step_returns` makes of its honest results."""

    def __init__(self, lie=None, lie_at=3, reset_lie=None, space=None):
        self.observation_space = space or Box(-1, 1, (4,), np.float32)
        self.action_space = Discrete(2)
        self._lie, self._lie_at, self._reset_lie = lie, lie_at, reset_lie

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._t = 0
        honest = np.zeros(4, np.float32), {}
        return honest if self._reset_lie is None else self._reset_lie(*honest)

    def step(self, action):
        self._t += 1
        honest = np.zeros(4, np.float32), 1.0, False, False, {}
        return honest if self._lie is None or self._t < self._lie_at else self._lie(*honest)


class BlankEnv(gymnasium.Env):
    """Shows zeros; with `masks` it forbids action 0."""

    def __init__(self, numbers=4, actions=2, masks=False):
        self.observation_space = Box(-1, 1, (numbers,), np.float32)
        self.action_space = Discrete(actions)
        self._info = {"action_mask": np.arange(actions) > 0} if masks else {}

    def reset(self, *, seed=None, options=None):
        return np.zeros(self.observation_space.shape, np.float32), self._info

    def step(self, action):
        return np.zeros(self.observation_space.shape, np.float32), 0.0, False, False, self._info


@contextmanager
def registered(entry_point, env_id="tests/Lying-v0", **kwargs):
    """Have Gymnasium know an environment for the length of a test; what the id was is forgotten."""
    gymnasium.register(env_id, entry_point=entry_point, **kwargs)
    forget_tried()
    try:
        yield EnvConfig(env_id)
    finally:
        del gymnasium.registry[env_id]


def edit(config, **kwargs):
    """Register a BlankEnv in the place of what `config` names, as a notebook's cell run again."""
    del gymnasium.registry[config.env_id]
    gymnasium.register(config.env_id, entry_point=BlankEnv, kwargs=kwargs)
