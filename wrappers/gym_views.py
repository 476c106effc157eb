"""From an environment of Gymnasium to one that shows and takes what is stored."""

from __future__ import annotations

import gymnasium

from wrappers.extra_worlds import as_shown
from wrappers.gym_actions import with_stored_actions
from wrappers.gym_observations import with_one_observation
from wrappers.images import ChannelsFirst, shows_images


def as_stored(env_id: str, env: gymnasium.Env) -> gymnasium.Env:
    """Return an environment with images [C, H, W] or one array, and actions as they are stored.

    Args:
      env_id: as the user typed it, with or without a module.
      env: as Gymnasium has made it.
    """
    env = as_shown(env_id.rpartition(":")[2], env)
    seen = ChannelsFirst(env) if shows_images(env) else with_one_observation(env)
    return with_stored_actions(seen)
