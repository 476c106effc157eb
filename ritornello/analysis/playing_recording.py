"""Actions that were done in a game, as a file: played again, they lead to the very same states.

So several agents can be asked about the same pictures (`--actions` of the films).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ritornello.analysis.playing import LoadedAgent
from ritornello.core.atomic_file import write_json
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import parse_json, read_text, shown


@dataclass(frozen=True)
class Recording:
    """Actions that were done, and where: with them the same states come again."""

    env_id: str
    seed: int
    action_names: tuple[str, ...]  # what the numbers mean
    actions: tuple[int, ...]  # one per moment, those that were ignored included

    def save(self, path: Path) -> None:
        """Write a JSON file."""
        write_json(
            path,
            {
                "env": self.env_id,
                "seed": self.seed,
                "action_names": list(self.action_names),
                "actions": list(self.actions),
            },
        )

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Read a JSON file that `save` wrote.

        Raises:
          ConfigError: if it is not such a file.
        """
        data = parse_json(read_text(path, "the list of actions"), str(path))
        kinds = {"env": str, "seed": int, "action_names": [str], "actions": [int]}
        for name, kind in kinds.items():
            value = data.get(name) if isinstance(data, dict) else None
            if not _is_of(value, kind):
                raise ConfigError(
                    f"{path} is no list of actions: expected JSON with env, seed, action_names and "
                    f"actions, but {name} is {shown(value)}. python -m ritornello.analysis "
                    "saliency writes "
                    "such files as actions.json."
                )
        recording = cls(
            data["env"], data["seed"], tuple(data["action_names"]), tuple(data["actions"])
        )
        outside = [a for a in recording.actions if not 0 <= a < len(recording.action_names)]
        if outside:
            raise ConfigError(
                f"{path} has action {outside[0]}, but names only for 0 to "
                f"{len(recording.action_names) - 1}."
            )
        return recording

    def for_agent(self, agent: LoadedAgent) -> list[int]:
        """Return the actions in the numbers that `agent` has for them.

        Raises:
          ConfigError: if it does not have one of them.
        """
        own = agent.env_spec.action_meanings
        used = {self.action_names[action] for action in set(self.actions)}
        missing = sorted(used - set(own))
        if missing:
            raise ConfigError(
                f"the recording uses {', '.join(missing)}, but {agent.url} has only "
                f"{', '.join(own)}. Record with an agent that has the same actions."
            )
        return [own.index(self.action_names[action]) for action in self.actions]


def _is_of(value: Any, kind: Any) -> bool:
    """Whether a value is of a type, or a list of such for `[type]`; True is no number."""
    if isinstance(kind, list):
        return isinstance(value, list) and all(type(each) is kind[0] for each in value)
    return type(value) is kind
