"""From what an environment shows to the one array that this program stores.

An environment may show a dict or a tuple of images, vectors, choices and switches. Its leaves are
taken apart here:

* images (uint8 of three axes, or gray ones of two; floats of three axes; stacks of these) stay
  images `[C, H, W]`;
* everything else becomes numbers: boxes of any other shape are flattened, a choice among n is n
  numbers of which one is 1, and switches are 0 or 1. All of them together are one vector.

A single image, or the vector if there is no image, is the observation. Otherwise a frame is a block
of bytes with the vector and the images in it (`EnvSpec.observation_parts`), which
agent/models/parts.py takes apart again. Everything between, such as transport and replay, then
moves one array as it always does.

An environment with a bug rarely stops: it shows another shape, which NumPy spreads over the row, or
NaN, which the learner finds thousands of steps later. So each leaf is checked in every step: its
shape and dtype, whether its numbers are finite, and not absurdly far outside their space.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from gymnasium.vector.utils import batch_space, iterate

from ritornello.core.errors import ConfigError, EnvironmentFault
from ritornello.core.plain_data import shown
from ritornello.core.spec import ObservationPart
from ritornello.wrappers.images import channel_axes, is_image_space, turned
from ritornello.wrappers.spaces import check_supported, leaves, values

MAX_NUMBERS = 10_000_000  # of an observation
VECTOR = "numbers"  # name of the part that is made of all that are no images
# Many environments leave their space a little. So far outside, the unit is wrong: 255 in [0, 1].
FAR_WIDTHS = 100.0
MAX_FLOAT32 = float(np.finfo(np.float32).max)

Encode = Callable[..., np.ndarray]


@dataclass(frozen=True)
class _Leaf:
    part: ObservationPart  # an image [C, H, W], or numbers [D] float32
    # From what the environment shows to such an array; of a Box, a count of environments may
    # follow, whose observations are then encoded at once.
    encode: Encode


class ObservationCode:
    """Makes one array of each observation of an environment.

    `shape` and `dtype` are those of the array; `parts` are the parts in it if it is a block of
    bytes.
    """

    def __init__(self, space: Any, said: Any = None) -> None:
        """Read a space; `said` is where the environment has its channels: first, last or None.

        Raises:
          ConfigError: if the space is not supported; the message is a part of a sentence.
        """
        check_supported("an observation", space, MAX_NUMBERS)
        self._space = space
        # The space of `count` of them. To make it takes longer than to take an observation apart.
        self._space_of = cache(partial(batch_space, space))
        self._leaves = [_leaf(one, said, path) for path, one in leaves(space)]
        # Makes one array of an observation, or raises EnvironmentFault if it is not as its space
        # says. Most spaces are one leaf, which takes less time.
        is_whole = not isinstance(space, (Dict, Tuple))
        self.encode: Encode = self._leaves[0].encode if is_whole else self._encode_parts
        images = [leaf.part for leaf in self._leaves if leaf.part.is_image]
        width = sum(leaf.part.shape[0] for leaf in self._leaves if not leaf.part.is_image)
        if not images and not width:
            raise ConfigError("it shows nothing")
        self.parts: tuple[ObservationPart, ...] = ()
        self.shape: tuple[int, ...] = (width,)
        self.dtype = "float32"
        if is_image_space(space):
            self.shape, self.dtype = images[0].shape, images[0].dtype
        elif images:
            vector = [ObservationPart(VECTOR, (width,), "float32")] if width else []
            # What is read as float32 goes first, so that it is aligned.
            self.parts = (*vector, *sorted(images, key=lambda part: part.dtype))
            # A multiple of 4, so that the next one is aligned too.
            self.shape = (-(-sum(part.nbytes for part in self.parts) // 4) * 4,)
            self.dtype = "uint8"

    def all_of(self, observations: Any, count: int) -> np.ndarray:
        """Return the observations of a vector of `count` environments as [count, *shape].

        A Box takes one pass over all of them, everything else one for each.

        Raises:
          EnvironmentFault: if an observation does not fit its space.
        """
        if isinstance(self._space, Box):
            return self._leaves[0].encode(observations, count)
        each = iterate(self._space_of(count), observations)
        return np.stack([self.encode(observation) for observation in each])

    def _encode_parts(self, observation: Any) -> np.ndarray:
        numbers: list[np.ndarray] = []
        blocks: dict[str, np.ndarray] = {}
        for leaf, value in zip(self._leaves, values(self._space, observation), strict=True):
            if leaf.part.is_image:
                blocks[leaf.part.name] = leaf.encode(value)
            else:
                numbers.append(leaf.encode(value))
        vector = np.concatenate(numbers) if numbers else np.zeros(0, np.float32)
        if not self.parts:
            return vector
        blocks[VECTOR] = vector
        content = b"".join(blocks[part.name].tobytes() for part in self.parts)
        frame = np.zeros(self.shape, np.uint8)
        frame[: len(content)] = np.frombuffer(content, np.uint8)
        return frame


def _leaf(space: Space, said: Any, path: str) -> _Leaf:
    """Return how one leaf is stored.

    Raises:
      ConfigError: if the leaf is not supported; the message is a part of a sentence.
    """
    if not isinstance(space, Box):
        return _choices(space, path)
    if not is_image_space(space):
        check, count = _ArrayCheck(space, "float32", path), int(np.prod(space.shape))
        part = ObservationPart(path, (count,), "float32")
        is_row = len(space.shape) == 1  # mostly; it takes less time
        return _Leaf(
            part,
            check if is_row else lambda value, *envs: check(value, *envs).reshape(*envs, -1),
        )
    if 0 in space.shape:
        raise ConfigError(f"{path}{': ' * bool(path)}an image {space.shape} has no pixels")
    axes, dtype = channel_axes(space.shape, said), "uint8" if space.dtype == np.uint8 else "float32"
    check = _ArrayCheck(space, dtype, path)
    shape = turned(np.broadcast_to(np.uint8(0), space.shape), axes).shape
    part = ObservationPart(path, shape, dtype)
    return _Leaf(part, lambda value, *envs: turned(check(value, *envs), axes, *envs))


def _choices(space: Any, path: str) -> _Leaf:
    """Return how a Discrete, MultiDiscrete or MultiBinary is stored."""
    counts: np.ndarray = np.ones(1, np.int64)
    start: np.ndarray = np.zeros(1, np.int64)
    if isinstance(space, Discrete):
        counts, start = np.array([int(space.n)]), np.array([int(space.start)])
    elif isinstance(space, MultiDiscrete):
        counts, start = space.nvec.reshape(-1), space.start.reshape(-1)
    is_binary = isinstance(space, MultiBinary)
    width = int(np.prod(space.shape)) if is_binary else int(counts.sum())
    begins = np.cumsum(counts) - counts - start

    def encode(value: Any) -> np.ndarray:
        if not space.contains(value) and not _is_whole_in(space, value):
            raise EnvironmentFault(
                f"observation{path} is {shown(value)}, expected one of its space {space}."
            )
        chosen = np.asarray(value).reshape(-1).astype(np.int64)
        if is_binary:
            return chosen.astype(np.float32)
        numbers = np.zeros(width, np.float32)
        numbers[begins + chosen] = 1
        return numbers

    return _Leaf(ObservationPart(path, (width,), "float32"), encode)


def _is_whole_in(space: Space, value: Any) -> bool:
    """Whether a value is in a space but for its integer type, such as an array of one number."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        return False
    if array.dtype.kind not in "iub" or array.shape != (space.shape or ()):
        return False
    return bool(space.contains(array.astype(space.dtype)))


