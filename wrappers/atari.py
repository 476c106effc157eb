"""The rules of Atari preprocessing, one small wrapper each, innermost first.

    the game -> FireAtStart -> WaitAtStart -> TimeLimit -> RepeatAction -> FlagLostLives -> resized

The conventions are those of Mnih et al., "Human-level control through deep reinforcement learning"
(Nature 518, 2015), section Methods, with the details on which papers are silent (which frame is
shown when a game ends within a repeated action, how FIRE counts) fixed as ale-py's C++ vector
environment has them, so that the two are twins. Frames are stacked in wrappers/gym_vector.py and
rewards stay raw: clipping is the learner's business.

Next to read: wrappers/ale_vector.py, the fast twin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ale_py
import cv2
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import TimeLimit, TransformAction, TransformObservation

from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.env_kwargs import kwargs_of

ALL_ACTIONS: tuple[str, ...] = tuple(ale_py.Action.__members__)  # in the order of their numbers

Env = gymnasium.Env
Reset = tuple[np.ndarray, dict[str, Any]]
Step = tuple[np.ndarray, float, bool, bool, dict[str, Any]]


def make_atari_env(config: EnvConfig, render_mode: str | None = None) -> Env:
    """Return one Atari game under all rules of `config`, except stacking.

    Observations are one frame `(C, H, W)` uint8. `info` holds `lives`, `life_lost` and
    `episode_frame_number` (simulator frames since the game started, start-up included).
    """
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner on the console
    env: Env = gymnasium.make(
        config.env_id,
        **kwargs_of(config.kwargs),
        max_episode_steps=-1,  # its frames are in `config` (wrappers/env_ids.py)
        frameskip=1,
        obs_type="grayscale" if config.grayscale else "rgb",
        repeat_action_probability=config.sticky_action_probability,
        full_action_space=config.full_action_space,
        max_num_frames_per_episode=None,  # TimeLimit does it, counting from the agent's start
        render_mode=render_mode,
        disable_env_checker=True,
    )
    if config.fire_reset and "FIRE" in action_meanings(env):
        env = FireAtStart(env)
    if config.noop_max > 1 and "NOOP" in action_meanings(env):
        env = WaitAtStart(env, config.noop_max)
    env = TimeLimit(env, config.max_episode_frames)  # here a step is a frame
    env = RepeatAction(env, config.action_repeat)
    if config.episodic_life:
        env = FlagLostLives(env)
    channels = 1 if config.grayscale else 3
    space = Box(0, 255, (channels, config.height, config.width), np.uint8)
    size = (config.width, config.height)  # the order of OpenCV
    env = TransformObservation(env, lambda picture: resized(picture, size), space)
    if config.actions:
        # Where one agent plays several games, a number means the same direction in all of them.
        numbers = numbers_of(config.actions)
        env = TransformAction(env, lambda action: numbers[action], Discrete(len(numbers)))
    return env


def resized(picture: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return a picture, 210 x 160 pixels in most games, as a frame `(C, height, width)` uint8.

    Methods, "Preprocessing": luminance at 84 x 84, by averaging areas. The luminance is the
    emulator's own.
    """
    small = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
    return small[None] if small.ndim == 2 else small.transpose(2, 0, 1)


def action_meanings(env: Env) -> list[str]:
    """Return the names of the game's actions, e.g. ["NOOP", "FIRE", "RIGHT", "LEFT"]."""
    meanings: list[str] = env.unwrapped.get_action_meanings()  # type: ignore[attr-defined]
    return meanings


def numbers_of(actions: Sequence[str]) -> list[int]:
    """Return the numbers of actions, by their names, in a game that is run with all of them."""
    return [ALL_ACTIONS.index(name) for name in actions]


class FireAtStart(gymnasium.Wrapper):
    """Press FIRE for one frame when a game starts, for games that wait for it.

    Not in the paper: a convention of OpenAI Baselines. After a lost life the agent itself must
    press it.
    """

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        """Start the game and press FIRE."""
        self.env.reset(seed=seed, options=options)
        frame, _, _, _, info = self.env.step(action_meanings(self.env).index("FIRE"))
        return frame, info


class WaitAtStart(gymnasium.Wrapper):
    """Hand the game to the agent at a random frame, reached by doing nothing.

    Methods, "Evaluation procedure" and Extended Data Table 1 ("no-op"): up to 30 no-op actions
    make the starts of an otherwise deterministic game differ. The press of FIRE, if there was one,
    counts as one of these frames.
    """

    def __init__(self, env: Env, noop_max: int) -> None:
        """Wait until frame 0 .. `noop_max` - 1, each equally likely."""
        super().__init__(env)
        self._noop_max = noop_max
        self._noop = action_meanings(env).index("NOOP")

    def start_frame(self) -> int:
        """Draw the frame at which the agent takes over."""
        return int(self.env.unwrapped.np_random.integers(self._noop_max))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        """Start the game and wait."""
        frame, info = self.env.reset(seed=seed, options=options)
        for _ in range(self.start_frame() - info["episode_frame_number"]):
            frame, _, terminated, truncated, info = self.env.step(self._noop)
            if terminated or truncated:
                frame, info = self.env.reset(options=options)
        return frame, info


class RepeatAction(gymnasium.Wrapper):
    """Repeat each action and show the pixel-wise maximum of the last two frames.

    Methods, "Training details": the agent acts on every k-th frame (k = 4), its last action is
    repeated on the others, rewards add up. Methods, "Preprocessing": the maximum over two frames
    removes the flicker of sprites that the console draws on alternate frames only.
    """

    def __init__(self, env: Env, repeat: int) -> None:
        """Play `repeat` frames per step."""
        super().__init__(env)
        self._repeat = repeat

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        """Start the game; its first frame is shown as it is."""
        frame, info = self.env.reset(seed=seed, options=options)
        self._newest, self._older = frame, np.zeros_like(frame)
        return frame, info

    def step(self, action: int) -> Step:
        """Play up to `repeat` frames; stop early when the game ends."""
        total = 0.0
        for left in range(self._repeat, 0, -1):
            frame, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break  # as in the C++ twin: the very frame of the end is not shown
            if left == 2:
                self._older = frame
            elif left == 1:
                self._newest = frame
        self._newest = np.maximum(self._newest, self._older)
        return self._newest, total, terminated, truncated, info


class FlagLostLives(gymnasium.Wrapper):
    """Say in `info["life_lost"]` whether this step lost a life, and the game goes on.

    Methods, "Training details": the number of lives left marks the end of an episode in training.
    Only a flag here, because the game must not be reset for it: see wrappers/gym_vector.py.
    """

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        """Start the game and count the lives."""
        frame, info = self.env.reset(seed=seed, options=options)
        self._lives = info["lives"]
        return frame, info

    def step(self, action: int) -> Step:
        """Step and compare lives. At 0 lives some games go on for a few frames: no loss yet."""
        frame, reward, terminated, truncated, info = self.env.step(action)
        info["life_lost"] = 0 < info["lives"] < self._lives
        self._lives = info["lives"]
        return frame, float(reward), terminated, truncated, info
