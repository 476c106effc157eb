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

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import CheckpointError, EnvironmentFault, PlatformError, ShapeError
from ritornello.core.plain_data import shown_text
from ritornello.core.saved_state import item, items
from ritornello.core.spec import MODEL_DECIDING_FIELDS, ActionSpec, EnvSpec


@dataclass
class StepResult:
    """Results of one step of E environments; arrays are the caller's until the next step."""

    stacks: np.ndarray  # [E, S, *frame_shape], newest frame last; may be reused by the next step
    reward: np.ndarray  # [E] float32, raw
    terminated: np.ndarray  # [E] bool, game over by the rules, or a lost life if episodic_life
    first: np.ndarray  # [E] bool, this step was a reset: action ignored, reward 0, first stack
    episodes: list[EpisodeEnd]  # whole games (all lives) that ended at this step, raw
    action_mask: np.ndarray | None = None  # `EnvVector.action_mask` after this step


class EnvVector:
    """E environments of one kind. Not thread-safe; made and used in one process."""

    spec: EnvSpec
    num_envs: int
    # [E, P] bool, what each environment allows on what it shows now (core/unroll.py); all of it
    # where its game is over. None: they allow everything at all times.
    action_mask: np.ndarray | None = None

    def reset(self) -> np.ndarray:
        """Start every environment and return the first stacks `[E, S, *frame_shape]`.

        Frames of a stack from before a start are zeros (black). Called again, it starts the same
        games again.
        """
        raise NotImplementedError

    def step(self, actions: np.ndarray) -> StepResult:
        """Do `actions` ([E, *action_shape], as the spec stores them), one in each environment."""
        raise NotImplementedError

    def close(self) -> None:
        """Free the emulators. Closing twice is allowed."""

    def state_dict(self) -> dict[str, Any]:
        """Return where each environment is, as plain ints and lists.

        Raises:
          PlatformError: if the vector was not made with `restorable=True`.
        """
        raise PlatformError(
            "these environments do not remember their actions, so they cannot be saved: "
            "expected make_env_vector(..., restorable=True)."
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> np.ndarray:
        """Go to the place of a state from `state_dict`; return the stacks shown there.

        Raises:
          StateError: if `state` is malformed.
          CheckpointError: if the state belongs to other environments.
        """
        raise NotImplementedError


def check_actions(actions: np.ndarray, count: int, spec: ActionSpec) -> None:
    """Raise ShapeError unless `actions` are [count, *action_shape] as they are stored.

    An emulator thread would die of a wrong action and leave its caller waiting for ever.
    """
    is_whole = actions.dtype.kind == "i"
    is_typed = is_whole if spec.is_single_choice else actions.dtype == spec.dtype
    if actions.shape != (count, *spec.shape) or not is_typed:
        raise ShapeError(
            f"actions has shape {actions.shape} and dtype {actions.dtype}, expected "
            f"{(count, *spec.shape)} of {spec.dtype}: {spec.describe()} per environment."
        )
    if not is_whole and not np.isfinite(actions).all():
        raise ShapeError(
            "actions holds numbers that are not finite: the policy that drew them has diverged. "
            "Resume the last checkpoint with a lower --lr; before any update, look at --model."
        )
    for chosen, number in spec.choices_in(actions):
        if chosen.min() < 0 or chosen.max() >= number or not (is_whole or _are_whole(chosen)):
            raise ShapeError(
                f"actions has a choice in [{chosen.min()}, {chosen.max()}], expected whole "
                f"numbers in [0, {number - 1}]."
            )


def check_as_tried(own: EnvSpec, expected: EnvSpec) -> None:
    """Raise EnvironmentFault unless an environment shows and takes what the one tried out did.

    Both are specs of one game, `own` of its single frames.
    """
    own = replace(own, frames_stacked=expected.frames_stacked)
    differences = [
        f"{name} is {shown_text(str(getattr(own, name)))}, expected "
        f"{shown_text(str(getattr(expected, name)))}"
        for name in MODEL_DECIDING_FIELDS
        if getattr(own, name) != getattr(expected, name)
    ]
    if differences:
        raise EnvironmentFault(
            f"env {shown_text(expected.env_id)}, when it was made: {'; '.join(differences)} as "
            "when it was tried out. It must be the same whenever it is made; if it was edited, "
            "start again (in a notebook: train or load_agent)."
        )


def saved_seeds(state: Mapping[str, Any], env_id: str, num_envs: int) -> list[int]:
    """Return the seeds of a saved state of these environments.

    Raises:
      StateError: if `state` is malformed.
      CheckpointError: if the state is of other environments.
    """
    seeds = items(state, "seeds", int, default=())
    saved_id = item(state, "env_id", str, default="several games")
    if (saved_id, len(seeds)) != (env_id, num_envs):
        raise CheckpointError(
            f"the saved state is of {len(seeds)} x {shown_text(saved_id)}, expected {num_envs} x "
            f"{env_id}: resume with the same --env, --env_backend and --envs_per_worker."
        )
    return list(seeds)


def checksums(*columns: Sequence[Any] | np.ndarray) -> list[int]:
    """Return a checksum of where each environment is; each column has an item for each of them."""
    rows = zip(*columns, strict=True)
    return [zlib.crc32(b"".join(np.asarray(part).tobytes() for part in row)) for row in rows]


def check_played_again(state: Mapping[str, Any], found: list[int], env_id: str) -> None:
    """Check that environments are where they were when `state` was saved.

    `found` are the `checksums` of where the saved actions have led now.

    Raises:
      StateError: if `state` is malformed.
      CheckpointError: if one of them is elsewhere.
    """
    saved = items(state, "checksums", int, default=found)  # an earlier version has none
    for index, (then, now) in enumerate(zip(saved, found, strict=True)):
        if then != now:
            raise led_elsewhere(env_id, index, len(found))


def led_elsewhere(env_id: str, index: int, count: int) -> CheckpointError:
    """Return the error of an environment whose seed and actions do not say where it is."""
    return CheckpointError(
        f"env {shown_text(env_id)}, environment {index + 1} of {count}, is not where it was when "
        "the run was saved, though it was given the same seeds and actions: the run cannot be "
        "resumed exactly. Expected an environment that keeps nothing across resets (such as a "
        "running normalisation), draws from np_random alone, and is of the same version on the "
        "same kind of machine. --reproducible=False goes on with new games."
    )


def _are_whole(chosen: np.ndarray) -> bool:
    return bool((chosen % 1 == 0).all())
