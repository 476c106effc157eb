"""Play the same game through both implementations and compare every row."""

import functools
from dataclasses import replace

import numpy as np

from ritornello.wrappers.ale_vector import AleVector
from ritornello.wrappers.atari import WaitAtStart
from ritornello.wrappers.registry import make_env_vector


class Starts:
    """Notes how each game of an AleVector started, so that its twin can start the same way.

    The emulator's generator (which fills the memory of the console when it is switched on, and
    draws the sticky actions) and the one for the frames of waiting are seeded differently in the
    two; here the readable one is told what the fast one used.
    """

    def __init__(self, vector):
        self._env, vector._env = vector._env, self
        self.seeds = vector._seeds.tolist()
        self.frames = [[] for _ in self.seeds]  # at which frame the agent took over, game by game

    def reset(self, seed):
        stacks, info = self._env.reset(seed=seed)
        self._note(range(len(self.seeds)), info)
        self._over = np.zeros(len(self.seeds), bool)
        return stacks, info

    def step(self, actions):
        result = self._env.step(actions)
        _, _, terminated, truncated, info = result
        self._note(np.flatnonzero(self._over), info)
        self._over = terminated | truncated
        return result

    def stop(self, vector):
        vector._env = self._env

    def _note(self, indices, info):
        for index in indices:
            self.frames[index].append(int(info["episode_frame_number"][index]))

    def apply_to(self, vector):
        """Make the games of a GymVector start as noted."""
        for env, seed, frames in zip(vector._envs, self.seeds, self.frames, strict=True):
            self._seed_only_the_first_game(env.unwrapped, seed)
            while env is not env.unwrapped:
                if isinstance(env, WaitAtStart):
                    env.start_frame = iter(frames).__next__
                env = env.env

    @staticmethod
    def _seed_only_the_first_game(atari_env, seed):
        reset, unused = atari_env.reset, [seed]
        atari_env.seed_game = lambda seed: atari_env.ale.setInt("random_seed", seed)
        atari_env.reset = lambda seed=None, options=None: reset(
            seed=unused.pop() if unused else None
        )


def play(vector, actions):
    """Play actions [N, E]; return copies of what each row showed, the first stacks in front."""
    rows = [(vector.reset().copy(), None)]
    for row in actions:
        result = vector.step(row)
        rows.append((result.stacks.copy(), result))
    return rows


@functools.cache  # several tests look at the same games
def play_twins(config, steps, num_envs=1, seed=1):
    """Play the same random actions in both; return (rows of AleVector, rows of GymVector)."""
    seeds = [seed * 100 + index for index in range(num_envs)]
    fast = make_env_vector(config, num_envs, seeds)
    assert isinstance(fast, AleVector)
    actions = np.random.default_rng(seed).integers(fast.spec.action_count, size=(steps, num_envs))
    starts = Starts(fast)
    fast_rows = play(fast, actions)
    starts.stop(fast)
    fast.close()

    readable = make_env_vector(replace(config, backend="gymnasium"), num_envs, seeds)
    assert readable.spec == fast.spec
    starts.apply_to(readable)
    readable_rows = play(readable, actions)
    readable.close()
    return fast_rows, readable_rows


def assert_rows_agree(fast_rows, readable_rows):
    assert len(fast_rows) == len(readable_rows)
    pairs = zip(fast_rows, readable_rows, strict=True)
    for row, ((stacks, result), (twin_stacks, twin)) in enumerate(pairs):
        assert_same(stacks, twin_stacks, f"stacks of row {row}")
        if row == 0:
            continue
        for name in ("reward", "terminated", "first"):
            assert_same(getattr(result, name), getattr(twin, name), f"{name} of row {row}")
        assert result.episodes == twin.episodes, f"games that ended at row {row}"


def assert_same(mine, other, what):
    assert mine.shape == other.shape, what
    assert mine.dtype == other.dtype, what
    np.testing.assert_array_equal(mine, other, what)
