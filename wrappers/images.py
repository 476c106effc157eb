"""Images of environments that are not Atari's: which axis has the channels, and in what order.

What is stored and learned from is `[C, H, W]`. Most environments of Gymnasium show `[H, W, C]`, a
few `[C, H, W]`, and gray ones may show `[H, W]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from ritornello.core.errors import ConfigError, EnvironmentFault
from ritornello.core.plain_data import shown

MOST_CHANNELS = 4  # that an image has by itself: RGB and transparency
ORDERS = ("first", "last")


def is_image_space(space: Any) -> bool:
    """Whether observations are images: of three axes, or gray ones of two."""
    if not isinstance(space, Box):
        return False
    return len(space.shape) == 3 or (len(space.shape) == 2 and space.dtype == np.uint8)


def is_picture(value: Any) -> TypeGuard[np.ndarray]:
    """Whether what an environment renders is a picture [H, W, 3] that a film can show.

    The codec wants even sizes, so there is none of a single row or column.
    """
    return (
        isinstance(value, np.ndarray)
        and value.ndim == 3
        and value.shape[2] == 3
        and min(value.shape[:2]) >= 2
    )


def what_is_rendered(value: Any) -> str:
    """Return what an environment renders, in words for a message."""
    shape = f" of shape {value.shape}" if isinstance(value, np.ndarray) else ""
    return f"{shown(value)}{shape}"


def shows_images(env: gymnasium.Env) -> bool:
    """Whether an environment, which may lack its spaces altogether, shows images."""
    space = getattr(env, "observation_space", None)
    return isinstance(space, gymnasium.Space) and is_image_space(space)


def channels_are_first(env: gymnasium.Env) -> bool:
    """Whether the channels of an environment's images are the first axis.

    The environment may say so: `metadata = {"channels": "first"}`, or "last". Otherwise they are if
    only the first axis is as short as channels are: (3, 64, 64), but not (64, 64, 3) or (7, 7, 30).
    """
    said = (getattr(env, "metadata", None) or {}).get("channels")
    return _are_first(env.observation_space.shape or (), said)


def _are_first(shape: tuple[int, ...], said: Any) -> bool:
    if said is not None and said not in ORDERS:
        raise ConfigError(
            f"metadata['channels'] of the environment is {shown(said)}, expected first or last."
        )
    if said is None:
        return shape[0] <= MOST_CHANNELS < shape[2]
    return bool(said == "first")


def turned_space(space: Box, said: Any) -> tuple[Box, Callable[[np.ndarray], np.ndarray]]:
    """Return a space of images with [C, H, W] images, and what turns an image to be one of it.

    Args:
      space: of images.
      said: where the environment says that its channels are: first, last or None.
    """
    is_gray = len(space.shape) == 2
    are_first = not is_gray and _are_first(space.shape, said)

    def turned(image: np.ndarray) -> np.ndarray:
        if is_gray:
            return image[None]
        return image if are_first else np.moveaxis(image, -1, 0)

    low, high = turned(space.low), turned(space.high)
    return Box(low, high, dtype=(space.dtype or np.dtype(np.uint8)).type), turned


class ChannelsFirst(gymnasium.ObservationWrapper):
    """Shows images as [C, H, W], whatever the environment does. Nothing is copied."""

    def __init__(self, env: gymnasium.Env) -> None:
        """Wrap an environment whose space `is_image_space`."""
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, Box)
        self._shape = space.shape
        said = (getattr(env, "metadata", None) or {}).get("channels")
        self.observation_space, self._turned = turned_space(space, said)

    def observation(self, observation: Any) -> np.ndarray:
        """Return one image as [C, H, W].

        Raises:
          EnvironmentFault: if it has another shape than its space, told as the environment has it.
        """
        image = np.asarray(observation)
        if image.shape != self._shape:
            raise EnvironmentFault(
                f"observation has shape {image.shape}, expected {self._shape} as in its space: "
                f"{shown(observation)}."
            )
        return self._turned(image)
