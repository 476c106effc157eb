"""Environments of which everything is known, for the tests of every package.

Importing this module registers them, so that a spawned child finds them by Gymnasium's module:id
syntax: "tests.fakes:tests/Counting-v0" (or "tests.fakes:Counting-v0"). Each is deterministic given
the seed of its reset.
"""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

EPISODE_LENGTHS = range(3, 12)  # CountingEnv draws from these


class CountingEnv(gymnasium.Env):
    """Every row says which one it is, so that a misplaced row is visible.

    Observation (float32, exact): [seed of the episode % 2**16, seed // 2**16, t, previous action],
    the last being -1 at the start. The reward of the action on observation t is t. Lengths vary
    with the seed, and so does whether the episode is terminated or truncated: see `plan`.
    """

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = Box(-1, 2**16, (4,), np.float32)
        self.action_space = Discrete(3)

    @staticmethod
    def plan(seed):
        """(length in steps, whether it is terminated rather than truncated) of an episode."""
        return EPISODE_LENGTHS[seed % len(EPISODE_LENGTHS)], seed // 97 % 2 == 0

    @staticmethod
    def decode(observation):
        """(seed of the episode, t, previous action) of one observation."""
        low, high, t, action = (int(number) for number in observation)
        return low + high * 2**16, t, action

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        # Without a seed the generator goes on, as Gymnasium's own environments do.
        self.seed = int(self.np_random.integers(2**31)) if seed is None else seed % 2**31
        self.t = 0
        return self._observe(-1), {}

    def step(self, action):
        reward = float(self.t)
        self.t += 1
        length, terminates = self.plan(self.seed)
        over = self.t == length
        return self._observe(action), reward, over and terminates, over and not terminates, {}

    def _observe(self, action):
        return np.array([self.seed % 2**16, self.seed // 2**16, self.t, action], np.float32)


class OwingEnv(CountingEnv):
    """The same game, but every step costs what it pays there: a second one, told by rewards."""

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, -reward, terminated, truncated, info


class ChainEnv(gymnasium.Env):
    """A corridor of `length` cells: going right (action 1) to its end pays 1 and terminates.

    Observation: one-hot position. Action 0 goes left, and stays in the first cell. Cut after
    `time_limit` steps.
    """

    def __init__(self, length=5, time_limit=50, render_mode=None):
        self.render_mode = render_mode
        self.length, self.time_limit = length, time_limit
        self.observation_space = Box(0, 1, (length,), np.float32)
        self.action_space = Discrete(2)

    @staticmethod
    def optimal_value(gamma, position=0, length=5):
        """Value of a position under the best policy, which only goes right."""
        return gamma ** (length - 2 - position)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.t = 0, 0
        return self._observe(), {}

    def step(self, action):
        self.position = max(0, self.position + (1 if action == 1 else -1))
        self.t += 1
        solved = self.position == self.length - 1
        truncated = self.t >= self.time_limit and not solved
        return self._observe(), float(solved), solved, truncated, {}

    def _observe(self):
        return np.eye(self.length, dtype=np.float32)[self.position]


class InfiniteEnv(gymnasium.Env):
    """Reward 1 for ever; only time cuts it, after `time_limit` steps.

    A learner that takes truncation for termination finds less than the true value.
    """

    def __init__(self, time_limit=10, render_mode=None):
        self.render_mode = render_mode
        self.time_limit = time_limit
        self.observation_space = Box(0, 1, (2,), np.float32)
        self.action_space = Discrete(2)

    @staticmethod
    def true_value(gamma):
        """Value of every state under every policy."""
        return 1.0 / (1.0 - gamma)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.ones(2, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.ones(2, np.float32), 1.0, False, self.t >= self.time_limit, {}


class MirrorEnv(ChainEnv):
    """The corridor of another game: action 0 leads to its end, and there 1,000 is paid.

    Observations are those of the other, negative. The best policy of the one is the worst of the
    other, and what is much here is nothing there.
    """

    PRIZE = 1000.0

    def __init__(self, length=5, time_limit=50, render_mode=None):
        super().__init__(length, time_limit, render_mode)
        self.observation_space = Box(-1, 1, (length,), np.float32)

    def step(self, action):
        observation, reward, *rest = super().step(1 - action)
        return observation, self.PRIZE * reward, *rest

    def _observe(self):
        return -super()._observe()


class UprightEnv(ChainEnv):
    """The corridor with the space of `MirrorEnv`, so that both can be games of one run."""

    def __init__(self, length=5, time_limit=50, render_mode=None):
        super().__init__(length, time_limit, render_mode)
        self.observation_space = Box(-1, 1, (length,), np.float32)


class DelayedEnv(gymnasium.Env):
    """The first action decides what the last step pays; those between change nothing.

    Action 0 pays `AT_ONCE` and leads to a corridor that pays nothing; action 1 pays nothing and
    leads to a corridor at whose end 1 is paid. Observation: one-hot place, the start first, then
    the places of the two corridors.
    """

    AT_ONCE = 0.2
    LENGTH = 8  # steps in a corridor

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = Box(0, 1, (1 + 2 * self.LENGTH,), np.float32)
        self.action_space = Discrete(2)

    @classmethod
    def optimal_value(cls, gamma, place=0):
        """Value of the start, or of a place (1 ... LENGTH) in the corridor that pays."""
        return gamma ** (cls.LENGTH - place)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.corridor, self.place = 0, 0
        return self._observe(), {}

    def step(self, action):
        reward = 0.0
        if self.place == 0:
            self.corridor = int(action)
            reward = self.AT_ONCE * (action == 0)
        elif self.place == self.LENGTH:
            reward = float(self.corridor)
        over = self.place == self.LENGTH
        self.place = min(self.place + 1, self.LENGTH)
        return self._observe(), reward, over, False, {}

    def _observe(self):
        column = 0 if self.place == 0 else self.corridor * self.LENGTH + self.place
        return np.eye(1 + 2 * self.LENGTH, dtype=np.float32)[column]


class CueEnv(gymnasium.Env):
    """What is seen at the start says what is right at the end, when it is not seen any more.

    Observation: [cue is 0, cue is 1, now it counts]. The action at the end pays 1 if it is the cue
    and -1 if not: without a memory the mean return is 0 at best.
    """

    BLANKS = 1  # observations of zeros between the cue and the end

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = Box(0, 1, (3,), np.float32)
        self.action_space = Discrete(2)

    @classmethod
    def game(cls, cue):
        """Return all observations of a game [rows, 3]."""
        return np.eye(4, 3, dtype=np.float32)[[cue, *[3] * cls.BLANKS, 2]]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cue, self.t = int(self.np_random.integers(2)), 0
        return self.game(self.cue)[0], {}

    def step(self, action):
        last = self.t == self.BLANKS + 1
        reward = (1.0 if action == self.cue else -1.0) if last else 0.0
        self.t += not last
        return self.game(self.cue)[self.t], reward, last, False, {}


class BanditEnv(gymnasium.Env):
    """One decision: arm i pays 1 with probability `MEANS[i]`, else nothing."""

    MEANS = (0.1, 0.5, 0.9)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = Box(0, 1, (1,), np.float32)
        self.action_space = Discrete(len(self.MEANS))

    @classmethod
    def best_policy(cls, entropy_cost):
        """The policy with the highest mean return + cost * entropy: softmax(means / cost)."""
        weights = np.exp(np.array(cls.MEANS) / entropy_cost)
        return weights / weights.sum()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action):
        pays = self.np_random.random() < self.MEANS[action]
        return np.ones(1, np.float32), float(pays), True, False, {}


def register_fakes():
    """Make the fakes known to Gymnasium as tests/Counting-v0 and Counting-v0, and so on."""
    fakes = {
        "Counting-v0": CountingEnv,
        "Owing-v0": OwingEnv,
        "Chain-v0": ChainEnv,
        "Infinite-v0": InfiniteEnv,
        "Mirror-v0": MirrorEnv,
        "Upright-v0": UprightEnv,
        "Delayed-v0": DelayedEnv,
        "Cue-v0": CueEnv,
        "Bandit-v0": BanditEnv,
    }
    for name, cls in fakes.items():
        for env_id in (name, f"tests/{name}"):
            if env_id not in gymnasium.registry:
                gymnasium.register(env_id, entry_point=cls)


# On import, because the part of "module:id" before the colon only gets imported.
register_fakes()
