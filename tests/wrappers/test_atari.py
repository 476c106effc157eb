"""The frames of waiting at the start, on a game that counts them."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from ritornello.wrappers.atari import FireAtStart, WaitAtStart

NOOP, UP, FIRE = range(3)


class Game(gymnasium.Env):
    observation_space = Box(0, 255, (1, 1), np.uint8)
    action_space = Discrete(3)

    def __init__(self, over_at=1000):
        self.over_at = over_at
        self.done = []  # actions

    def get_action_meanings(self):
        return ["NOOP", "UP", "FIRE"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.frame = 0
        return self.show()

    def step(self, action):
        self.done.append(action)
        self.frame += 1
        picture, info = self.show()
        return picture, 0.0, self.frame >= self.over_at, False, info

    def show(self):
        return np.zeros((1, 1), np.uint8), {"episode_frame_number": self.frame}


def test_waiting_at_the_start_draws_each_frame_below_noop_max():
    env = WaitAtStart(Game(), 5)
    starts = [env.reset(seed=seed)[1]["episode_frame_number"] for seed in range(200)]
    counts = np.bincount(starts, minlength=5)
    assert len(counts) == 5
    assert counts.min() > 20
    assert set(env.unwrapped.done) == {NOOP}


def test_the_press_of_fire_counts_as_one_frame_of_waiting():
    env = WaitAtStart(FireAtStart(Game()), 5)
    starts = {env.reset(seed=seed)[1]["episode_frame_number"] for seed in range(100)}
    assert starts == {1, 2, 3, 4}


def test_a_game_that_ends_while_waiting_is_started_again():
    env = WaitAtStart(Game(over_at=3), 30)
    for seed in range(20):
        assert env.reset(seed=seed)[1]["episode_frame_number"] < 3
