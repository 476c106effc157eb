"""Driver of Sample Factory's Atari example: asynchronous PPO, in an environment of its own.

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
from sample_factory.algo.runners.runner import (  # type: ignore[import-not-found]
    AlgoObserver,
    Runner,
)
from sample_factory.envs.env_utils import register_env  # type: ignore[import-not-found]
from sample_factory.train import make_runner  # type: ignore[import-not-found]
from sf_examples.atari.atari_utils import (  # type: ignore[import-not-found]
    ATARI_ENVS,
    make_atari_env,
)
from sf_examples.atari.train_atari import (  # type: ignore[import-not-found]
    parse_atari_args,
    register_atari_components,
)

# with_vtrace crashes in 2.1.1: its summaries read advantages that were not computed. This is GAE.
FLAGS = (
    "--algo=APPO", "--device=cpu", "--async_rl=True", "--serial_mode=False",
    "--worker_num_splits=2", "--rollout=20", "--batch_size=320", "--num_epochs=1",
    "--num_batches_per_epoch=1", "--encoder_conv_architecture=convnet_atari",
    "--summaries_use_frameskip=False", "--train_for_env_steps=1000000000000",
    "--restart_behavior=overwrite",
)  # fmt: skip
# The Atari example sets everything else itself, eight workers of one game included.
FLAGS_AS_PUBLISHED = ("--algo=APPO", "--device=cpu", "--restart_behavior=overwrite")


class ProgressWriter(AlgoObserver):  # type: ignore[misc]
    """Writes one line for each update of the learner."""

    def __init__(self, path: str) -> None:
        """Append to the file at `path`."""
        self._path = path

    def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
        """Note the agent steps learned from so far."""
        steps = sum(runner.env_steps.values())
        if runner.cfg.summaries_use_frameskip:  # then it counts frames
            steps /= runner.cfg.env_frameskip
        write(self._path, steps=steps, wall_s=time.monotonic())


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


def make_logged(path: str, name: str, *details: Any, **more: Any) -> gymnasium.Env:
    """Make one game as the example does; called in the processes that play."""
    env: gymnasium.Env = make_atari_env(name, *details, **more)
    layer = env
    while not isinstance(layer, gymnasium.wrappers.RecordEpisodeStatistics):  # its innermost
        layer = layer.env
    layer.env = GameLog(layer.env, path)
    return env


def write(path: str, **line: Any) -> None:
    """Append one JSON line to the file at `path`."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line, allow_nan=False) + "\n")


def main() -> None:
    """Train until stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("env", "workers", "envs_per_worker", "seed", "progress", "scratch"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--as_published", action="store_true", help="to compare learning")
    options = parser.parse_args()
    names = [spec.name for spec in ATARI_ENVS if spec.env_id == options.env]
    if not names:
        raise SystemExit(f"error: Sample Factory's example knows no {options.env}")
    flags = [f"--env={names[0]}", f"--seed={options.seed}"]
    register_atari_components()
    if options.as_published:
        flags += FLAGS_AS_PUBLISHED
        register_env(names[0], partial(make_logged, options.progress))
    else:
        flags += [
            f"--num_workers={options.workers}",
            f"--num_envs_per_worker={options.envs_per_worker}", *FLAGS,
        ]  # fmt: skip
    _, runner = make_runner(
        parse_atari_args([*flags, f"--train_dir={options.scratch}", "--experiment=run"])
    )
    runner.register_observer(ProgressWriter(options.progress))
    write(options.progress, flags=" ".join(flags))
    runner.init()
    runner.run()


if __name__ == "__main__":
    main()
