"""From stored actions to what an environment of Gymnasium takes.

A policy draws one row of numbers (core/spec.py's `ActionSpec`); an environment may take an array, a
tuple or a dict. A choice among n has one column, and each real number has one. Real numbers are cut
at the bounds of their space here, so that what is stored is what was drawn, and its probability is
that of the draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from ritornello.core.errors import ConfigError
from ritornello.core.spec import CHOICE, NUMBERS, ActionPart, ActionSpec
from ritornello.wrappers.gym_checks import of_another_package, why_too_large

MAX_CHOICES = 1_000_000  # of all parts of an action together
MAX_COLUMNS = 10_000  # of a stored action; more is a mistake rather than an action

Row = Sequence[float]


@dataclass(frozen=True)
class _Decoder:
    """The parts that a space has, and what makes an action of their columns."""

    parts: tuple[ActionPart, ...]
    decode: Callable[[Row], Any]

    @property
    def width(self) -> int:
        return sum(part.width for part in self.parts)


class RowActions(gymnasium.Wrapper):
    """Takes actions as they are stored. Its `actions` say what they are."""

    def __init__(self, env: gymnasium.Env) -> None:
        """Wrap an environment.

        Raises:
          ConfigError: if its action space is not supported.
        """
        super().__init__(env)
        decoder = _supported(env.action_space)
        self.actions = ActionSpec(decoder.parts)
        self._decode = decoder.decode
        # One choice is stored as one integer, not as a row of it.
        self._is_single_choice = self.actions.is_single_choice
        self.action_space = _stored_space(self.actions)

    def step(self, action: Any) -> Any:
        """Do what a row of numbers, or one integer, means."""
        row = [action] if self._is_single_choice else action
        return self.env.step(self._decode(row))


def with_stored_actions(env: gymnasium.Env) -> gymnasium.Env:
    """Return an environment that takes actions as they are stored.

    One whose actions are one choice from 0 does so already. One with a space that is not supported
    is returned as it is: wrappers/gym_spaces.py refuses it, beside what else is wrong with it.
    """
    space = getattr(env, "action_space", None)
    if is_plain_choice(space) or why_not(space):
        return env
    return RowActions(env)


def is_plain_choice(space: Any) -> bool:
    """Whether actions are one choice from 0, which is stored as the environment takes it."""
    return isinstance(space, Discrete) and space.start == 0


def why_not(space: Any) -> str:
    """Return why a space of actions is not supported, "" if it is."""
    try:
        _supported(space)
    except ConfigError as error:
        return str(error)
    return ""


def _supported(space: Any) -> _Decoder:
    if too_large := why_too_large("an action", space, MAX_CHOICES):
        raise ConfigError(too_large)
    decoder = _decoder(space)
    if not 1 <= decoder.width <= MAX_COLUMNS:
        raise ConfigError(
            f"an action has {decoder.width} numbers, and 1 to {MAX_COLUMNS} are supported"
        )
    return decoder


def boxes_of(space: Any) -> list[Box]:
    """Return the boxes of numbers that a space is made of."""
    if isinstance(space, Box):
        return [space]
    parts = space.spaces if isinstance(space, (Tuple, Dict)) else ()
    each = parts.values() if isinstance(parts, dict) else parts
    return [box for one in each for box in boxes_of(one)]


def _stored_space(actions: ActionSpec) -> gymnasium.Space:
    """Return the space of actions as they are stored."""
    counts = [part.count for part in actions.parts]
    if actions.is_single_choice:
        return Discrete(counts[0])
    if all(part.kind == CHOICE for part in actions.parts):
        return MultiDiscrete(counts)
    low, high = np.full(actions.shape, -np.inf), np.full(actions.shape, np.inf)
    column = 0
    for part in actions.parts:
        if part.kind == CHOICE:
            low[column], high[column] = 0, part.count - 1
        column += part.width
    return Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)


def _decoder(space: Any) -> _Decoder:
    """Return what a space consists of.

    Raises:
      ConfigError: if it is not supported; the message is a part of a sentence.
    """
    if isinstance(space, Discrete):
        start = int(space.start)
        return _Decoder((_choice(int(space.n)),), lambda row: int(row[0]) + start)
    if isinstance(space, MultiDiscrete):
        return _multi_discrete(space)
    if isinstance(space, MultiBinary):
        shape, count = space.shape, int(np.prod(space.shape))
        return _Decoder((_choice(2),) * count, lambda row: np.array(row, np.int8).reshape(shape))
    if isinstance(space, Box):
        return _box(space)
    if isinstance(space, Tuple):
        return _several([_decoder(one) for one in space.spaces], tuple)
    if isinstance(space, Dict):
        names = list(space.spaces)
        return _several(
            [_decoder(one) for one in space.spaces.values()],
            lambda parts: dict(zip(names, parts, strict=True)),
        )
    raise ConfigError(
        of_another_package(space)
        or f"{type(space).__name__} is none of Discrete, MultiDiscrete, MultiBinary, a Box of real "
        "numbers, and a Tuple or Dict of these"
    )


def _choice(count: int) -> ActionPart:
    return ActionPart(CHOICE, count)


def _multi_discrete(space: MultiDiscrete) -> _Decoder:
    counts, start, dtype = space.nvec.flatten(), space.start, space.dtype

    def decode(row: Row) -> np.ndarray:
        return np.array(row, dtype).reshape(start.shape) + start

    return _Decoder(tuple(_choice(int(count)) for count in counts), decode)


def _box(space: Box) -> _Decoder:
    if not np.issubdtype(space.dtype or np.int64, np.floating):
        raise ConfigError(
            f"a Box of {space.dtype} holds whole numbers, which are choices: make it MultiDiscrete"
        )
    count = int(np.prod(space.shape))
    if not count:
        raise ConfigError("a Box of no numbers leaves nothing to choose")
    low, high, dtype, shape = space.low, space.high, space.dtype, space.shape

    def decode(row: Row) -> np.ndarray:
        cut = np.clip(np.array(row, np.float64), low.reshape(-1), high.reshape(-1))
        return cut.astype(dtype).reshape(shape)

    return _Decoder((ActionPart(NUMBERS, count),), decode)


def _several(decoders: Sequence[_Decoder], joined: Callable[[Sequence[Any]], Any]) -> _Decoder:
    """Put spaces side by side."""
    ends = np.cumsum([decoder.width for decoder in decoders]).tolist()
    columns = [slice(e - d.width, e) for e, d in zip(ends, decoders, strict=True)]

    def decode(row: Row) -> Any:
        pairs = zip(decoders, columns, strict=True)
        return joined([decoder.decode(row[own]) for decoder, own in pairs])

    return _Decoder(tuple(part for decoder in decoders for part in decoder.parts), decode)
