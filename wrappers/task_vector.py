"""Several games side by side: what they must have in common, and one vector of them.

Several games can be played by one agent if they show alike. Its actions are all that any of the
games uses, in the order of the Arcade Learning Environment, unless `EnvConfig.actions` names them.
A game that has other actions of its own is run with all 18, of which the agent's are a part; most
ignore an action that they have no use for, or do what the nearest one does.

E environments in all; each part holds a run of neighbours that play the same game. The parts are
stepped one after another, as the games of one part are by one thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import CheckpointError, ConfigError
from ritornello.core.saved_state import items, within
from ritornello.core.spec import EnvSpec
from ritornello.wrappers.atari import ALL_ACTIONS
from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.env_ids import is_atari
from ritornello.wrappers.vector import EnvVector, StepResult, check_actions

# What the games of one run must have in common.
COMMON_FIELDS = (
    *("frame_shape", "frame_dtype", "frames_stacked", "action_repeat"),
    *("action_parts", "observation_parts", "has_action_mask"),
)


def common_spec(config: EnvConfig, own: Sequence[EnvSpec]) -> EnvSpec:
    """Return the spec of several games together; `own` has that of each, with its own actions.

    Raises:
      ConfigError: if the games do not show alike, or one lacks an action that `config` names.
    """
    for other in own[1:]:
        _check_alike(own[0], other)
    actions = config.actions or _negotiated([spec.action_meanings for spec in own])
    for game in own:
        _check_has_actions(game, actions)
    return replace(own[0], env_id=config.env_id, action_meanings=actions)


def _check_alike(first: EnvSpec, other: EnvSpec) -> None:
    """Raise ConfigError unless two games show alike."""
    differences = [
        f"{name} {getattr(first, name)} and {getattr(other, name)}"
        for name in COMMON_FIELDS
        if getattr(first, name) != getattr(other, name)
    ]
    if differences:
        raise ConfigError(
            f"env names {first.env_id} and {other.env_id}, which differ in "
            f"{'; '.join(differences)}: expected games that show alike, such as Atari games. "
            "Train them in separate runs."
        )


def _negotiated(sets: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return every action that one of the games has, in the order of their numbers."""
    if len(set(sets)) == 1:
        return sets[0]
    used = {name for names in sets for name in names}
    return tuple(name for name in ALL_ACTIONS if name in used) if used <= set(ALL_ACTIONS) else ()


def _check_has_actions(game: EnvSpec, actions: tuple[str, ...]) -> None:
    """Raise ConfigError unless a game can be run with these actions."""
    is_game = is_atari(game.env_id)
    if actions == game.action_meanings or (is_game and actions and set(actions) <= {*ALL_ACTIONS}):
        return
    raise ConfigError(
        f"env {game.env_id} has the actions {', '.join(game.action_meanings)} and cannot be played "
        f"with those of {'the agent: ' + ', '.join(actions) if actions else 'another kind'}: "
        f"expected {'names of Atari actions' if is_game else 'the same ones'}."
    )


class TaskVector(EnvVector):
    """Vectors of environments, one after another. Owns them, and the stacks that it shows."""

    def __init__(self, spec: EnvSpec, parts: Sequence[EnvVector]) -> None:
        """Put the parts together, in the order of their environments.

        The parts show and accept what `spec`, that of all games, says.
        """
        self.spec = spec
        self.num_envs = sum(part.num_envs for part in parts)
        self._parts = list(parts)
        ends = np.cumsum([part.num_envs for part in parts]).tolist()
        self._rows = [slice(e - p.num_envs, e) for p, e in zip(parts, ends, strict=True)]
        shape = (self.num_envs, spec.frames_stacked, *spec.frame_shape)
        self._stacks = np.zeros(shape, spec.frame_dtype)

    def reset(self) -> np.ndarray:
        """Start every environment and return the first stacks `[E, S, *frame_shape]`."""
        for part, rows in zip(self._parts, self._rows, strict=True):
            self._stacks[rows] = part.reset()
        self._join_masks()
        return self._stacks

    def step(self, actions: np.ndarray) -> StepResult:
        """Do `actions` ([E, *action_shape]), one in each environment."""
        check_actions(actions, self.num_envs, self.spec.actions)
        reward = np.empty(self.num_envs, np.float32)
        terminated = np.empty(self.num_envs, bool)
        first = np.empty(self.num_envs, bool)
        episodes: list[EpisodeEnd] = []
        for part, rows in zip(self._parts, self._rows, strict=True):
            result = part.step(actions[rows])
            self._stacks[rows] = result.stacks
            reward[rows] = result.reward
            terminated[rows] = result.terminated
            first[rows] = result.first
            episodes += [replace(end, env_id=end.env_id + rows.start) for end in result.episodes]
        self._join_masks()
        return StepResult(self._stacks, reward, terminated, first, episodes, self.action_mask)

    def _join_masks(self) -> None:
        if self.spec.has_action_mask:
            self.action_mask = np.concatenate([part.action_mask for part in self._parts])

    def close(self) -> None:
        """Free the emulators of every part."""
        for part in self._parts:
            part.close()

    def state_dict(self) -> dict[str, Any]:
        """Return where each environment is."""
        return {"parts": [part.state_dict() for part in self._parts]}

    def load_state_dict(self, state: Mapping[str, Any]) -> np.ndarray:
        """Go to a place taken by `state_dict` and return the stacks shown there."""
        saved = items(state, "parts", dict, default=[state])
        if len(saved) != len(self._parts):
            raise CheckpointError(
                f"the saved state has {len(saved)} runs of equal games, expected "
                f"{len(self._parts)}: resume with the same --env, --env_shares, --worker_count and "
                "--envs_per_worker."
            )
        parts = zip(self._parts, self._rows, saved, strict=True)
        for number, (part, rows, part_state) in enumerate(parts):
            with within("parts", number):
                self._stacks[rows] = part.load_state_dict(part_state)
        self._join_masks()
        return self._stacks
