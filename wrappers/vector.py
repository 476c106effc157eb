"""E environments stepped together: the interface between environments and the rest of the program.

Two implementations give the same rows, pixel for pixel:

* wrappers/gym_vector.py is readable, with one Gymnasium environment and one small wrapper per rule.
* wrappers/ale_vector.py is fast: it has the same rules in C++, several times cheaper per step.

A third, wrappers/task_vector.py, joins several vectors with different games into one. Rows follow
core/unroll.py. A game that ends at one step (over or truncated) shows its last observation there;
the *next* step of that environment is its reset row. A lost life is `terminated` without a reset
row: the game, and its stack of frames, go on.

E is the number of environments, S the number of stacked frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import ShapeError
from ritornello.core.spec import ActionSpec, EnvSpec


@dataclass
class StepResult:
    """What one step of E environments gave; arrays are the caller's until the next step."""

    stacks: np.ndarray  # [E, S, *frame_shape], newest frame last; may be reused by the next step
    reward: np.ndarray  # [E] float32, raw
    terminated: np.ndarray  # [E] bool, game over by the rules, or a lost life if episodic_life
    first: np.ndarray  # [E] bool, this step was a reset: action ignored, reward 0, first stack
    episodes: list[EpisodeEnd]  # whole games (all lives) that ended at this step, raw


class EnvVector(Protocol):
    """E environments of one kind. Not thread-safe; made and used in one process."""

    spec: EnvSpec
    num_envs: int

    def reset(self) -> np.ndarray:
        """Start every environment and return the first stacks `[E, S, *frame_shape]`.

        Frames of a stack from before a start are zeros (black). Called again, it starts the same
        games again.
        """

    def step(self, actions: np.ndarray) -> StepResult:
        """Do `actions` ([E, *action_shape], as the spec stores them), one in each environment."""

    def close(self) -> None:
        """Free the emulators. Closing twice is allowed."""


class RestorableEnvVector(EnvVector, Protocol):
    """Environments that can be put back to where they were (the readable kind only)."""

    def state_dict(self) -> dict[str, Any]:
        """Return where each environment is, as plain ints and lists."""

    def load_state_dict(self, state: Mapping[str, Any]) -> np.ndarray:
        """Go to a place taken by `state_dict` and return the stacks shown there."""


def check_stored(actions: np.ndarray, num_envs: int, spec: EnvSpec) -> None:
    """Raise ShapeError unless `actions` is `[num_envs, *action_shape]` as the spec stores them."""
    if spec.action_parts:
        check_action_rows(actions, num_envs, spec.actions)
    else:
        check_actions(actions, num_envs, spec.action_count)


def check_actions(actions: np.ndarray, num_envs: int, action_count: int) -> None:
    """Raise ShapeError unless `actions` is `[num_envs]` integers in `[0, action_count)`.

    An emulator thread would die of a wrong action and leave its caller waiting for ever.
    """
    if actions.shape != (num_envs,) or actions.dtype.kind != "i":
        raise ShapeError(
            f"actions has shape {actions.shape} and dtype {actions.dtype}, "
            f"expected ({num_envs},) integers, one per environment."
        )
    if actions.min() < 0 or actions.max() >= action_count:
        raise ShapeError(
            f"actions is in [{actions.min()}, {actions.max()}], expected [0, {action_count - 1}]."
        )


def check_action_rows(actions: np.ndarray, num_envs: int, spec: ActionSpec) -> None:
    """Raise ShapeError unless `actions` is `[num_envs, W]` of such actions, all finite."""
    if actions.shape != (num_envs, *spec.shape) or actions.dtype != spec.dtype:
        raise ShapeError(
            f"actions has shape {actions.shape} and dtype {actions.dtype}, expected "
            f"{(num_envs, *spec.shape)} of {spec.dtype}: {spec.describe()} per environment."
        )
    if not np.isfinite(actions).all():
        raise ShapeError(
            "actions holds numbers that are not finite: the policy that drew them has diverged. "
            "Resume the last checkpoint with a lower --lr."
        )
    for chosen, count in spec.choices_in(actions):
        if chosen.min() < 0 or chosen.max() >= count:
            raise ShapeError(
                f"actions has a choice in [{chosen.min()}, {chosen.max()}], expected "
                f"[0, {count - 1}]."
            )
