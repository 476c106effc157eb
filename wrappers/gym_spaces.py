"""From the spaces of an environment of Gymnasium to what this program knows of it."""

from __future__ import annotations

import gymnasium
import numpy as np

from core.errors import ConfigError
from core.spec import EnvSpec


def spec_of_spaces(env_id: str, env: gymnasium.Env) -> EnvSpec:
    """Return the spec of an environment with vectors or images in and one of A actions out.

    Args:
      env_id: as the user typed it.
      env: whose images, if it shows any, are [C, H, W] (wrappers/images.py).

    Raises:
      ConfigError: if its spaces are others.
    """
    seen, acted = env.observation_space, env.action_space
    if (
        not isinstance(seen, gymnasium.spaces.Box)
        or not isinstance(acted, gymnasium.spaces.Discrete)
        or len(seen.shape) not in (1, 3)
        or acted.start != 0
    ):
        raise ConfigError(
            f"env {env_id} shows {seen} and takes {acted}, which is not supported. Supported are "
            "Atari games (PongNoFrameskip-v4, ALE/Pong-v5), and environments that show a flat Box "
            "such as Box(shape=(4,)) or images such as Box(0, 255, (64, 64, 3), uint8) and take "
            "Discrete actions from 0, such as CartPole-v1. `python -m wrappers.check <id>` says "
            "how to come there."
        )
    is_bytes = len(seen.shape) == 3 and seen.dtype == np.uint8
    return EnvSpec(
        env_id=env_id,
        frame_shape=tuple(seen.shape),
        frame_dtype="uint8" if is_bytes else "float32",
        frames_stacked=1,
        action_meanings=tuple(str(action) for action in range(int(acted.n))),
        action_repeat=1,
    )


def shown_images(spec: EnvSpec) -> str:
    """Return ", images of ..." for a line of the log; "" of what shows vectors."""
    if not spec.is_image:
        return ""
    channels, height, width = spec.frame_shape
    stacked = f", {spec.frames_stacked} stacked" if spec.frames_stacked > 1 else ""
    return f", images of {height}x{width} pixels and {channels} channels{stacked}"
