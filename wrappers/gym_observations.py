"""From observations of several parts, or of other shapes, to what this program stores.

An environment may show a dict or a tuple of images, vectors, choices and switches. Its leaves are
taken apart here:

* images (uint8 of three axes, or gray ones of two; floats of three axes) stay images `[C, H, W]`;
* everything else becomes numbers: boxes of any other shape are flattened, a choice among n is n
  numbers of which one is 1, and switches are 0 or 1. All of them together are one vector.

If there is no image, the vector is the observation. Otherwise a frame is a block of bytes with the
vector and the images in it (`EnvSpec.observation_parts`), which agent/models/parts.py takes apart
again. Everything between, such as transport and replay, then moves one array as it always does.

What is shown is checked against its space leaf by leaf, as wrappers/gym_checks.py does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from ritornello.core.errors import ConfigError, EnvironmentFault
from ritornello.core.plain_data import shown
from ritornello.core.spec import ObservationPart
from ritornello.wrappers.gym_checks import ObservationCheck, of_another_package, why_too_large
from ritornello.wrappers.images import is_image_space, turned_space

MAX_NUMBERS = 10_000_000  # of an observation
VECTOR = "numbers"  # name of the part that is made of all that are no images


@dataclass(frozen=True)
class _Leaf:
    """One space that is not made of others."""

    path: str  # as one writes it: ['camera'][0]
    image: ObservationPart | None  # None: numbers
    width: int  # numbers; 0 of an image
    # From what the environment shows to an image [C, H, W], or [width] float32.
    encode: Callable[[Any], np.ndarray]


class PartsObservation(gymnasium.Wrapper):
    """Shows one array: a vector, or a block of bytes with a vector and images in it."""

    def __init__(self, env: gymnasium.Env) -> None:
        """Wrap an environment whose observations are supported (`why_not_shown`)."""
        super().__init__(env)
        said = (getattr(env, "metadata", None) or {}).get("channels")
        self._leaves = list(_leaves(env.observation_space, said, ""))
        width = sum(leaf.width for leaf in self._leaves)
        images = tuple(leaf.image for leaf in self._leaves if leaf.image is not None)
        vector = (ObservationPart(VECTOR, (width,), "float32"),) if width else ()
        self.parts: tuple[ObservationPart, ...] = ()  # () if there is nothing but numbers
        if images:
            # What is read as float32 goes first, so that it is aligned.
            self.parts = vector + tuple(sorted(images, key=lambda part: part.dtype))
            self.observation_space = Box(0, 255, (bytes_of(self.parts),), np.uint8)
        else:
            self.observation_space = Box(-np.inf, np.inf, (width,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Start a game."""
        result = self.env.reset(seed=seed, options=options)
        if not isinstance(result, tuple) or len(result) != 2:
            return result  # told by whoever asked
        return self.shown(result[0]), result[1]

    def step(self, action: Any) -> Any:
        """Do one action."""
        result: Any = self.env.step(action)
        if not isinstance(result, tuple) or len(result) != 5:
            return result
        return self.shown(result[0]), *result[1:]

    def shown(self, observation: Any) -> np.ndarray:
        """Return what the environment shows as one array.

        Raises:
          EnvironmentFault: if it is not as its space says.
        """
        found = list(_found(observation, self.env.observation_space, ""))
        numbers: list[np.ndarray] = []
        images: dict[str, np.ndarray] = {}
        for leaf, value in zip(self._leaves, found, strict=True):
            array = leaf.encode(value)
            if leaf.image is None:
                numbers.append(array)
            else:
                images[leaf.path] = array
        vector = np.concatenate(numbers) if numbers else np.zeros(0, np.float32)
        if not self.parts:
            return vector
        blocks = [
            vector if part.name == VECTOR else images[part.name].astype(part.dtype, copy=False)
            for part in self.parts
        ]
        content = b"".join(block.tobytes() for block in blocks)
        frame = np.zeros(bytes_of(self.parts), np.uint8)
        frame[: len(content)] = np.frombuffer(content, np.uint8)
        return frame


