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
from ray.rllib.connectors.env_to_module.frame_stacking import (  # type: ignore[import-not-found]
    FrameStackingEnvToModule,
)
from ray.rllib.connectors.learner.frame_stacking import (  # type: ignore[import-not-found]
    FrameStackingLearner,
)
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

# Those of rllib/examples/algorithms/impala/pong_impala.py.
EXAMPLE_TRAINING: dict[str, Any] = {
    "train_batch_size_per_learner": 500, "grad_clip": 30.0, "grad_clip_by": "global_norm",
    "lr": 0.0009, "vf_loss_coeff": 1.0, "entropy_coeff": [[0, 0.02], [3_000_000, 0.0]],
}  # fmt: skip
EXAMPLE_MODEL: dict[str, Any] = {
    "vf_share_layers": True,
    "conv_filters": [[16, 4, 2], [32, 4, 2], [64, 4, 2], [128, 4, 2]],
    "conv_activation": "relu",
    "post_fcnet_hiddens": [256],
}


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


def make_env(config: dict[str, Any]) -> gymnasium.Env:
    """Make one game with RLlib's own wrappers; called in the processes that play."""
    gymnasium.register_envs(ale_py)
    game = gymnasium.make(config["id"])
    if config["log"]:
        game = GameLog(game, config["log"])
    env: gymnasium.Env = wrap_atari_for_new_api_stack(game, **config["wrappers"])
    return env


def stack_frames(env: Any, spaces: Any, device: Any) -> Any:
    """Return the connector by which its example stacks frames before acting."""
    return FrameStackingEnvToModule(num_frames=4)


def stack_frames_to_learn(observations: Any, actions: Any) -> Any:
    """Return the connector by which its example stacks frames before learning."""
    return FrameStackingLearner(num_frames=4)


def equal_work(options: argparse.Namespace) -> tuple[IMPALAConfig, dict[str, Any]]:
    """Return settings that come near to the other systems', and those worth reporting."""
    runners = {
        "num_env_runners": int(options.workers),
        "num_envs_per_env_runner": int(options.envs_per_worker),
        "rollout_fragment_length": 20,
    }
    environment = {"id": options.env, "log": "", "wrappers": WRAPPERS}
    config = (
        IMPALAConfig()
        .environment("atari", env_config=environment)
        .env_runners(**runners, num_cpus_per_env_runner=0)
        .training(**TRAINING)
        .rl_module(model_config=DefaultModelConfig(**MODEL))
        .reporting(min_time_s_per_iteration=0)
    )
    return config, {**runners, **TRAINING, "wrappers": WRAPPERS, "model": MODEL}


def as_published(options: argparse.Namespace) -> tuple[IMPALAConfig, dict[str, Any]]:
    """Return the settings of its example for Pong, and those worth reporting."""
    wrappers = {"dim": 64, "framestack": None}
    environment = {"id": options.env, "log": options.progress, "wrappers": wrappers}
    config = (
        IMPALAConfig()
        .environment("atari", env_config=environment, clip_rewards=True)
        .env_runners(
            env_to_module_connector=stack_frames,
            num_envs_per_env_runner=5,
            num_cpus_per_env_runner=0,
        )
        .training(learner_connector=stack_frames_to_learn, **EXAMPLE_TRAINING)
        .rl_module(model_config=EXAMPLE_MODEL)
    )
    return config, {**EXAMPLE_TRAINING, "wrappers": wrappers, "model": EXAMPLE_MODEL}


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
    # Runners are given no core of their own, so that Ray also starts them where it counts two.
    ray.init(include_dashboard=False, _temp_dir=options.scratch)
    register_env("atari", make_env)
    config, settings = (as_published if options.as_published else equal_work)(options)
    config = config.framework("torch").learners(num_learners=0)
    algorithm = config.debugging(seed=int(options.seed)).build_algo()
    write(options.progress, flags=json.dumps({"num_learners": 0, **settings}, allow_nan=False))
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
