"""Driver of RLlib's IMPALA (new API stack), in an environment of its own.

Runs until it is stopped. Writes to `--progress`: first a line that describes the run, then one line
for each iteration that learned, {"steps": agent steps learned from, "wall_s": time.monotonic()}.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import ale_py
import gymnasium
import ray  # type: ignore[import-not-found]
from ray.rllib.algorithms.impala import IMPALAConfig  # type: ignore[import-not-found]
from ray.rllib.core.rl_module.default_model_config import (  # type: ignore[import-not-found]
    DefaultModelConfig,
)
from ray.rllib.env.wrappers.atari_wrappers import (  # type: ignore[import-not-found]
    wrap_atari_for_new_api_stack,
)
from ray.tune.registry import register_env  # type: ignore[import-not-found]

# A convolutional encoder here has no hidden layer after it: the 512 are in each of the two heads.
MODEL: dict[str, Any] = {
    "conv_filters": [[32, 8, 4, "valid"], [64, 4, 2, "valid"], [64, 3, 1, "valid"]],
    "conv_activation": "relu",
    "head_fcnet_hiddens": [512],
    "head_fcnet_activation": "relu",
    "vf_share_layers": True,
}
TRAINING = {"train_batch_size_per_learner": 320, "lr": 0.0005}
WRAPPERS = {"dim": 84, "framestack": 4}


def make_env(config: dict[str, Any]) -> gymnasium.Env:
    """Make one game with RLlib's own wrappers; called in the processes that play."""
    gymnasium.register_envs(ale_py)
    env: gymnasium.Env = wrap_atari_for_new_api_stack(gymnasium.make(config["id"]), **WRAPPERS)
    return env


def write(path: str, **line: Any) -> None:
    """Append one JSON line to the file at `path`."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def main() -> None:
    """Train until stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("env", "workers", "envs_per_worker", "progress", "scratch"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    runners = {
        "num_env_runners": int(options.workers),
        "num_envs_per_env_runner": int(options.envs_per_worker),
        "rollout_fragment_length": 20,
    }
    # Runners are given no core of their own, so that Ray also starts them where it counts two.
    ray.init(include_dashboard=False, _temp_dir=options.scratch)
    register_env("atari", make_env)
    config = (
        IMPALAConfig()
        .framework("torch")
        .environment("atari", env_config={"id": options.env})
        .env_runners(**runners, num_cpus_per_env_runner=0)
        .learners(num_learners=0)
        .training(**TRAINING)
        .rl_module(model_config=DefaultModelConfig(**MODEL))
        .reporting(min_time_s_per_iteration=0)
        .debugging(seed=1)
    )
    settings = {**runners, "num_learners": 0, **TRAINING, "wrappers": WRAPPERS, "model": MODEL}
    write(options.progress, flags=json.dumps(settings))
    algorithm = config.build_algo()
    steps = 0.0
    while True:
        result = algorithm.train()
        learned = result.get("learners", {}).get("__all_modules__", {})
        now = learned.get("num_env_steps_trained_lifetime", steps)
        if now > steps:
            steps = float(now)
            write(options.progress, steps=steps, wall_s=time.monotonic())


if __name__ == "__main__":
    main()
