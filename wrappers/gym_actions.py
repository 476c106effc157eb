"""From stored actions to what an environment of Gymnasium takes.

A policy draws one row of numbers (core/spec.py's `ActionSpec`); an environment may take an array, a
tuple or a dict. A choice among n has one column, and each real number has one. Real numbers are cut
at the bounds of their space here, so that what is stored is what was drawn, and its probability is
that of the draw.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector.utils import concatenate, create_empty_array

from ritornello.core.errors import ConfigError
from ritornello.core.spec import CHOICE, NUMBERS, ActionPart, ActionSpec
from ritornello.wrappers.spaces import check_supported, leaves

MAX_CHOICES = 1_000_000  # of all parts of an action together
MAX_COLUMNS = 10_000  # of a stored action; more is a mistake rather than an action


class ActionCode:
    """The actions of a space, and the meaning of their rows."""

    def __init__(self, space: Any) -> None:
        """Read a space.

        Raises:
          ConfigError: if the space is not supported; the message is a part of a sentence.
        """
        check_supported("an action", space, MAX_CHOICES)
        self._space = space
        self.actions = ActionSpec(
            tuple(part for _, leaf in leaves(space) for part in _parts_of(leaf))
        )
        width = sum(part.width for part in self.actions.parts)
        if not 1 <= width <= MAX_COLUMNS:
            raise ConfigError(
                f"an action has {width} numbers, and 1 to {MAX_COLUMNS} are supported"
            )
        self.is_single_choice = self.actions.is_single_choice  # is asked in every step
        # Most environments have one choice, which takes no time.
        self._start = int(space.start) if isinstance(space, Discrete) else None

    def meanings(self) -> tuple[str, ...]:
        """Return a name for each action, or for each number where an action is several."""
        if not self.is_single_choice:
            return self.actions.meanings()
        start = self._start or 0
        return tuple(map(str, range(start, start + self.actions.parts[0].count)))

    def decode(self, action: Any) -> Any:
        """Return the action, as the environment takes it, of a stored integer or row of numbers."""
        if self._start is not None:
            return action + self._start
        return _decoded(self._space, iter([action] if self.is_single_choice else action))

    def decode_all(self, actions: np.ndarray) -> Any:
        """Return E stored actions `[E, *action_shape]` as a vector of environments takes them."""
        space = self._space
        if self._start is not None:
            return (actions + self._start).astype(space.dtype, copy=False)
        if isinstance(space, Box):
            rows = actions.reshape(-1, *space.shape).astype(np.float64)
            return np.clip(rows, space.low, space.high).astype(space.dtype)
        decoded = [self.decode(action) for action in actions.tolist()]
        empty: Any = create_empty_array(space, len(decoded))
        return concatenate(space, decoded, empty)

    def stored_space(self) -> gymnasium.Space:
        """Return the space of actions as they are stored."""
        counts = [part.count for part in self.actions.parts]
        if self.is_single_choice:
            return Discrete(counts[0])
        if all(part.kind == CHOICE for part in self.actions.parts):
            return MultiDiscrete(counts)
        low, high = np.full((2, *self.actions.shape), [[-np.inf], [np.inf]], np.float32)
        column = 0
        for part in self.actions.parts:
            if part.kind == CHOICE:
                low[column], high[column] = 0, part.count - 1
            column += part.width
        return Box(low, high, dtype=np.float32)


def _parts_of(leaf: Box | Discrete | MultiBinary | MultiDiscrete) -> list[ActionPart]:
    if isinstance(leaf, Discrete):
        return [ActionPart(CHOICE, int(leaf.n))]
    if isinstance(leaf, MultiDiscrete):
        return [ActionPart(CHOICE, int(count)) for count in leaf.nvec.flat]
    count = math.prod(leaf.shape)
    if isinstance(leaf, MultiBinary):
        return [ActionPart(CHOICE, 2)] * count
    if not np.issubdtype(leaf.dtype or np.int64, np.floating):
        raise ConfigError(
            f"a Box of {leaf.dtype} holds whole numbers, which are choices: make it MultiDiscrete"
        )
    if not count:
        raise ConfigError("a Box of no numbers leaves nothing to choose")
    return [ActionPart(NUMBERS, count)]


def _decoded(space: Any, row: Iterator[float]) -> Any:
    """Return an action of a space, made of the next numbers of a row."""
    if isinstance(space, Discrete):
        return int(next(row)) + int(space.start)
    if isinstance(space, Dict):
        return {name: _decoded(one, row) for name, one in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_decoded(one, row) for one in space.spaces)
    own = list(islice(row, math.prod(space.shape)))
    if isinstance(space, Box):
        array = np.array(own).reshape(space.shape)
        return np.asarray(np.clip(array, space.low, space.high), space.dtype)
    array = np.array(own, space.dtype).reshape(space.shape)
    return array + space.start if isinstance(space, MultiDiscrete) else array
