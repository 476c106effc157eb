"""Driver of Stable-Baselines3, A2C or PPO, in an environment of its own.

Runs until it is stopped. Writes to `--progress`: first a line that describes the run, then one line
for each update, {"steps": agent steps learned from, "wall_s": time.monotonic()}.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import ale_py  # noqa: F401  # registers the games, in workers too
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


def write(path: str, **line: Any) -> None:
    """Append one JSON line to the file at `path`."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def main() -> None:
    """Train until stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("env", "workers", "envs_per_worker", "progress", "scratch"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--algorithm", required=True, choices=ALGORITHMS)
    options = parser.parse_args()
    cores = int(options.workers)
    envs = cores * int(options.envs_per_worker)
    torch.set_num_threads(cores)
    algorithm, settings = ALGORITHMS[options.algorithm]
    # One process per game is how its own examples and its zoo use several cores.
    games = make_atari_env(options.env, n_envs=envs, seed=1, vec_env_cls=SubprocVecEnv)
    model = algorithm(
        "CnnPolicy", VecFrameStack(games, n_stack=4), device="cpu", seed=1, **settings
    )
    flags = {"policy": "CnnPolicy", "n_envs": envs, "torch_threads": cores, **settings}
    write(options.progress, flags=json.dumps(flags))
    model.learn(total_timesteps=10**12, callback=ProgressWriter(options.progress))


if __name__ == "__main__":
    main()
