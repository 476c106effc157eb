"""Whether environments keep to what they announced, looked at in every step.

An environment with a bug rarely stops: it shows another shape, which NumPy spreads over the row, or
NaN, which the learner finds thousands of steps later. So everything that comes out of a Gymnasium
environment passes here: the shape and dtype of each observation, whether its numbers are finite and
not absurdly far outside their space, and the types of the rest. That takes about 1 microsecond a
step, where CartPole takes 13 and the whole training of it some 200.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Dict, Discrete, MultiDiscrete, Tuple

from ritornello.core.errors import EnvironmentFault
from ritornello.core.plain_data import shown

# Many environments leave their space a little. So far outside, the unit is wrong: 255 in [0, 1].
FAR_WIDTHS = 100.0
MAX_FLOAT32 = float(np.finfo(np.float32).max)
NUMBERS = (float, int, np.floating, np.integer)  # np.float64 is a float as well
EXACT_UP_TO = 2.0**24  # in float32, of whole numbers
STEP_RETURNS = "(observation, reward, terminated, truncated, info)"


def of_another_package(space: Any) -> str:
    """Return that a space is one of Gym before Gymnasium, or of the like; "" if it is not."""
    kind = type(space)
    if isinstance(space, gymnasium.Space) or not hasattr(gymnasium.spaces, kind.__name__):
        return ""
    return (
        f"{kind.__name__} is of the package {kind.__module__.split('.')[0]}, not of gymnasium: "
        "import its spaces from gymnasium"
    )


def numbers_in(space: Any) -> int:
    """Return how many numbers a space is for a network, n for a choice among n."""
    if isinstance(space, Dict):
        return sum(map(numbers_in, space.spaces.values()))
    if isinstance(space, Tuple):
        return sum(map(numbers_in, space.spaces))
    if isinstance(space, Discrete):
        return int(space.n)
    if isinstance(space, MultiDiscrete):
        return sum(map(int, space.nvec.flat))
    return math.prod(getattr(space, "shape", None) or ())


def why_too_large(what: str, space: Any, most: int) -> str:
    """Return why a space has too many numbers, "" if it has not. Allocates nothing."""
    count = numbers_in(space)
    if count <= most:
        return ""
    return (
        f"{what} has {count:,} numbers, n for a choice among n, and {most:,} are supported: let a "
        "wrapper make fewer of it, such as several choices among few in place of one among many"
    )


class ObservationCheck:
    """Checks observations of one kind. Holds nothing of the environments; not thread-safe."""

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: str,
        space: gymnasium.Space | None,
        name: str = "observation",
    ) -> None:
        """Prepare the check.

        Args:
          shape: of one frame.
          dtype: as which frames are stored.
          space: what the environment says of its observations; None or no Box: no bounds.
          name: for messages, as observation['camera'].
        """
        self._shape, self._name = shape, name
        self._dtype = np.dtype(dtype)
        self._space = space
        self._bounds = _far_bounds(space, self._shape) if self._dtype.kind == "f" else None
        self._good_dtypes = {self._dtype}  # found good before: to ask NumPy takes longer

    def frame(self, frame: Any) -> np.ndarray:
        """Return a frame `[*frame_shape]` that can be stored as the spec's dtype.

        Raises:
          EnvironmentFault: if its shape is another, or its dtype is of another kind: a number may
            lose digits on its way into the spec's dtype, but not its meaning.
        """
        if (
            type(frame) is np.ndarray
            and frame.shape == self._shape
            and frame.dtype in self._good_dtypes
        ):
            return frame
        try:
            array = np.asarray(frame)
        except (ValueError, TypeError) as error:  # rows of unequal lengths
            raise EnvironmentFault(f"{self._name} is {shown(frame)}, expected an array.") from error
        if array.dtype == object or array.dtype.kind in "USV":
            raise EnvironmentFault(
                f"{self._name} is {shown(frame)}, expected an array of numbers of shape "
                f"{self._shape}."
            )
        if array.shape != self._shape:
            raise EnvironmentFault(
                f"{self._name} has shape {array.shape}, expected {self._shape} as in its space "
                f"{self._space}: {shown(frame)}."
            )
        if not can_be_stored(array.dtype, self._dtype):
            raise EnvironmentFault(
                f"{self._name} has dtype {array.dtype}, expected {self._dtype}: {shown(frame)}."
            )
        self._good_dtypes.add(array.dtype)
        return array

    def stored(self, frame: Any) -> np.ndarray:
        """Return one frame as an array of the dtype as which it is stored.

        Raises:
          EnvironmentFault: if anything is wrong with it.
        """
        array = self.frame(frame).astype(self._dtype, copy=False)
        if self.values(array[None]) is not None:
            raise EnvironmentFault(self.complaint(array))
        return array

    def values(self, newest: np.ndarray) -> int | None:
        """Return the first environment whose observation is not finite or far outside its space.

        Args:
          newest: [E, *frame_shape], the newest frames.
        """
        if self._bounds is None:  # whole numbers from 0 to 255: all are possible
            return None
        low, high = self._bounds
        inside = (newest >= low) & (newest <= high)  # NaN is in no range
        if np.count_nonzero(inside) == inside.size:  # three times as fast as all()
            return None
        return int(np.argwhere(~inside)[0][0])

    def complaint(self, frame: np.ndarray) -> str:
        """Return what is wrong with a frame that `values` has found."""
        assert self._bounds is not None
        low, high = self._bounds
        index = tuple(int(i) for i in np.argwhere(~((frame >= low) & (frame <= high)))[0])
        number = float(frame[index])
        place = f"{self._name}{list(index)} is {number:g}"
        if not np.isfinite(number):
            return f"{place}, expected a finite number."
        return f"{place}, expected to be in its space {self._space}, or at least near it."


def can_be_stored(dtype: np.dtype, stored: np.dtype) -> bool:
    """Whether numbers of a dtype mean the same in another: digits may be lost, but none wraps."""
    return np.can_cast(dtype, stored, "same_kind" if stored.kind == "f" else "safe")


def loses_digits(array: np.ndarray) -> bool:
    """Whether whole numbers of an array, a clock say, can no longer be told apart in float32."""
    if np.can_cast(array.dtype, np.float32):
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        large = array[np.isfinite(array) & (np.abs(array) > EXACT_UP_TO)]
        return bool((large.astype(np.float32).astype(np.float64) != large).any())


def _far_bounds(
    space: gymnasium.Space | None, shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and highest credible observation, each `[*shape]` float32, finite."""
    if not isinstance(space, gymnasium.spaces.Box) or space.shape != shape:
        return np.full(shape, -MAX_FLOAT32, np.float32), np.full(shape, MAX_FLOAT32, np.float32)
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        width = np.maximum(high - low, 1.0)
        # A bound on one side only has no width of its own: its distance from 0 stands for it.
        one_sided = np.maximum(1.0, np.where(np.isfinite(low), np.abs(low), np.abs(high)))
        width = np.where(np.isfinite(width), width, np.where(np.isfinite(one_sided), one_sided, 1))
        far_low = np.clip(low - FAR_WIDTHS * width, -MAX_FLOAT32, MAX_FLOAT32)
        far_high = np.clip(high + FAR_WIDTHS * width, -MAX_FLOAT32, MAX_FLOAT32)
    return far_low.astype(np.float32), far_high.astype(np.float32)


