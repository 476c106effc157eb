"""Shapes and dtypes that everything else is built from.

An `EnvSpec` is read off the environment once, at start; models, unrolls and buffers derive their
shapes from it, so that `--env` alone changes every shape in the program.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class EnvSpec:
    """What an environment, or each of several games, shows and accepts.

    A run that plays several games has one spec: `env_id` is the list of their ids, joined with
    commas, and the number of a game in it is its task. They show alike and take the same actions
    (wrappers/registry.py sees to that).

    A *frame* here is one stored observation of one moment: an image `(C, H, W)` uint8 (C is 1 for
    gray, 3 for RGB) or a vector `(D,)` float32. What the model sees is a stack of the newest
    `frames_stacked` frames, `obs_shape`. Only single frames are stored (see core/unroll.py).
    """

    env_id: str
    frame_shape: tuple[int, ...]
    frame_dtype: str
    frames_stacked: int
    action_meanings: tuple[str, ...]
    action_repeat: int  # simulator frames per agent step

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
        """A, the number of discrete actions."""
        return len(self.action_meanings)

    @property
    def is_image(self) -> bool:
        """Whether observations go through a convolutional torso."""
        return len(self.frame_shape) == 3

    @property
    def obs_shape(self) -> tuple[int, ...]:
        """Shape of one stacked observation: (S*C, H, W) for images, (S*D,) for vectors."""
        return (self.frames_stacked * self.frame_shape[0], *self.frame_shape[1:])

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only, for JSON and checkpoints."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> EnvSpec:
        """Rebuild a spec from `to_dict` (JSON turns tuples into lists)."""
        return cls(
            env_id=str(data["env_id"]),
            frame_shape=tuple(int(n) for n in data["frame_shape"]),
            frame_dtype=str(data["frame_dtype"]),
            frames_stacked=int(data["frames_stacked"]),
            action_meanings=tuple(str(a) for a in data["action_meanings"]),
            action_repeat=int(data["action_repeat"]),
        )


def game_name(env_id: str) -> str:
    """Return the short name of a game, for people: ALE/SpaceInvaders-v5 is SpaceInvaders."""
    name = re.split(r"[:/]", env_id)[-1]
    return re.sub(r"(NoFrameskip)?-v\d+$", "", name)
