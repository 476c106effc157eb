"""The configuration of a run, by its flags: which flags make it, and the label that names it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from ritornello.flags.options import EFFECTS, Flags

# Flags in which runs of one configuration may differ: what changes no learning, and the seed and
# the game, over which scores are taken together.
NOT_CONFIGURATION = {"seed", "env"} | {n for n, effect in EFFECTS.items() if effect != "learning"}


@cache
def default_flags() -> dict[str, Any]:
    """Return today's default of each flag, in the form of flags.json.

    It stands for a flag that is newer than the run folder, as in a resume. Else such a run would
    be compared as if it had any value of the flag, or another than runs that say the default.
    """
    return Flags().to_json()


def label_among(label: str, games: int) -> str:
    """Return the label of one game's curve, of a run of `games` games.

    It must not be taken for a run of this game alone.
    """
    return f"{label}, {games} games" if games > 1 else label


def label_by(names: Sequence[str], flags: Mapping[str, Any]) -> str:
    """Return the label that says these flags alone."""
    return " ".join(f"{name}={_short(flags[name])}" for name in names)


def distinguishing_labels(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """Label each run by its replay, and by the flags that tell it from others.

    Flags are compared within an environment: each kind of environment has presets of its own.

    Args:
      runs: the environment of each run, and its flags, those with the defaults included.
    """
    varying = set()
    first: dict[tuple[str, str], str] = {}
    for env, flags in runs:
        for name in flags.keys() - NOT_CONFIGURATION:
            value = json.dumps(flags[name], sort_keys=True)
            if first.setdefault((env, name), value) != value:
                varying.add(name)
    varying.discard("replay_parameters")  # always said, in short form
    buffers = [buffer for _, flags in runs for buffer in flags["replay_parameters"]]
    labels = []
    for _, flags in runs:
        parts = [" + ".join(_buffer_text(each, buffers) for each in flags["replay_parameters"])]
        # A flag that is gone by now has no default.
        parts += [f"{name}={_short(flags.get(name))}" for name in sorted(varying)]
        games = flags["env"].count(",") + 1
        parts += [f"{games} games"] if games > 1 else []
        labels.append(" ".join(parts).strip() or "run")
    return labels


def _buffer_text(buffer: dict[str, Any], others: Sequence[dict[str, Any]]) -> str:
    """Name a buffer by its kind, and by the keys in which those of its kind differ."""
    kind = [other for other in others if other.get("type") == buffer.get("type")]
    keys = [key for key in buffer if any(other.get(key) != buffer[key] for other in kind)]
    return " ".join([str(buffer.get("type")), *(f"{key}={_short(buffer[key])}" for key in keys)])


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
