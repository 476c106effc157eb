"""What agents must have in common before one learns from the unrolls of another.

Each agent writes its terms into its own folder when it begins. Another one that finds them to
differ takes nothing from it, and says what differs: an unroll of another game, of frames of another
size or with other actions might not even be noticed, and would be learned from wrongly.

What the agents need not have in common: networks, learning rates, costs, buffers, numbers of
workers. What only another network understands (features, memory) does not travel.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ritornello.core.atomic_file import write_json
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import parse_json, read_text, shown, shown_text
from ritornello.core.unroll import UnrollSchema
from ritornello.core.version import VERSION
from ritornello.wrappers.config import EnvConfig

FORMAT = 2  # of the messages and of this file
TERMS_FILE = "terms.json"
MAX_TERMS_BYTES = 1_000_000
MAX_DIFFERENCES = 5  # that a message names
# Two ways to run the same environment.
OF_NO_MATTER = ("backend",)


class UnreadTerms(ConfigError):
    """Terms that are there perhaps, but cannot be read now."""


@dataclass(frozen=True)
class Terms:
    """What an agent's unrolls are like: names and plain values."""

    values: Mapping[str, Any]

    @classmethod
    def of(cls, config: EnvConfig, travelling: UnrollSchema) -> Terms:
        """Return the terms of an agent.

        Args:
          config: what decides its environments.
          travelling: layout of the records that it sends.
        """
        environment = {**asdict(config), **travelling.env_spec.to_dict()}
        values = {
            "format": FORMAT,
            "version": VERSION,
            "unroll_length": travelling.unroll_length,
            **{name: value for name, value in environment.items() if name not in OF_NO_MATTER},
            "record": [[f.name, list(f.shape), str(f.dtype)] for f in travelling.fields.values()],
        }
        return cls(json.loads(json.dumps(values)))  # as they are read again

    def write(self, folder: Path) -> None:
        """Write them into the folder of an agent."""
        write_json(folder / TERMS_FILE, self.values)

    @classmethod
    def read(cls, folder: Path) -> Terms | None:
        """Return the terms in the folder of an agent, None if there are none yet.

        Raises:
          UnreadTerms: if they cannot be read.
          ConfigError: if they are not what `write` writes.
        """
        path = folder / TERMS_FILE
        if cls.stamp(folder) is None:
            return None
        try:
            text = read_text(path, "the terms of an agent", MAX_TERMS_BYTES)
        except ConfigError as error:
            raise UnreadTerms(str(error)) from error
        values = parse_json(text, str(path))
        if not isinstance(values, dict):
            raise ConfigError(f"{path} holds {shown(values)}, expected the terms of an agent.")
        return cls(values)

    @staticmethod
    def stamp(folder: Path) -> tuple[int, int] | None:
        """Return what tells the terms of a folder from later ones, None if there are none yet.

        Raises:
          UnreadTerms: if nobody can say.
        """
        path = folder / TERMS_FILE
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise UnreadTerms(
                f"cannot read the terms of an agent {shown(str(path))}: {error.strerror}."
            ) from error
        return status.st_mtime_ns, status.st_ino

    def differences(self, other: Terms) -> list[str]:
        """Return what `other` has differently, in words; empty if nothing."""
        names = dict.fromkeys([*self.values, *other.values])
        found = [
            f"{shown_text(name)} is {shown(other.values.get(name), 60)} instead of "
            f"{shown(self.values.get(name), 60)}"
            for name in names
            if self.values.get(name) != other.values.get(name)
        ]
        more = len(found) - MAX_DIFFERENCES
        return found[:MAX_DIFFERENCES] + [f"and {more} more"] * (more > 0)


def unfit(terms: Terms, folder: Path) -> str:
    """Return why nothing can be learned from the agent of a folder; "" if it can, or is unknown.

    Raises:
      UnreadTerms: if its terms cannot be read now.
    """
    try:
        theirs = Terms.read(folder)
    except UnreadTerms:
        raise
    except ConfigError as error:
        return str(error)
    differences = [] if theirs is None else terms.differences(theirs)
    return "" if not differences else "it is of another kind: " + ", ".join(differences)
