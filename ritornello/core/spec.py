"""Shapes and dtypes that everything else is built from.

An `EnvSpec` is read off the environment once, at start; models, unrolls and buffers derive their
shapes from it, so that `--env` alone changes every shape in the program.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ritornello.core.errors import ConfigError
from ritornello.core.saved_state import expect, item, items, whole

CHOICE, NUMBERS = "choice", "numbers"  # kinds of parts of an action
MAX_GAMES_LENGTH = 100_000  # characters of a list of ids: all of Gymnasium's, with commas
# What decides the shapes and the meaning of a model's inputs and outputs. The game itself may
# differ: going on with a model in another game is an experiment, not a mistake.
MODEL_DECIDING_FIELDS = (
    *("frame_shape", "frame_dtype", "frames_stacked", "observation_parts"),
    *("action_meanings", "action_parts"),
)


@dataclass(frozen=True)
class ActionPart:
    """One of the things that an environment takes at each step."""

    kind: str  # CHOICE: one of `count`, from 0. NUMBERS: a vector of `count` real numbers
    count: int

    @property
    def width(self) -> int:
        """Number of columns that it takes in a stored action."""
        return 1 if self.kind == CHOICE else self.count

    @property
    def param_count(self) -> int:
        """Parameters of its distribution: logits, or means and then log standard deviations."""
        return self.count if self.kind == CHOICE else 2 * self.count


@dataclass(frozen=True)
class ActionSpec:
    """What an action is, and how it is stored.

    Most environments take a single choice, which is stored as one integer. Everything else is
    stored as one row, the parts of an action one after another: integers if all parts are choices,
    and float32 otherwise, which holds each integer below 2^24 exactly. The distribution from which
    actions are drawn is agent/distributions.py's, and what an environment is given wrappers/'s.
    """

    parts: tuple[ActionPart, ...]

    @property
    def is_single_choice(self) -> bool:
        """Whether an action is one integer."""
        return len(self.parts) == 1 and self.parts[0].kind == CHOICE

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one stored action: () for a single choice, else (W,)."""
        return () if self.is_single_choice else (sum(part.width for part in self.parts),)

    @property
    def dtype(self) -> str:
        """Dtype of stored actions."""
        is_whole = all(part.kind == CHOICE for part in self.parts)
        return "int64" if is_whole else "float32"

    @property
    def param_count(self) -> int:
        """P, the number of parameters of the distribution of actions."""
        return sum(part.param_count for part in self.parts)

    def choices_in(self, action: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
        """Yield (choices made, number of options) for each choice in actions `[..., *shape]`."""
        if self.is_single_choice:
            yield action, self.parts[0].count
            return
        column = 0
        for part in self.parts:
            if part.kind == CHOICE:
                yield action[..., column], part.count
            column += part.width

    def describe(self) -> str:
        """Return a description of an action for people: "2 choices of 3, 4 and 2 numbers"."""
        choices = [str(part.count) for part in self.parts if part.kind == CHOICE]
        numbers = sum(part.count for part in self.parts if part.kind == NUMBERS)
        said = []
        if len(choices) == 1:
            said.append(f"1 of {choices[0]} actions")
        elif choices:
            alike = f"{choices[0]} each" if len(set(choices)) == 1 else ", ".join(choices)
            said.append(f"{len(choices)} choices of {alike}")
        if numbers:
            said.append(f"{numbers} real number{'s' if numbers > 1 else ''}")
        return " and ".join(said)

    def meanings(self) -> tuple[str, ...]:
        """Return a name for each number of a stored action."""
        names: list[str] = []
        for part in self.parts:
            for _ in range(part.width):
                what = f"choice of {part.count}" if part.kind == CHOICE else "number"
                names.append(f"{len(names)}: {what}")
        return tuple(names)


@dataclass(frozen=True)
class ObservationPart:
    """One of several things that an environment shows at once: an image or a vector."""

    name: str
    shape: tuple[int, ...]  # (C, H, W) or (D,)
    dtype: str  # uint8 or float32

    @property
    def is_image(self) -> bool:
        """Whether it goes through a convolutional torso."""
        return len(self.shape) == 3

    @property
    def nbytes(self) -> int:
        """Bytes in a frame."""
        return math.prod(self.shape) * (1 if self.dtype == "uint8" else 4)


@dataclass(frozen=True)
class EnvSpec:
    """Observations and actions of an environment, or of each of several games.

    A run that plays several games has one spec: `env_id` is the list of their ids, joined with
    commas, and the number of a game in it is its task. All games have the same observations and
    actions (wrappers/registry.py checks that).

    A *frame* here is one stored observation of one moment: an image `(C, H, W)` uint8 (C is 1 for
    gray, 3 for RGB) or a vector `(D,)` float32. The model sees a stack of the newest
    `frames_stacked` frames, `obs_shape`. Only single frames are stored (see core/unroll.py).
    """

    env_id: str
    frame_shape: tuple[int, ...]
    frame_dtype: str
    frames_stacked: int
    action_meanings: tuple[str, ...]
    action_repeat: int  # simulator frames per agent step
    # What an action consists of where it is more than one of `action_meanings`, which are then
    # names of its parts; (): one of `action_meanings`, as in all files of the first versions.
    action_parts: tuple[ActionPart, ...] = ()

    # What a frame consists of where it is an image with a vector beside it, or several images: a
    # frame is then a block of bytes (N,) uint8 with the parts in it, one after another, what is
    # float32 first. (): a frame is one array.
    observation_parts: tuple[ObservationPart, ...] = ()

    # Whether it says at each step which choices are allowed (wrappers/action_masks.py).
    has_action_mask: bool = False

    @cached_property
    def actions(self) -> ActionSpec:
        """What an action is."""
        return ActionSpec(self.action_parts or (ActionPart(CHOICE, len(self.action_meanings)),))

    @property
    def tasks(self) -> tuple[str, ...]:
        """The ids of the games, in the order of their task numbers; K of them."""
        return tuple(self.env_id.split(","))

    @property
    def task_count(self) -> int:
        """K, the number of games."""
        return len(self.tasks)

    @property
    def action_count(self) -> int:
        """A, the number of actions of which one is chosen.

        Raises:
          ConfigError: if an action is something else.
        """
        if self.action_parts:
            raise ConfigError(
                f"{self.env_id} takes {self.actions.describe()} at each step, which is not "
                "supported here: expected one of so many actions."
            )
        return len(self.action_meanings)

    @property
    def is_image(self) -> bool:
        """Whether observations go through a convolutional torso."""
        return len(self.frame_shape) == 3

    def numbers_in(self, frames: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the name and the numbers of each float32 part of frames `[..., *frame_shape]`."""
        start = 0
        for part in self.observation_parts:
            if part.dtype == "float32":
                block = np.ascontiguousarray(frames[..., start : start + part.nbytes])
                yield part.name, block.view(np.float32)
            start += part.nbytes

    @property
    def shows_images(self) -> bool:
        """Whether some part of an observation is an image."""
        return self.is_image or any(part.is_image for part in self.observation_parts)

    @property
    def obs_shape(self) -> tuple[int, ...]:
        """Shape of one stacked observation: (S*C, H, W) for images, (S*D,) for vectors."""
        return (self.frames_stacked * self.frame_shape[0], *self.frame_shape[1:])

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only, for JSON and checkpoints."""
        data = asdict(self)
        for name in ("action_parts", "observation_parts", "has_action_mask"):
            if not data[name]:
                del data[name]  # as in the files of programs that knew nothing else
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EnvSpec:
        """Rebuild a spec from `to_dict` (JSON turns tuples into lists).

        Raises:
          StateError: if `data` is malformed.
        """
        spec = cls(
            env_id=item(data, "env_id", str),
            frame_shape=_shape(data, "frame_shape"),
            frame_dtype=item(data, "frame_dtype", str),
            frames_stacked=whole(data, "frames_stacked", low=1),
            action_meanings=tuple(items(data, "action_meanings", str)),
            action_repeat=whole(data, "action_repeat", low=1),
            action_parts=tuple(
                ActionPart(item(part, "kind", str), whole(part, "count", low=1))
                for part in items(data, "action_parts", dict, default=())
            ),
            observation_parts=tuple(
                ObservationPart(
                    item(part, "name", str), _shape(part, "shape"), item(part, "dtype", str)
                )
                for part in items(data, "observation_parts", dict, default=())
            ),
            has_action_mask=item(data, "has_action_mask", bool, default=False),
        )
        dtypes = {spec.frame_dtype, *(part.dtype for part in spec.observation_parts)}
        expect(dtypes <= {"uint8", "float32"}, "frames of uint8 or float32", "frame_dtype")
        kinds = {part.kind for part in spec.action_parts}
        expect(kinds <= {CHOICE, NUMBERS}, "choices and numbers", "action_parts")
        if spec.action_parts:
            numbers = spec.actions.shape
            expect(numbers == (len(spec.action_meanings),), "a name for each", "action_meanings")
        expect(len(spec.action_meanings) > 0, "at least one action", "action_meanings")
        expect(0 < len(spec.env_id) <= MAX_GAMES_LENGTH, "ids of games", "env_id")
        return spec


def _shape(data: Mapping[str, Any], key: str) -> tuple[int, ...]:
    shape = tuple(items(data, key, int))
    expect(1 <= len(shape) <= 3 and min(shape) >= 0, "one to three sizes", key)
    return shape


def game_name(env_id: str) -> str:
    """Return the short name of a game, for people: ALE/SpaceInvaders-v5 is SpaceInvaders."""
    name = re.split(r"[:/]", env_id)[-1]
    return re.sub(r"(NoFrameskip)?-v\d+$", "", name)
