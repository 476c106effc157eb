"""Images of environments that are not Atari's: which axis has the channels, and in what order.

What is stored and learned from is `[C, H, W]`. Most environments of Gymnasium show `[H, W, C]`, a
few `[C, H, W]`, gray ones may show `[H, W]`, and Gymnasium's `FrameStackObservation` puts an axis
before these.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box

from ritornello.core.errors import ConfigError, EnvironmentFault
from ritornello.core.plain_data import shown

MOST_CHANNELS = 4  # that an image has by itself: RGB and transparency
NEARLY_BLACK = 2  # of 255
LEAST_RATIO = 4  # by which unequal height and width exceed a first axis of more channels
SMALLEST_PICTURE = 2  # pixels; the codec of films wants even sizes


def is_image_space(space: Any) -> bool:
    """Whether observations are images: of three axes, gray ones of uint8 of two, or a stack."""
    if not isinstance(space, Box):
        return False
    is_gray = len(space.shape) == 2 and space.dtype == np.uint8
    return is_gray or len(space.shape) == 3 or _is_stack(space.shape)


def _is_stack(shape: tuple[int, ...]) -> bool:
    """Whether an array is several images, as (4, 84, 84, 3) is, and no volume (16, 16, 16, 2).

    The images of `FrameStackObservation` are few, and have up to 4 channels.
    """
    if len(shape) != 4 or 0 in shape:
        return False
    count, *sides = shape
    return sides.pop(channel_axes(shape)[1] - 1) <= MOST_CHANNELS and count < min(sides)


def channel_axes(shape: tuple[int, ...], said: Any = None) -> tuple[int, ...]:
    """Return which axes of an image are not its height and width: none of (84, 84).

    `said` is what the environment says: `metadata = {"channels": "first"}`, or "last". Otherwise
    the axis beside two equal ones has the channels, as in (17, 9, 9) and (8, 8, 12), unless the two
    are a single pixel; or else one that is as short as channels are, (60, 80, 3), or a first one
    that is four times shorter than the others, (8, 60, 80), or the last. The first axis of a stack
    of images counts them.
    """
    if len(shape) == 2:
        return ()
    if said not in (None, "first", "last"):
        raise ConfigError(
            f"metadata['channels'] of the environment is {shown(said)}, expected first or last."
        )
    if len(shape) == 4:
        (axis,) = channel_axes(shape[1:], said)
        return (0, axis + 1)
    first, middle, last = shape
    if said is not None:
        is_first = said == "first"
    elif middle > 1 and (first == middle) != (middle == last):
        is_first = middle == last
    elif first <= MOST_CHANNELS or last <= MOST_CHANNELS:
        is_first = last > MOST_CHANNELS
    else:
        is_first = LEAST_RATIO * first <= min(middle, last)
    return (0,) if is_first else (2,)


def turned(image: np.ndarray, axes: tuple[int, ...], *count: int) -> np.ndarray:
    """Return an image as [C, H, W], or `count` images as [count, C, H, W]; only stacks are copied.

    An image has two to four axes, after that of the count if there is one. `axes` are those of them
    that are not its height and width (`channel_axes`).
    """
    begin = len(count)
    front = np.moveaxis(image, [begin + axis for axis in axes], range(begin, begin + len(axes)))
    return front.reshape(*count, -1, *front.shape[-2:])


def picture_of(value: Any) -> np.ndarray:
    """Return what an environment has rendered as a picture [H, W, 3] uint8, for a film or a check.

    Truth values and real numbers up to 1 are scaled; gray pictures get three equal channels.

    Raises:
      EnvironmentFault: if `value` is no picture.
    """
    picture: np.ndarray = value if isinstance(value, np.ndarray) else np.zeros(0)
    if picture.ndim == 3 and picture.shape[2] == 1:
        picture = picture[:, :, 0]
    if picture.ndim == 2:
        picture = np.repeat(picture[:, :, None], 3, axis=2)
    is_shaped = picture.ndim == 3 and picture.shape[2] == 3
    if is_shaped and min(picture.shape[:2]) >= SMALLEST_PICTURE and picture.dtype.kind in "buif":
        if picture.dtype == np.uint8:
            return picture
        least, most = picture.min(), picture.max()
        if 0 <= least <= most <= 255:  # nor is NaN
            # Interpolated pictures have a little more than 1 here and there.
            is_share = picture.dtype.kind in "bf" and most < NEARLY_BLACK
            return (np.minimum(picture, 1) * 255 if is_share else picture).astype(np.uint8)
    shape = f" of shape {value.shape} and {value.dtype}" if isinstance(value, np.ndarray) else ""
    raise EnvironmentFault(
        f"render() returns {shown(value)}{shape}, expected a picture [H, W, 3] of numbers from 0 "
        f"to 255, of at least {SMALLEST_PICTURE}x{SMALLEST_PICTURE} pixels."
    )