def bytes_of(parts: tuple[ObservationPart, ...]) -> int:
    """Return the size of a frame: a multiple of 4, so that the next one is aligned too."""
    return -(-sum(part.nbytes for part in parts) // 4) * 4


def with_one_observation(env: gymnasium.Env) -> gymnasium.Env:
    """Return an environment that shows one array.

    One that shows a vector or an image does so already; one with a space that is not supported is
    returned as it is: wrappers/gym_spaces.py refuses it, beside what else is wrong with it.
    """
    space = getattr(env, "observation_space", None)
    if is_one_array(space) or why_not_shown(env):
        return env
    return PartsObservation(env)


def is_one_array(space: Any) -> bool:
    """Whether a space is a vector or an image, which is stored as the environment shows it."""
    return is_image_space(space) or (isinstance(space, Box) and len(space.shape) == 1)


def why_not_shown(env: gymnasium.Env) -> str:
    """Return why what an environment shows is not supported, "" if it is."""
    said = (getattr(env, "metadata", None) or {}).get("channels")
    space = getattr(env, "observation_space", None)
    if too_large := why_too_large("an observation", space, MAX_NUMBERS):
        return too_large
    try:
        leaves = list(_leaves(space, said, ""))
    except ConfigError as error:
        return str(error)
    return "" if leaves else "it shows nothing"


def _leaves(space: Any, said: Any, path: str) -> Iterator[_Leaf]:
    """Yield the leaves of a space in their order.

    Raises:
      ConfigError: if one is not supported; the message is a part of a sentence.
    """
    if isinstance(space, (Dict, Tuple)):
        for name, one in spaces_in(space):
            yield from _leaves(one, said, f"{path}[{name!r}]")
    elif is_image_space(space):
        if 0 in space.shape:
            raise ConfigError(f"{path}{': ' * bool(path)}an image {space.shape} has no pixels")
        yield _image(space, said, path)
    elif isinstance(space, Box):
        count = int(np.prod(space.shape))
        check = ObservationCheck(space.shape, "float32", space, f"observation{path}")
        if count:
            yield _Leaf(path, None, count, lambda value: check.stored(value).reshape(-1))
    elif isinstance(space, (Discrete, MultiDiscrete, MultiBinary)):
        yield _choices(space, path)
    else:
        what = f"{path}: " if path else ""
        raise ConfigError(
            of_another_package(space)
            or f"{what}{type(space).__name__} is none of Box, Discrete, MultiDiscrete, "
            "MultiBinary, and a Dict or Tuple of these"
        )


def spaces_in(space: Dict | Tuple) -> list[tuple[str | int, Space]]:
    """Return names and spaces of what a space is made of."""
    if isinstance(space, Dict):
        return [(name, one) for name, one in space.spaces.items()]
    return [(number, one) for number, one in enumerate(space.spaces)]


def _found(value: Any, space: Space, path: str) -> Iterator[Any]:
    """Yield what is shown at each leaf, in the order of the leaves."""
    if not isinstance(space, (Dict, Tuple)):
        if not (isinstance(space, Box) and 0 in space.shape):
            yield value
        return
    for name, one in spaces_in(space):
        try:
            inner = value[name]
        except (KeyError, IndexError, TypeError) as error:
            kind = "dict" if isinstance(space, Dict) else "tuple"
            raise EnvironmentFault(
                f"observation{path} is {shown(value)}, expected a {kind} with {name!r}."
            ) from error
        yield from _found(inner, one, f"{path}[{name!r}]")
    count = len(value) if isinstance(value, (Mapping, tuple, list)) else len(space.spaces)
    if count != len(space.spaces):
        raise EnvironmentFault(
            f"observation{path} has {count} parts, expected {len(space.spaces)} as in its space: "
            f"{shown(value)}."
        )


def _image(space: Box, said: Any, path: str) -> _Leaf:
    turned, turn = turned_space(space, said)
    dtype = "uint8" if space.dtype == np.uint8 else "float32"
    check = ObservationCheck(space.shape, dtype, space, f"observation{path}")
    part = ObservationPart(path, turned.shape, dtype)
    return _Leaf(path, part, 0, lambda value: turn(check.stored(value)))


def _choices(space: Discrete | MultiDiscrete | MultiBinary, path: str) -> _Leaf:
    counts: np.ndarray
    start: np.ndarray
    if isinstance(space, MultiBinary):
        counts, start = np.ones(int(np.prod(space.shape)), np.int64), np.zeros(1, np.int64)
    elif isinstance(space, Discrete):
        counts, start = np.array([int(space.n)]), np.array([int(space.start)])
    else:
        counts, start = space.nvec.reshape(-1), space.start.reshape(-1)
    is_binary = isinstance(space, MultiBinary)
    ends = np.cumsum(counts)
    begins = ends - counts

    def encode(value: Any) -> np.ndarray:
        if not space.contains(value) and not _is_whole_in(space, value):
            raise EnvironmentFault(
                f"observation{path} is {shown(value)}, expected one of its space {space}."
            )
        chosen = np.asarray(value).reshape(-1).astype(np.int64)
        if is_binary:
            return chosen.astype(np.float32)
        numbers = np.zeros(int(ends[-1]), np.float32)
        numbers[begins + chosen - start] = 1
        return numbers

    return _Leaf(path, None, int(ends[-1]), encode)


def _is_whole_in(space: Space, value: Any) -> bool:
    """Whether a value is in a space but for its integer type, such as an array of one number."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        return False
    if array.dtype.kind not in "iub" or array.shape != (space.shape or ()):
        return False
    return bool(space.contains(array.astype(space.dtype)))
