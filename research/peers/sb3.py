"""Driver of Stable-Baselines3, A2C or PPO, in an environment of its own.

Runs until it is stopped. Writes to `--progress`: first a line that describes the run, then one line
for each update, {"steps": agent steps learned from, "wall_s": time.monotonic()}.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from typing import Any

import ale_py  # noqa: F401  # registers the games, in workers too
import gymnasium
import torch
from stable_baselines3 import A2C, PPO  # type: ignore[import-not-found]
from stable_baselines3.common.callbacks import BaseCallback  # type: ignore[import-not-found]
from stable_baselines3.common.env_util import make_atari_env  # type: ignore[import-not-found]
from stable_baselines3.common.vec_env import (  # type: ignore[import-not-found]
    SubprocVecEnv,
    VecFrameStack,
)

# One pass over the 320 steps of a roll-out per update, in both.
ALGORITHMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "a2c": (A2C, {"n_steps": 20}),
    "ppo": (PPO, {"n_steps": 20, "batch_size": 320, "n_epochs": 1}),
}

# Atari in hyperparams/ppo.yml of RL Baselines3 Zoo.
ZOO_GAMES, ZOO_STEPS = 8, 10_000_000
ZOO: dict[str, Any] = {
    "n_steps": 128, "n_epochs": 4, "batch_size": 256, "vf_coef": 0.5, "ent_coef": 0.01,
}  # fmt: skip
ZOO_SCHEDULES: dict[str, Any] = {  # of the share of the steps that is left
    "learning_rate": lambda left: 2.5e-4 * left,
    "clip_range": lambda left: 0.1 * left,
}


class ProgressWriter(BaseCallback):  # type: ignore[misc]
    """Writes one line after each update."""

    def __init__(self, path: str) -> None:
        """Append to the file at `path`."""
        super().__init__()
        self._path = path

    def _on_rollout_start(self) -> None:
        # The first call comes before anything was learned from.
        if self.num_timesteps:
            write(self._path, steps=self.num_timesteps, wall_s=time.monotonic())

    def _on_step(self) -> bool:
        return True


class GameLog(gymnasium.Wrapper):
    """Writes a line for each whole game, from whichever process plays it.

    It is the innermost wrapper, so it sees the rewards before they are clipped, and games rather
    than lives.
    """

    def __init__(self, env: gymnasium.Env, path: str) -> None:
        """Append to the file at `path`."""
        super().__init__(env)
        self._path = path
        self._return = 0.0

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begin a game."""
        self._return = 0.0
        return self.env.reset(**options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play one frame."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._return += float(reward)
        if terminated or truncated:
            write(self._path, game=self._return, wall_s=time.monotonic())
        return observation, reward, terminated, truncated, info


def make_logged(env_id: str, path: str, **options: Any) -> gymnasium.Env:
    """Make one game; called in the processes that play."""
    return GameLog(gymnasium.make(env_id, **options), path)


def write(path: str, **line: Any) -> None:
    """Append one JSON line to the file at `path`."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line, allow_nan=False) + "\n")


def main() -> None:
    """Train until stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("env", "workers", "envs_per_worker", "seed", "progress", "scratch"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--algorithm", required=True, choices=ALGORITHMS)
    parser.add_argument("--as_published", action="store_true", help="to compare learning")
    options = parser.parse_args()
    cores, seed = int(options.workers), int(options.seed)
    envs = cores * int(options.envs_per_worker)
    torch.set_num_threads(cores)
    algorithm, settings = ALGORITHMS[options.algorithm]
    make_env, steps = options.env, 10**12
    if options.as_published:
        envs, settings, steps = ZOO_GAMES, {**ZOO, **ZOO_SCHEDULES}, ZOO_STEPS
        make_env = partial(make_logged, options.env, options.progress)
    # One process per game is how its own examples and its zoo use several cores.
    games = make_atari_env(make_env, n_envs=envs, seed=seed, vec_env_cls=SubprocVecEnv)
    model = algorithm(
        "CnnPolicy", VecFrameStack(games, n_stack=4), device="cpu", seed=seed, **settings
    )
    flags = {"policy": "CnnPolicy", "n_envs": envs, "torch_threads": cores, "seed": seed}
    flags |= {name: value for name, value in settings.items() if not callable(value)}
    if options.as_published:
        flags |= {
            "learning_rate": "2.5e-4 to 0",
            "clip_range": "0.1 to 0",
            "total_timesteps": steps,
        }
    write(options.progress, flags=json.dumps(flags, allow_nan=False))
    model.learn(total_timesteps=steps, callback=ProgressWriter(options.progress))


if __name__ == "__main__":
    main()
