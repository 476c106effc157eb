"""EnvPool: environments in C++, many in one object, as vectors of Gymnasium.

It has ids of its own. An id that Gymnasium has too is EnvPool's with `--env_backend=envpool`; one
that only EnvPool has (CheetahRun-v1) needs no flag. Games of Atari keep the ids they have here, and
the rules of wrappers/atari.py. Where EnvPool differs from these:

* a game starts after 1 to `noop_max` frames of doing nothing rather than 0 to `noop_max` - 1, and
  FIRE is pressed after these;
* where a game ends within a repeated action, another of its frames may be shown last;
* the limit of frames counts whole steps, and so do the frames of an ended game, without its start.
"""

from __future__ import annotations

import importlib
import math
import warnings
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv

from ritornello.core.errors import ConfigError
from ritornello.wrappers.atari import numbers_of
from ritornello.wrappers.config import ENVPOOL, EnvConfig


class Pool(VectorEnv):
    """EnvPool's environments; NEXT_STEP is its autoreset mode. Not thread-safe.

    EnvPool takes seeds when it is made, so that each `reset` makes it anew.
    """

    def __init__(self, task: str, options: dict[str, Any]) -> None:
        """Read the spaces of an id, made with `options` of `envpool.make`; start nothing yet."""
        self._pool: Any = None
        self._envpool: Any = importlib.import_module(ENVPOOL)
        self._task, self._options, self.num_envs = task, options, options["num_envs"]
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "takes_seeds": True}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of bounds in float64
            spec = self._envpool.make_spec(task, **options)
            self.single_observation_space = spec.gymnasium_observation_space
            self.single_action_space = space = spec.gymnasium_action_space
            if isinstance(space, Box) and space.dtype.kind == "f":
                # Where there is no lower bound, EnvPool says the smallest positive number.
                low = np.where(space.low == np.finfo(space.dtype).tiny, -np.inf, space.low)
                self.single_action_space = Box(low, space.high, dtype=space.dtype)
        if spec.config.max_num_players > 1:
            raise ConfigError(f"EnvPool's {task} is for several players, expected one for one.")

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        """Make the environments with `seed`, one of 31 bits for each; start them."""
        self.close_extras()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._pool = self._envpool.make_gymnasium(self._task, seed=seed, **self._options)
            return self._pool.reset()

    def step(self, actions: Any) -> Any:
        """Do `actions` [E, ...]."""
        return self._pool.step(actions)

    def close_extras(self, **kwargs: Any) -> None:
        """End EnvPool's threads."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


class AtariPool(Pool):
    """Games of Atari, one frame each, by the rules of wrappers/atari.py.

    `info` holds `life_lost` and `episode_frame_number`, each [E], as there.
    """

    def __init__(self, task: str, options: dict[str, Any], game: EnvConfig) -> None:
        """Have EnvPool follow the rules of `game`."""
        rules = {
            "frame_skip": game.action_repeat,
            "stack_num": 1,
            "noop_max": game.noop_max,
            "use_fire_reset": game.fire_reset,
            "max_episode_steps": math.ceil(game.max_episode_frames / game.action_repeat),
            "repeat_action_probability": game.sticky_action_probability or 0.0,
            "full_action_space": game.full_action_space,
            "gray_scale": game.grayscale,
            "img_height": game.height,
            "img_width": game.width,
            "episodic_life": False,  # it would start the game anew
            "reward_clip": False,
        }
        super().__init__(task, {**options, **rules})
        self._game, self.metadata["channels"] = game, "first"
        if game.actions:
            self.single_action_space = Discrete(len(game.actions))

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        """Start all games."""
        frames, info = super().reset(seed=seed)
        self._lives = info["lives"].copy()
        return frames, info

    def step(self, actions: Any) -> Any:
        """Do `actions` [E], and compare lives."""
        numbers = numbers_of(self._game.actions)
        *result, info = super().step(np.array(numbers)[actions] if numbers else actions)
        lives = info["lives"]
        # At 0 lives some games go on for a few frames: no loss yet (wrappers/atari.py).
        info["life_lost"] = (lives < self._lives) & (lives > 0) & self._game.episodic_life
        info["episode_frame_number"] = info["elapsed_step"] * self._game.action_repeat
        self._lives = lives.copy()
        return (*result, info)
