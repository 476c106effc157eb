"""Actions that were done in a game, as a file: played again, they lead to the very same states.

So several agents can be asked about the same pictures (`--actions` of the films).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from analysis.playing import LoadedAgent
from core.atomic_file import write_json
from core.errors import ConfigError


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
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            recording = cls(
                str(data["env"]),
                int(data["seed"]),
                tuple(str(name) for name in data["action_names"]),
                tuple(int(action) for action in data["actions"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{path} is no list of actions: expected JSON with env, seed, action_names and "
                f"actions, got {type(error).__name__} {error}. python -m analysis saliency writes "
                "such files as actions.json."
            ) from error
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
