"""What games must have in common to be played by one agent, and the actions that it then has."""

from __future__ import annotations

from collections.abc import Sequence

import ale_py

from ritornello.core.errors import ConfigError
from ritornello.core.spec import EnvSpec
from ritornello.wrappers.env_ids import is_atari

# Those of a game that is run with all of them, in the order of their numbers.
ALL_ACTIONS: tuple[str, ...] = tuple(ale_py.Action.__members__)
# What the games of one run must have in common.
COMMON_FIELDS = (
    *("frame_shape", "frame_dtype", "frames_stacked", "action_repeat"),
    *("action_parts", "observation_parts"),
)


def check_common(first: EnvSpec, other: EnvSpec) -> None:
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


def negotiate(sets: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return every action that one of the games has, in the order of their numbers."""
    if len(set(sets)) == 1:
        return sets[0]
    used = {name for names in sets for name in names}
    return tuple(name for name in ALL_ACTIONS if name in used) if used <= set(ALL_ACTIONS) else ()


def action_numbers(actions: tuple[str, ...], own: EnvSpec) -> tuple[int, ...] | None:
    """Return the number among all 18 of each of the agent's actions; None: they are the game's own.

    Raises:
      ConfigError: if they are not actions of the game.
    """
    if actions == own.action_meanings:
        return None
    wrong = [name for name in actions if name not in ALL_ACTIONS]
    if not is_atari(own.env_id) or wrong or not actions:
        raise ConfigError(
            f"env {own.env_id} has the actions {', '.join(own.action_meanings)} and is to take "
            f"{', '.join(actions) or 'those of another kind of environment'}: expected "
            + ("names of Atari actions." if is_atari(own.env_id) else "the same ones.")
        )
    return tuple(ALL_ACTIONS.index(name) for name in actions)
