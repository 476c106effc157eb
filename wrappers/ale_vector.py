"""E Atari games in one C++ object: the fast vector, on the hot path of every worker.

The rules are those of wrappers/atari.py, done by `AtariVectorEnv` of ale-py on one thread (two
single-threaded processes beat one process with two threads). Python adds only what the C++ side
does not say: which rows are resets, lost lives, and the statistics of whole games.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from ale_py.vector_env import AtariVectorEnv

from ritornello.core.episode import EpisodeEnd
from ritornello.core.rng import child_seed
from ritornello.core.spec import EnvSpec
from ritornello.wrappers.atari import numbers_of
from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.env_ids import rom_name
from ritornello.wrappers.vector import EnvVector, StepResult, check_actions


def vector_arguments(config: EnvConfig) -> dict[str, Any]:
    """Return the arguments of `AtariVectorEnv` for one game with its sticky actions filled in."""
    return {
        "game": rom_name(config.env_id),
        "frameskip": config.action_repeat,
        "maxpool": True,
        "stack_num": config.frames_stacked,
        "img_height": config.height,
        "img_width": config.width,
        "grayscale": config.grayscale,
        "noop_max": config.noop_max,
        "use_fire_reset": config.fire_reset,
        "max_num_frames_per_episode": config.max_episode_frames,
        "repeat_action_probability": config.sticky_action_probability or 0.0,
        "full_action_space": config.full_action_space,
        "reward_clipping": False,
        "episodic_life": False,
        "life_loss_info": False,
    }


class AleVector(EnvVector):
    """E games of one ROM.

    Lost lives are told from the counter of lives rather than by the C++ options for it:
    `episodic_life` there starts the whole game anew at each lost life, and `life_loss_info` mixes
    lost lives with real ends in one flag. With both off, its flags mean the end of the game and
    nothing else.

    The object owns the emulators; the arrays that it returns are the caller's. Not thread-safe.
    """

    def __init__(
        self,
        spec: EnvSpec,
        config: EnvConfig,
        seeds: Sequence[int],
        threads: int = 1,
    ) -> None:
        """Make one emulator for each of E root seeds.

        `spec` was read from the readable environment; `config` has the probability of sticky
        actions filled in. `threads` threads step the games: 1 in workers, which have a core each.
        """
        self.spec = spec
        self.num_envs = len(seeds)
        self._episodic_life = config.episodic_life
        self._has_rgb = not config.grayscale
        self._numbers = np.array(numbers_of(config.actions)) if config.actions else None
        # 31 bits, and never 0 or -1, which some versions of the emulator take as "by the clock".
        self._seeds = np.array([child_seed(seed, "ale") % (2**31 - 1) + 1 for seed in seeds])
        self._env = AtariVectorEnv(
            num_envs=self.num_envs, num_threads=threads, **vector_arguments(config)
        )

    def reset(self) -> np.ndarray:
        """Start every game; return stacks `[E, S, C, H, W]` uint8."""
        stacks, info = self._env.reset(seed=self._seeds)
        self._lives = info["lives"]
        self._over = np.zeros(self.num_envs, bool)  # the next step is the reset row
        self._any_over = False
        self._steps = 0
        self._started = np.zeros(self.num_envs, np.int64)  # value of _steps at the game's start
        self._returns = np.zeros(self.num_envs, np.int64)  # raw points are whole numbers
        return self._channel_first(stacks)

    def step(self, actions: np.ndarray) -> StepResult:
        """Do `actions` ([E] int64), one in each game."""
        check_actions(actions, self.num_envs, self.spec.actions)
        numbers = actions if self._numbers is None else self._numbers[actions]
        stacks, points, game_over, truncated, info = self._env.step(numbers)
        first, lives = self._over, info["lives"]
        self._steps += 1
        self._returns += points
        if self._any_over:
            self._returns[first] = 0
            self._started[first] = self._steps
        terminated = game_over
        if self._episodic_life:
            # At 0 lives some games go on for a few frames: no loss yet (wrappers/atari.py).
            life_lost = (lives < self._lives) & (lives > 0)
            if self._any_over:
                life_lost &= ~first  # a truncated game may have had more lives than a new one
            terminated = game_over | life_lost
        self._lives = lives
        self._over = game_over | truncated
        self._any_over = bool(self._over.any())
        episodes = self._ended_games(info["episode_frame_number"]) if self._any_over else []
        return StepResult(
            self._channel_first(stacks), points.astype(np.float32), terminated, first, episodes
        )

    def close(self) -> None:
        """Stop the emulator's thread and free its memory."""
        self._env.close()
        vars(self._env).pop("ale", None)  # the thread ends with the C++ object

    def _ended_games(self, frames: np.ndarray) -> list[EpisodeEnd]:
        return [
            EpisodeEnd(
                env_id=index,
                return_raw=float(self._returns[index]),
                length_steps=int(self._steps - self._started[index]),
                length_frames=int(frames[index]),
            )
            for index in np.flatnonzero(self._over).tolist()
        ]

    def _channel_first(self, stacks: np.ndarray) -> np.ndarray:
        """Return `[E, S, C, H, W]` from `[E, S, H, W]` (gray) or `[E, S, H, W, 3]` (RGB)."""
        if self._has_rgb:
            return np.ascontiguousarray(np.moveaxis(stacks, -1, 2))
        return stacks[:, :, None]
