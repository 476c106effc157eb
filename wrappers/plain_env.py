"""An environment of Gymnasium as it is learned from: it shows one array and takes stored actions.

What it returns is checked in every step: environments with a bug rarely stop by themselves. That
takes some microseconds, where CartPole takes 13 and the whole training of a step of it some 200.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from ritornello.core.errors import ConfigError, EnvironmentFault
from ritornello.core.plain_data import shown, shown_text
from ritornello.core.spec import EnvSpec
from ritornello.wrappers.action_masks import ActionMasks, mask_taken_out
from ritornello.wrappers.gym_actions import ActionCode
from ritornello.wrappers.gym_observations import MAX_FLOAT32, ObservationCode

STEP_RETURNS = "(observation, reward, terminated, truncated, info)"


class PlainEnv(gymnasium.Wrapper):
    """Shows frames of an `EnvSpec`, and takes actions as they are stored."""

    def __init__(self, env: gymnasium.Env, env_id: str) -> None:
        """Wrap an environment that is not Atari's; `env_id` is its id, for messages.

        Raises:
          ConfigError: if its spaces are not supported.
        """
        env = mask_taken_out(env)
        super().__init__(env)
        try:
            said = (getattr(env, "metadata", None) or {}).get("channels")
            self.shown = ObservationCode(env.observation_space, said)
            self.actions = ActionCode(env.action_space)
        except ConfigError as error:
            raise ConfigError(
                f"env {env_id} shows {shown_text(str(env.observation_space))} and takes "
                f"{shown_text(str(env.action_space))}, which is not supported "
                f"({error}). Supported are Atari games (PongNoFrameskip-v4, "
                "ALE/Pong-v5), and environments that show a Box such as Box(shape=(4,)), images "
                "such as Box(0, 255, (64, 64, 3), uint8), choices, or a Dict or Tuple of these, "
                "and take Discrete, MultiDiscrete or MultiBinary actions, a Box of real numbers, "
                "or a Dict or Tuple of these. `python -m ritornello.wrappers.check <id>` says how "
                "to come there."
            ) from error
        actions = self.actions
        self.masks = ActionMasks(env, env.action_space, actions.actions)
        self.env_spec = EnvSpec(
            env_id=env_id,
            frame_shape=self.shown.shape,
            frame_dtype=self.shown.dtype,
            frames_stacked=1,
            action_meanings=actions.meanings(),
            action_repeat=1,
            action_parts=() if actions.is_single_choice else actions.actions.parts,
            observation_parts=self.shown.parts,
        )
        self._encode, self._decode = self.shown.encode, actions.decode  # asked in every step
        self.action_space = actions.stored_space()
        kind = np.dtype(self.shown.dtype).type
        low, high = (0, 255) if kind is np.uint8 else (-np.inf, np.inf)
        self.observation_space = Box(low, high, self.shown.shape, kind)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Start a game; return (frame, info), with `info["action_mask"]` if it has masks.

        Raises:
          EnvironmentFault: if the environment returns something else.
        """
        observation, info = reset_result(self.env.reset(seed=seed, options=options))
        return self._encode(observation), self.masks.of_reset(info)

    def step(self, action: Any) -> Any:
        """Do one action, a row of numbers or one integer; return (frame, reward, ...).

        Raises:
          EnvironmentFault: if the environment returns something else.
        """
        result: Any = self.env.step(self._decode(action))
        observation, reward, terminated, truncated, info = step_result(result)
        frame = self._encode(observation)
        info = self.masks.of_step(info, terminated, truncated)
        return frame, reward, terminated, truncated, info


def reset_result(result: Any) -> tuple[Any, Any]:
    """Return what `reset` returned, or raise EnvironmentFault if it is not two things."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise EnvironmentFault(f"reset returned {shown(result)}, expected (observation, info).")
    if not isinstance(result[1], Mapping):
        raise EnvironmentFault(f"info of reset is {shown(result[1])}, expected a dict.")
    return result


def step_result(result: Any) -> tuple[Any, float, bool, bool, Mapping[str, Any]]:
    """Return the five things that `step` returned, the observation as it is.

    Raises:
      EnvironmentFault: if there are not five things, or they are of other types.
    """
    if not isinstance(result, tuple) or len(result) != 5:
        got = f"{len(result)} values" if isinstance(result, tuple) else shown(result)
        old = " (four of them: Gym before 0.26)" if got == "4 values" else ""
        raise EnvironmentFault(f"step returned {got}{old}, expected {STEP_RETURNS}.")
    observation, reward, terminated, truncated, info = result
    if type(info) is not dict and not isinstance(info, Mapping):
        raise EnvironmentFault(f"info of step is {shown(info)}, expected a dict.")
    # Most flags are bools already, and this is done some 10,000 times a second.
    if type(terminated) is not bool:
        terminated = bool(_number("terminated", terminated, "biu"))
    if type(truncated) is not bool:
        truncated = bool(_number("truncated", truncated, "biu"))
    return observation, _reward(reward), terminated, truncated, info


def _reward(value: Any) -> float:
    try:
        number = value if isinstance(value, float) else _number("reward", value, "biuf")
    except OverflowError:  # a whole number of Python has no largest one
        number = float("inf")
    if not -MAX_FLOAT32 <= number <= MAX_FLOAT32:  # nor is NaN
        raise EnvironmentFault(f"reward is {number!r}, expected a finite number (of float32).")
    return number


def _number(name: str, value: Any, kinds: str) -> float:
    if type(value) is int:
        return float(value)
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        array = np.asarray(None)
    if array.shape != () or array.dtype.kind not in kinds:
        expected = "one number" if "f" in kinds else "True or False"
        shape = f" of shape {array.shape}" if array.shape else ""
        raise EnvironmentFault(f"{name} is {shown(value)}{shape}, expected {expected}.")
    return float(array)
