"""One environment as a model sees it: a Gymnasium environment that shows single frames."""

from __future__ import annotations

import gymnasium

from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.registry import _env_maker, _runnable, make_env_spec


def make_single_env(
    config: EnvConfig, task: int = 0, render_mode: str | None = None
) -> gymnasium.Env:
    """Make one environment with all wrappers of a run; it shows frames of the run's EnvSpec.

    Args:
      config: which games, and what they show.
      task: number of the game among them.
      render_mode: "human" or "rgb_array"; None: it is not shown.

    Raises:
      ConfigError: if the environment is unknown or not supported.
    """
    spec = make_env_spec(config)
    game, numbers = _runnable(config.games[task], spec)
    return _env_maker(game, render_mode, numbers)()
