"""Each rule of Atari by itself, on a game whose frames can be computed by hand."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from ritornello.wrappers.atari import (
    FireAtStart,
    FlagLostLives,
    LimitFrames,
    RepeatAction,
    Resize,
    WaitAtStart,
)

NOOP, UP, FIRE = range(3)


class Game(gymnasium.Env):
    """Frame n is one pixel of value 10 n, but 200 for n = 6; each frame pays n points."""

    observation_space = Box(0, 255, (1, 1), np.uint8)
    action_space = Discrete(3)

    def __init__(self, over_at=1000, lives=(3,)):
        self.over_at, self.lives = over_at, lives
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
        return picture, self.frame, self.frame >= self.over_at, False, info

    def show(self):
        brightness = 200 if self.frame == 6 else 10 * self.frame
        lives = self.lives[min(self.frame, len(self.lives) - 1)]
        info = {"lives": lives, "episode_frame_number": self.frame}
        return np.full((1, 1), brightness, np.uint8), info


def test_fire_is_pressed_once_at_the_start():
    game = Game()
    frame, info = FireAtStart(game).reset()
    assert game.done == [FIRE]
    assert (int(frame[0, 0]), info["episode_frame_number"]) == (10, 1)


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


@pytest.mark.parametrize(
    ("cap", "over_at", "expected"),
    [(3, 1000, (False, True)), (3, 3, (True, False)), (9, 3, (True, False))],
)
def test_the_frame_cap_truncates_unless_the_rules_end_the_game(cap, over_at, expected):
    env = LimitFrames(Game(over_at), cap)
    for _ in range(2):  # the count starts anew with each game
        env.reset()
        ends = [env.step(NOOP)[2:4] for _ in range(3)]
        assert ends == [(False, False), (False, False), expected]


def test_frames_of_waiting_do_not_count_towards_the_cap():
    waiting = WaitAtStart(Game(), 30)
    waiting.start_frame = lambda: 20
    env = LimitFrames(waiting, 2)
    env.reset()
    assert [env.step(NOOP)[3] for _ in range(2)] == [False, True]


def test_an_action_is_repeated_and_the_last_two_frames_are_pooled():
    env = RepeatAction(Game(), 4)
    assert env.reset()[0][0, 0] == 0
    # Frames 1-4: the newest is the brightest. Points 1 + 2 + 3 + 4.
    frame, reward, *_ = env.step(UP)
    assert (int(frame[0, 0]), reward) == (40, 10.0)
    # Frames 5-8: frame 6 is bright, but only 7 and 8 are looked at. Points 5 + 6 + 7 + 8.
    frame, reward, *_ = env.step(UP)
    assert (int(frame[0, 0]), reward) == (80, 26.0)
    assert env.unwrapped.done == [UP] * 8


def test_what_is_drawn_on_alternate_frames_only_is_seen():
    env = RepeatAction(Game(), 7)
    env.reset()
    assert env.step(UP)[0][0, 0] == 200  # the brighter of frame 6 (200) and frame 7 (70)


def test_a_game_that_ends_within_the_repeats_stops_them_and_keeps_its_last_picture():
    env = RepeatAction(Game(over_at=10), 4)
    env.reset()
    shown = [env.step(UP) for _ in range(3)]
    assert [int(frame[0, 0]) for frame, *_ in shown] == [40, 80, 80]
    assert [reward for _, reward, *_ in shown] == [10.0, 26.0, 19.0]
    assert [terminated for _, _, terminated, *_ in shown] == [False, False, True]
    assert len(env.unwrapped.done) == 10


def test_one_frame_per_action_is_shown_as_it_is():
    env = RepeatAction(Game(), 1)
    env.reset()
    assert [int(env.step(UP)[0][0, 0]) for _ in range(7)] == [10, 20, 30, 40, 50, 200, 70]


@pytest.mark.parametrize(
    ("lives", "lost"),
    [
        ((3, 3, 2, 2), [False, True, False]),
        ((3, 4, 3, 3), [False, True, False]),
        ((2, 1, 0, 0), [True, False, False]),  # at 0 lives some games go on for a while
        ((0, 0, 0, 0), [False, False, False]),
    ],
)
def test_a_lost_life_is_flagged_once_while_lives_are_left(lives, lost):
    env = FlagLostLives(Game(lives=lives))
    env.reset()
    assert [env.step(NOOP)[4]["life_lost"] for _ in range(3)] == lost


@pytest.mark.parametrize("picture_shape", [(20, 16), (20, 16, 3)])
def test_pictures_are_averaged_down_and_put_channel_first(picture_shape):
    picture = np.random.default_rng(0).integers(0, 256, picture_shape, dtype=np.uint8)
    game = Game()
    game.observation_space = Box(0, 255, picture_shape, np.uint8)
    env = Resize(game, height=10, width=4)
    blocks = picture.reshape(10, 2, 4, 4, -1).mean(axis=(1, 3))  # [10, 4, C]
    expected = blocks.transpose(2, 0, 1)
    shown = env.observation(picture)
    assert shown.shape == expected.shape == env.observation_space.shape
    assert shown.dtype == np.uint8
    np.testing.assert_allclose(shown, expected, atol=0.51)