class _ArrayCheck:
    """Returns arrays of a Box in the dtype as which they are stored, or says what is wrong."""

    def __init__(self, space: Box, dtype: str, path: str) -> None:
        self._space, self._name = space, f"observation{path}"
        self._dtype = np.dtype(dtype)
        # Whole numbers from 0 to 255 are possible all.
        self._bounds = _far_bounds(space) if self._dtype.kind == "f" else None
        # Numbers whose sum of squares is no larger are all inside: one call, where four compare.
        self._safe = -1.0
        if self._bounds is not None and self._bounds[0].size:
            nearest = float(min(-self._bounds[0].max(), self._bounds[1].min()))
            self._safe = min(0.99 * nearest**2, 1e38) if nearest > 0 else -1.0  # of float32
        self._good_dtypes = {self._dtype}  # found good before: to ask NumPy takes longer

    def __call__(self, value: Any, *count: int) -> np.ndarray:
        array = value if type(value) is np.ndarray else self._as_array(value)
        shape = count + self._space.shape
        if array.shape != shape or array.dtype not in self._good_dtypes:
            self._check_kind(value, array, shape)
        array = array.astype(self._dtype, copy=False)
        if self._bounds is not None and not np.vdot(array, array) <= self._safe:  # nor is NaN
            low, high = self._bounds
            inside = (array >= low) & (array <= high)  # NaN is in no range
            if np.count_nonzero(inside) != inside.size:  # three times as fast as all()
                raise EnvironmentFault(self._outside(array, inside))
        return array

    def _as_array(self, value: Any) -> np.ndarray:
        try:
            return np.asarray(value)
        except (ValueError, TypeError) as error:  # rows of unequal lengths
            raise EnvironmentFault(f"{self._name} is {shown(value)}, expected an array.") from error

    def _check_kind(self, value: Any, array: np.ndarray, shape: tuple[int, ...]) -> None:
        if array.dtype.kind in "OUSV":
            raise EnvironmentFault(
                f"{self._name} is {shown(value)}, expected an array of numbers of shape {shape}."
            )
        if array.shape != shape:
            raise EnvironmentFault(
                f"{self._name} has shape {array.shape}, expected {shape} as in its space "
                f"{self._space}: {shown(value)}."
            )
        # A number may lose digits, but not its meaning: a byte must not wrap.
        if not np.can_cast(array.dtype, self._dtype, "same_kind" if self._bounds else "safe"):
            raise EnvironmentFault(
                f"{self._name} has dtype {array.dtype}, expected {self._dtype}: {shown(value)}."
            )
        self._good_dtypes.add(array.dtype)

    def _outside(self, array: np.ndarray, inside: np.ndarray) -> str:
        index = np.argwhere(~inside)[0].tolist()
        number = float(array[tuple(index)])
        expected = f"to be in its space {self._space}, or at least near it"
        if not np.isfinite(number):
            expected = "a finite number"
        return f"{self._name}{index} is {number:g}, expected {expected}."


def _far_bounds(space: Box) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and highest credible observation, each `[*shape]` float32, finite."""
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        width = np.maximum(high - low, 1.0)
        # A bound on one side only has no width of its own: its distance from 0 stands for it.
        one_sided = np.maximum(1.0, np.where(np.isfinite(low), np.abs(low), np.abs(high)))
        width = np.where(np.isfinite(width), width, np.where(np.isfinite(one_sided), one_sided, 1))
        far_low = np.clip(low - FAR_WIDTHS * width, -MAX_FLOAT32, MAX_FLOAT32)
        far_high = np.clip(high + FAR_WIDTHS * width, -MAX_FLOAT32, MAX_FLOAT32)
    return far_low.astype(np.float32), far_high.astype(np.float32)
