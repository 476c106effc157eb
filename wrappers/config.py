"""What can be chosen about an environment: one frozen record, read by everything in this package.

Next to read: wrappers/vector.py, the interface that environments are stepped through.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ritornello.core.errors import ConfigError

BackendChoice = Literal["auto", "ale_vector", "gymnasium", "gymnasium_vector", "envpool"]
ENVPOOL = "envpool"  # the backend, the package, and its mark in Gymnasium's registry
FRAMES_PER_S = 60.0  # the console's rate
MAX_EPISODE_FRAMES = 108_000  # 30 minutes at 60 frames/s, the usual Atari cap


@dataclass(frozen=True)
class EnvConfig:
    """Everything that decides what an environment shows.

    Outside Atari only `env_id`, `kwargs`, `backend`, and for images `frames_stacked` matter: other
    environments are taken as they are.
    """

    # PongNoFrameskip-v4 | ALE/Pong-v5 | CartPole-v1 | module:MyEnv-v0, or several with commas
    env_id: str
    action_repeat: int = 4  # simulator frames per agent step
    frames_stacked: int = 4  # frames per observation
    noop_max: int = 30  # a game starts after 0 .. noop_max - 1 frames of doing nothing
    grayscale: bool = True  # else RGB
    episodic_life: bool = True  # a lost life ends the agent's episode, but not the game
    height: int = 84  # pixels
    width: int = 84  # pixels
    # Per frame. None is what the id stands for: 0 for NoFrameskip-v4, 0.25 for v5.
    sticky_action_probability: float | None = None
    full_action_space: bool = False  # all 18 joystick actions, not only those the game uses
    # Names of the actions that the agent chooses from, e.g. ("NOOP", "UP"). Empty: those that the
    # games use (all 18 with full_action_space).
    actions: tuple[str, ...] = ()
    fire_reset: bool = True  # press FIRE once when a game starts, if the game has that button
    max_episode_frames: int = MAX_EPISODE_FRAMES  # then the game is truncated
    backend: BackendChoice = "auto"
    kwargs: str = ""  # arguments of environments (wrappers/env_kwargs.py); not for Atari

    def __post_init__(self) -> None:
        """Raise ConfigError on what flags, or the registration of a game, let through."""
        sticky = self.sticky_action_probability
        if sticky is not None and not 0.0 <= sticky < 1.0:
            raise ConfigError(
                f"sticky_action_probability is {sticky}, expected 0 (off) or more and less than 1."
            )
        if len(set(self.actions)) < len(self.actions):
            raise ConfigError(f"actions is {', '.join(self.actions)}, expected each name once.")

    @property
    def games(self) -> tuple[EnvConfig, ...]:
        """One config per game, in the order of the task numbers."""
        return tuple(replace(self, env_id=env_id) for env_id in self.env_id.split(","))
