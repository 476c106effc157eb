"""Parts of a saved state, checked by the owner that takes them over.

    def load_state_dict(self, state):
        self.count = whole(state, "count")
        with within("games"):
            self.games.load_state_dict(item(state, "games", dict))

A file may be anybody's. agent/stored/ sees to it that reading one runs no code and gives plain
data; each `load_state_dict` checks that it is what its `state_dict` gives. Whatever is wrong
becomes one `StateError`, which names the place. Keys that nobody asks for are let through.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ritornello.core.errors import CheckpointError, ConfigError, EnvironmentFault, WorkerDied
from ritornello.core.plain_data import shown

REQUIRED: Any = object()  # the default of what every file has
LARGEST_COUNT = 2**62


class StateError(CheckpointError):
    """A saved state that this program has not written, and the place in it."""

    def __init__(self, problem: str, *keys: Any) -> None:
        """State what is wrong at the place of these keys, the outermost first."""
        self.problem, self.keys = problem, keys
        place = "".join(f"[{shown(key, 80)}]" for key in keys)
        super().__init__(f"state{place}: {problem}")


def expect(condition: bool, expected: str, *keys: Any) -> None:
    """Raise StateError, with what was expected, unless the condition holds."""
    if not condition:
        raise StateError(f"expected {expected}", *keys)


def item(state: Any, key: Any, *kinds: type, default: Any = REQUIRED) -> Any:
    """Return an item of a mapping, which must have exactly one of the types `kinds`.

    `float` takes whole numbers, too. `default` is returned if the key is missing, or its value
    None.

    Raises:
      StateError: if the item is missing or of another type.
    """
    expect(isinstance(state, Mapping), f"a mapping, got {type(state).__name__}")
    value = state.get(key, default)
    if value is REQUIRED:
        raise StateError("is missing", key)
    if value is None and default is not REQUIRED:
        return default
    _check_kind(value, kinds, key)
    return value


def _check_kind(value: Any, kinds: tuple[type, ...], *keys: Any) -> None:
    if type(value) not in kinds and not (type(value) is int and float in kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        is_short = isinstance(value, (str, int, float))
        got = f"{type(value).__name__} {shown(value, 80) if is_short else ''}".strip()
        raise StateError(f"expected {names}, got {got}", *keys)


def whole(state: Any, key: Any, default: Any = REQUIRED, low: int = 0) -> int:
    """Return a whole number in a mapping, from `low` to LARGEST_COUNT; see `item`."""
    value: int = item(state, key, int, default=default)
    expect(value is default or low <= value <= LARGEST_COUNT, f"at least {low}, got {value}", key)
    return value


def number(state: Any, key: Any, default: Any = REQUIRED) -> float:
    """Return a finite number in a mapping; see `item`."""
    value: float = item(state, key, float, default=default)
    expect(value is default or math.isfinite(value), f"a finite number, got {value}", key)
    return value


def items(state: Any, key: Any, *kinds: type, default: Any = REQUIRED) -> list[Any]:
    """Return a list (or tuple) in a mapping, each of whose elements has one of these types."""
    found = item(state, key, list, tuple, default=default)
    for place, element in enumerate(found or ()):
        _check_kind(element, kinds, key, place)
    return found if found is default else list(found)


def array(
    state: Any, key: Any, dtype: Any, shape: tuple[int | None, ...], default: Any = REQUIRED
) -> np.ndarray:
    """Return an array in a mapping, of this dtype and shape (None: of any size)."""
    found: np.ndarray = item(state, key, np.ndarray, default=default)
    if found is not default:
        fits = len(found.shape) == len(shape) and all(
            size in (None, got) for size, got in zip(shape, found.shape, strict=True)
        )
        got = f"{found.dtype} of {found.shape}"
        expect(fits and found.dtype == dtype, f"{np.dtype(dtype)} of {shape}, got {got}", key)
    return found


@contextmanager
def within(*keys: Any) -> Iterator[None]:
    """Add the keys to the place that an error names, if the block fails.

    An exception that has no message of this program becomes a StateError.
    """
    try:
        yield
    except StateError as error:
        raise StateError(error.problem, *keys, *error.keys) from error
    except Exception as error:
        if isinstance(error, (CheckpointError, ConfigError, EnvironmentFault, WorkerDied, OSError)):
            raise  # its message is for the user as it is
        reason = f"{type(error).__name__}: {shown(str(error))}"
        raise StateError(f"is not what this program saves ({reason})", *keys) from error


@contextmanager
def restoring(source: str) -> Iterator[None]:
    """Add the source, mostly a file, to errors of a block that takes over a whole state."""
    try:
        with within():
            yield
    except StateError as error:
        raise CheckpointError(f"{source} is not what this program saves: {error}.") from error