def reward_of(value: Any) -> float:
    """Return a reward as a float.

    Raises:
      EnvironmentFault: if it is not one finite number within float32.
    """
    try:
        number = float(value) if isinstance(value, NUMBERS) else _number("reward", value, "biuf")
    except OverflowError:  # a whole number of Python has no largest one
        number = float("inf")
    if not -MAX_FLOAT32 <= number <= MAX_FLOAT32:  # nor is NaN
        raise EnvironmentFault(f"reward is {number!r}, expected a finite number (of float32).")
    return number


def flag_of(name: str, value: Any) -> bool:
    """Return `terminated` or `truncated` as a bool.

    Raises:
      EnvironmentFault: if it is not one truth value: text and None are none.
    """
    return bool(value if isinstance(value, np.bool_) else _number(name, value, "biu"))


def parts_of(result: Any) -> tuple[Any, Any, Any, Any, Mapping[str, Any]]:
    """Return the five things that `step` returned.

    Raises:
      EnvironmentFault: if there are others.
    """
    if not isinstance(result, tuple) or len(result) != 5:
        got = f"{len(result)} values" if isinstance(result, tuple) else shown(result)
        old = " (four of them: Gym before 0.26)" if got == "4 values" else ""
        raise EnvironmentFault(f"step returned {got}{old}, expected {STEP_RETURNS}.")
    if type(result[4]) is not dict and not isinstance(result[4], Mapping):
        raise EnvironmentFault(f"info of step is {shown(result[4])}, expected a dict.")
    return result


def first_frame_of(result: Any) -> Any:
    """Return the observation of what `reset` returned.

    Raises:
      EnvironmentFault: if it is not (observation, info).
    """
    if not isinstance(result, tuple) or len(result) != 2:
        raise EnvironmentFault(f"reset returned {shown(result)}, expected (observation, info).")
    return result[0]


def _number(name: str, value: Any, kinds: str) -> float:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        array = np.asarray(None)
    if array.shape != () or array.dtype.kind not in kinds:
        expected = "one number" if "f" in kinds else "True or False"
        shape = f" of shape {array.shape}" if array.shape else ""
        raise EnvironmentFault(f"{name} is {shown(value)}{shape}, expected {expected}.")
    return float(array)
