"""From the spaces of an environment of Gymnasium to what this program knows of it."""

from __future__ import annotations

import gymnasium
import numpy as np

from ritornello.core.errors import ConfigError
from ritornello.core.spec import ActionPart, EnvSpec, ObservationPart
from ritornello.wrappers.gym_actions import RowActions, why_not
from ritornello.wrappers.gym_checks import why_too_large
from ritornello.wrappers.gym_observations import MAX_NUMBERS, PartsObservation, why_not_shown


def spec_of_spaces(env_id: str, env: gymnasium.Env) -> EnvSpec:
    """Return the spec of an environment that `registry` has wrapped.

    Its images are [C, H, W], and it takes actions as they are stored.

    Raises:
      ConfigError: if its spaces are others.
    """
    seen, acted = env.observation_space, _own_actions(env)
    shape = tuple(getattr(seen, "shape", None) or ())  # a class may say None is its space
    is_seen = isinstance(seen, gymnasium.spaces.Box) and len(shape) in (1, 3) and 0 not in shape
    too_large = why_too_large("an observation", seen, MAX_NUMBERS)
    reason = too_large or (not is_seen and why_not_shown(env)) or why_not(acted)
    if not is_seen or reason:
        raise ConfigError(
            f"env {env_id} shows {seen} and takes {acted}, which is not supported"
            f"{f' ({reason})' if reason else ''}. Supported are Atari games (PongNoFrameskip-v4, "
            "ALE/Pong-v5), and environments that show a Box such as Box(shape=(4,)), images such "
            "as Box(0, 255, (64, 64, 3), uint8), choices, or a Dict or Tuple of these, and take "
            "Discrete, MultiDiscrete or MultiBinary actions, a Box of real numbers, or a Dict or "
            "Tuple of these. `python -m ritornello.wrappers.check <id>` says how to come there."
        )
    meanings, parts = _actions(env)
    is_bytes = seen.dtype == np.uint8 and (len(shape) == 3 or bool(_shown_parts(env)))
    return EnvSpec(
        env_id=env_id,
        frame_shape=shape,
        frame_dtype="uint8" if is_bytes else "float32",
        frames_stacked=1,
        action_meanings=meanings,
        action_repeat=1,
        action_parts=parts,
        observation_parts=_shown_parts(env),
    )


def _shown_parts(env: gymnasium.Env) -> tuple[ObservationPart, ...]:
    """Return what a frame consists of, () if it is one array."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, PartsObservation):
            return env.parts
        env = env.env
    return ()


def _own_actions(env: gymnasium.Env) -> gymnasium.Space:
    """Return the space of actions that the environment itself has."""
    return (env.env if isinstance(env, RowActions) else env).action_space


def _actions(env: gymnasium.Env) -> tuple[tuple[str, ...], tuple[ActionPart, ...]]:
    """Return the names of actions, and their parts where an action is more than one choice."""
    acted = _own_actions(env)
    if isinstance(acted, gymnasium.spaces.Discrete):
        start, count = int(acted.start), int(acted.n)
        return tuple(str(action) for action in range(start, start + count)), ()
    assert isinstance(env, RowActions), "see wrappers/registry.py"
    if env.actions.is_single_choice:
        return tuple(str(action) for action in range(env.actions.parts[0].count)), ()
    return env.actions.meanings(), env.actions.parts
