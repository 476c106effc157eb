"""What a space of Gymnasium consists of: leaves, which are no Dict or Tuple, and their values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from ritornello.core.errors import ConfigError, EnvironmentFault
from ritornello.core.plain_data import shown

KINDS = (Box, Discrete, MultiBinary, MultiDiscrete)


def leaves(space: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each leaf of a space in their order, after its path as one writes it: ['camera'][0]."""
    if not isinstance(space, (Dict, Tuple)):
        yield path, space
        return
    for name, one in _named(space):
        yield from leaves(one, f"{path}[{name!r}]")


def values(space: Any, value: Any, path: str = "") -> Iterator[Any]:
    """Yield the part of `value` at each leaf of its space, in the order of `leaves`.

    Raises:
      EnvironmentFault: if `value` has other parts than its space.
    """
    if not isinstance(space, (Dict, Tuple)):
        yield value
        return
    for name, one in _named(space):
        try:
            inner = value[name]
        except (KeyError, IndexError, TypeError) as error:
            kind = "dict" if isinstance(space, Dict) else "tuple"
            raise EnvironmentFault(
                f"observation{path} is {shown(value)}, expected a {kind} with {name!r}."
            ) from error
        yield from values(one, inner, f"{path}[{name!r}]")
    count = len(value) if isinstance(value, (Mapping, tuple, list)) else len(space.spaces)
    if count != len(space.spaces):
        raise EnvironmentFault(
            f"observation{path} has {count} parts, expected {len(space.spaces)} as in its space: "
            f"{shown(value)}."
        )


def _named(space: Dict | Tuple) -> list[tuple[Any, Space]]:
    return list(space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces))


def check_supported(what: str, space: Any, most: int) -> None:
    """Raise ConfigError, with a part of a sentence, if a network could not have such a space.

    `what` is "an observation" or "an action". All of it may have `most` numbers, where a choice
    among n counts as n. Nothing is allocated.
    """
    count = 0
    for path, leaf in leaves(space):
        if not isinstance(leaf, KINDS):
            said = of_another_package(leaf) or (
                f"{type(leaf).__name__} is none of Box, Discrete, MultiDiscrete, MultiBinary, and "
                "a Dict or Tuple of these"
            )
            raise ConfigError(f"{path}: {said}" if path else said)
        count += _numbers_in(leaf)
    if count > most:
        raise ConfigError(
            f"{what} has {count:,} numbers, n for a choice among n, and {most:,} are supported: "
            "let a wrapper make fewer of it, such as several choices among few in place of one "
            "among many"
        )


def _numbers_in(leaf: Space) -> int:
    if isinstance(leaf, Discrete):
        return int(leaf.n)
    if isinstance(leaf, MultiDiscrete):
        return sum(map(int, leaf.nvec.flat))
    return math.prod(leaf.shape or ())


def of_another_package(space: Any) -> str:
    """Return a sentence if a space is one of Gym before Gymnasium, or of the like; else ""."""
    kind = type(space)
    if isinstance(space, gymnasium.Space) or not hasattr(gymnasium.spaces, kind.__name__):
        return ""
    return (
        f"{kind.__name__} is of the package {kind.__module__.split('.')[0]}, not of gymnasium: "
        "import its spaces from gymnasium"
    )
