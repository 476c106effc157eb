"""Environments of which everything is known, for the tests of every package.

Importing this module registers them, so that a spawned child finds them by Gymnasium's module:id
syntax: "tests.fakes:tests/Counting-v0" (or "tests.fakes:Counting-v0"). Each is deterministic given
the seed of its reset.
"""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

EPISODE_LENGTHS = range(3, 12)  # CountingEnv draws from these


class Drawn(gymnasium.Env):
    """Takes a render mode, as every environment must."""

    def __init__(self, render_mode=None):
        self.render_mode = render_mode


class CountingEnv(Drawn):
    """Every row says which one it is, so that a misplaced row is visible.

    Observation (float32, exact): [seed of the episode % 2**16, seed // 2**16, t, previous action],
    the last being -1 at the start. The reward of the action on observation t is t. Lengths vary
    with the seed, and so does whether the episode is terminated or truncated: see `plan`.
    """

    observation_space = Box(-1, 2**16, (4,), np.float32)
    action_space = Discrete(3)

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


class ChainEnv(Drawn):
    """A corridor of `LENGTH` cells: going right (action 1) to its end pays 1 and terminates.

    Observation: one-hot position. Action 0 goes left, and stays in the first cell. Cut after
    `TIME_LIMIT` steps.
    """

    LENGTH, TIME_LIMIT = 5, 50
    observation_space = Box(0, 1, (LENGTH,), np.float32)
    action_space = Discrete(2)

    @classmethod
    def optimal_value(cls, gamma, position=0):
        """Value of a position under the best policy, which only goes right."""
        return gamma ** (cls.LENGTH - 2 - position)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.t = 0, 0
        return self._observe(), {}

    def step(self, action):
        self.position = max(0, self.position + (1 if action == 1 else -1))
        self.t += 1
        solved = self.position == self.LENGTH - 1
        truncated = self.t >= self.TIME_LIMIT and not solved
        return self._observe(), float(solved), solved, truncated, {}

    def _observe(self):
        return np.eye(self.LENGTH, dtype=np.float32)[self.position]


class InfiniteEnv(Drawn):
    """Reward 1 for ever; only time cuts it, after `TIME_LIMIT` steps.

    A learner that takes truncation for termination finds less than the true value.
    """

    TIME_LIMIT = 10
    observation_space = Box(0, 1, (2,), np.float32)
    action_space = Discrete(2)

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
        return np.ones(2, np.float32), 1.0, False, self.t >= self.TIME_LIMIT, {}


class MirrorEnv(ChainEnv):
    """The corridor of another game: action 0 leads to its end, and there 1,000 is paid.

    Observations are those of the other, negative. The best policy of the one is the worst of the
    other, and what is much here is nothing there.
    """

    PRIZE = 1000.0
    observation_space = Box(-1, 1, (ChainEnv.LENGTH,), np.float32)

    def step(self, action):
        observation, reward, *rest = super().step(1 - action)
        return observation, self.PRIZE * reward, *rest

    def _observe(self):
        return -super()._observe()


class UprightEnv(ChainEnv):
    """The corridor with the space of `MirrorEnv`, so that both can be games of one run."""

    observation_space = MirrorEnv.observation_space


class DelayedEnv(Drawn):
    """The first action decides what the last step pays; those between change nothing.

    Action 0 pays `AT_ONCE` and leads to a corridor that pays nothing; action 1 pays nothing and
    leads to a corridor at whose end 1 is paid. Observation: one-hot place, the start first, then
    the places of the two corridors.
    """

    AT_ONCE = 0.2
    LENGTH = 8  # steps in a corridor

    observation_space = Box(0, 1, (1 + 2 * LENGTH,), np.float32)
    action_space = Discrete(2)

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


class CueEnv(Drawn):
    """What is seen at the start says what is right at the end, when it is not seen any more.

    Observation: [cue is 0, cue is 1, now it counts]. The action at the end pays 1 if it is the cue
    and -1 if not: without a memory the mean return is 0 at best.
    """

    BLANKS = 1  # observations of zeros between the cue and the end

    observation_space = Box(0, 1, (3,), np.float32)
    action_space = Discrete(2)

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


class BanditEnv(Drawn):
    """One decision: arm i pays 1 with probability `MEANS[i]`, else nothing."""

    MEANS = (0.1, 0.5, 0.9)

    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(len(MEANS))

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


def register(*classes):
    """Make `CountingEnv` known to Gymnasium as tests/Counting-v0 and Counting-v0, and so on."""
    for cls in classes:
        name = f"{cls.__name__.removesuffix('Env')}-v0"
        for env_id in (name, f"tests/{name}"):
            if env_id not in gymnasium.registry:
                gymnasium.register(env_id, entry_point=cls)


# On import, because the part of "module:id" before the colon only gets imported.
register(
    CountingEnv, OwingEnv, ChainEnv, InfiniteEnv, MirrorEnv, UprightEnv, DelayedEnv, CueEnv,
    BanditEnv,
)  # fmt: skip
