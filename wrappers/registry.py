"""The factory: from an EnvConfig to a spec, to environments and to a line for the log.

Two backends can run Atari. `auto` takes the fast one wherever it can do what is asked, and says
why where it cannot.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ale_py
import gymnasium

from core.errors import ConfigError
from core.spec import EnvSpec
from wrappers.atari import action_meanings, make_atari_env
from wrappers.config import EnvConfig
from wrappers.env_ids import check_env_id, is_atari, rom_name, with_sticky_actions
from wrappers.gym_vector import GymVector
from wrappers.vector import EnvVector

__all__ = [
    "Backend",
    "check_env_id",
    "choose_backend",
    "describe",
    "is_atari",
    "make_env_spec",
    "make_env_vector",
]


@dataclass(frozen=True)
class Backend:
    """Which implementation runs the environments, and why."""

    name: str  # ale_vector | gymnasium
    reason: str


def choose_backend(
    config: EnvConfig, *, restorable: bool = False, render_mode: str | None = None
) -> Backend:
    """Return the backend for `config`; the fast one unless something asked for needs the other.

    Raises:
      ConfigError: if `config.backend` insists on the fast one and it cannot do what is asked, or
        the id is unknown.
    """
    check_env_id(config.env_id)
    obstacle = _obstacle_to_ale_vector(config.env_id, restorable, render_mode)
    if config.backend == "gymnasium":
        return Backend("gymnasium", "asked for")
    if obstacle is None:
        return Backend("ale_vector", "asked for" if config.backend == "ale_vector" else "fastest")
    if config.backend == "ale_vector":
        raise ConfigError(
            f"backend is ale_vector, but {obstacle}. Use backend auto or gymnasium instead."
        )
    return Backend("gymnasium", obstacle)


@functools.cache
def make_env_spec(config: EnvConfig) -> EnvSpec:
    """Read the spec off a real environment, made for it (once per config) and closed again.

    Raises:
      ConfigError: if the id is unknown, its spaces are not supported, or something that it needs
        is not installed.
    """
    make_env = _env_maker(config)
    try:
        env = make_env()
    except gymnasium.error.Error as error:
        raise ConfigError(f"env {config.env_id} is known but cannot be made: {error}") from error
    try:
        if is_atari(config.env_id):
            return EnvSpec(
                env_id=config.env_id,
                frame_shape=tuple(env.observation_space.shape or ()),
                frame_dtype="uint8",
                frames_stacked=config.frames_stacked,
                action_meanings=tuple(action_meanings(env)),
                action_repeat=config.action_repeat,
            )
        return _flat_spec(config.env_id, env)
    finally:
        env.close()


def make_env_vector(
    config: EnvConfig,
    num_envs: int,
    seeds: Sequence[int],
    *,
    restorable: bool = False,
    render_mode: str | None = None,
    threads: int = 1,
) -> EnvVector:
    """Make E environments that are stepped together.

    Args:
      config: what they show.
      num_envs: E.
      seeds: E root seeds; equal seeds give equal games with the same backend.
      restorable: make a RestorableEnvVector (with `state_dict`), which needs Gymnasium.
      render_mode: "human" or "rgb_array"; needs Gymnasium.
      threads: that step them, where the backend can.

    Raises:
      ConfigError: if the environment is unknown or not supported, or `seeds` are not E.
    """
    if num_envs < 1 or len(seeds) != num_envs:
        raise ConfigError(f"got {len(seeds)} seeds for {num_envs} environments, expected one each.")
    backend = choose_backend(config, restorable=restorable, render_mode=render_mode)
    spec = make_env_spec(config)
    if backend.name == "ale_vector":
        from wrappers.ale_vector import AleVector  # needs an ale-py built with it

        return AleVector(spec, with_sticky_actions(config), rom_name(config.env_id), seeds, threads)
    return GymVector(spec, _env_maker(config, render_mode), seeds, restorable=restorable)


def describe(config: EnvConfig, *, restorable: bool = False, render_mode: str | None = None) -> str:
    """Return one line for the run's log that says what the agent will be shown."""
    backend = choose_backend(config, restorable=restorable, render_mode=render_mode)
    end = f"backend {backend.name} ({backend.reason})"
    if not is_atari(config.env_id):
        return f"{config.env_id}: as Gymnasium has it, Atari rules do not apply; {end}"
    config = with_sticky_actions(config)
    rules = [
        f"{config.width}x{config.height} {'gray' if config.grayscale else 'RGB'}",
        f"{config.frames_stacked} frames stacked",
        f"actions repeated for {config.action_repeat} frames",
        f"{'all 18' if config.full_action_space else 'minimal'} actions",
        f"sticky actions {config.sticky_action_probability:g}",
        f"starts after 0-{max(0, config.noop_max - 1)} frames" if config.noop_max > 1 else "",
        "FIRE at start" if config.fire_reset else "",
        "lost life ends the episode" if config.episodic_life else "lives ignored",
        f"at most {config.max_episode_frames} frames",
    ]
    return f"{config.env_id}: {', '.join(rule for rule in rules if rule)}; {end}"


def _obstacle_to_ale_vector(env_id: str, restorable: bool, render_mode: str | None) -> str | None:
    """Return why the C++ vector cannot do what is asked, or None if it can."""
    if not is_atari(env_id):
        return f"{env_id} is not an Atari game"
    if not hasattr(ale_py, "ALEVectorInterface"):
        return "this build of ale-py has no vector environment"
    if restorable:
        return "environments that can be restored are asked for, and it cannot restore games"
    if render_mode is not None:
        return f"render_mode {render_mode} is asked for, and it cannot render"
    return None


def _env_maker(config: EnvConfig, render_mode: str | None = None) -> Callable[[], gymnasium.Env]:
    """Return a function that makes one environment showing single frames."""
    check_env_id(config.env_id)
    if is_atari(config.env_id):
        atari_config = with_sticky_actions(config)
        return lambda: make_atari_env(atari_config, render_mode)
    # Some environments know no render_mode, so it is only named where it is wanted. Gymnasium's
    # checker would look at each observation; the spaces are checked once, below.
    options: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
    return lambda: gymnasium.make(config.env_id, disable_env_checker=True, **options)


def _flat_spec(env_id: str, env: gymnasium.Env) -> EnvSpec:
    """Return the spec of an environment with vectors in and one of A actions out."""
    seen, acted = env.observation_space, env.action_space
    if (
        not isinstance(seen, gymnasium.spaces.Box)
        or not isinstance(acted, gymnasium.spaces.Discrete)
        or len(seen.shape) != 1
        or acted.start != 0
    ):
        raise ConfigError(
            f"env {env_id} shows {seen} and takes {acted}, which is not supported. Supported are "
            "Atari games (PongNoFrameskip-v4, ALE/Pong-v5), and environments that show a flat Box "
            "such as Box(shape=(4,)) and take Discrete actions from 0, such as CartPole-v1."
        )
    return EnvSpec(
        env_id=env_id,
        frame_shape=tuple(seen.shape),
        frame_dtype="float32",
        frames_stacked=1,
        action_meanings=tuple(str(action) for action in range(int(acted.n))),
        action_repeat=1,
    )
