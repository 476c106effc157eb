"""Games in which most actions are not allowed, and a forbidden one ends the game."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

from tests.fakes import Drawn

LOCKS, KEYS = 10, 20


class LocksEnv(Drawn):
    """Ten locks in a row. Each takes 2 of 20 keys, and a lamp says which of the two opens it.

    Observation: which lock it is, and the lamp. Opening one pays 1, so a game is worth 10, and 5 of
    random keys that fit. A key that does not fit ends the game, and its mask allows nothing.
    """

    def __init__(self, says="info", render_mode=None):
        super().__init__()
        self.render_mode, self._says = render_mode, says
        self.action_space = Discrete(KEYS)
        self.observation_space = Box(0, 1, (LOCKS + 1,), np.float32)
        if says == "dict":
            mask = Box(0, 1, (KEYS,), np.int8)
            self.observation_space = Dict(observation=self.observation_space, action_mask=mask)
        if says == "method":
            self.action_masks = lambda: self.mask().astype(bool).tolist()

    def mask(self):
        mask = np.zeros(KEYS, np.int8)
        if not self.over:
            mask[2 * self.lock : 2 * self.lock + 2] = 1
        return mask

    def shown(self):
        self.lamp = int(self.np_random.integers(2))
        seen = np.zeros(LOCKS + 1, np.float32)
        seen[self.lock % LOCKS], seen[-1] = 1, self.lamp
        info = {"action_mask": self.mask()} if self._says == "info" else {}
        return {
            "observation": seen,
            "action_mask": self.mask(),
        } if self._says == "dict" else seen, info

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.lock, self.over = 0, False
        return self.shown()

    def step(self, action):
        fits = action // 2 == self.lock
        opened = fits and action % 2 == self.lamp
        self.lock += 1
        self.over = bool(not fits or self.lock == LOCKS)
        seen, info = self.shown()
        return seen, float(opened), self.over, False, info


class VaultEnv(Drawn):
    """Several choices at once, each with a mask of its own, beside a number that has none.

    An action is {"dial": a number, "keys": 3 choices of 4, "lock": one of 3}; a choice is allowed
    where it is not the number of the step, in turn. A game lasts 7 steps and pays nothing.
    """

    observation_space = Box(0, 7, (1,), np.float32)
    action_space = Dict(dial=Box(-1, 1, (1,)), keys=MultiDiscrete([4, 4, 4]), lock=Discrete(3))

    def mask(self):
        return {
            "keys": tuple(np.arange(4) != (self.t + key) % 4 for key in range(3)),
            "lock": (np.arange(3) != self.t % 3).astype(np.int8),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {"action_mask": self.mask()}

    def step(self, action):
        mask = self.mask()
        assert mask["lock"][action["lock"]]
        assert all(own[key] for own, key in zip(mask["keys"], action["keys"], strict=True))
        self.t += 1
        info = {"action_mask": self.mask()}
        return np.full(1, self.t, np.float32), 0.0, False, self.t == 7, info


for way in ("info", "dict", "method", "nothing"):
    gymnasium.register(f"tests/Locks-{way}-v0", LocksEnv, kwargs={"says": way})
    cut = f"tests/Cut-{way}-v0"
    gymnasium.register(cut, LocksEnv, kwargs={"says": way}, max_episode_steps=3)
gymnasium.register("tests/Vault-v0", VaultEnv)
