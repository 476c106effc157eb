"""A wish of the user to a run under way, as a small file in the run's `control/`.

    control/<uuid>.json   {"command": "set", "values": {"lr_factor": 0.5}, "time": 1790000000.0}

The live page writes such files, and so may any program, or a person with an editor. The trainer
reads them (agent/run/control.py). They may hold anything, so all that a command can be is checked
here, and what is not in these tables is refused. Imports nothing that takes long.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ritornello.core.atomic_file import write_text
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import parse_json, shown

CONTROL = "control"  # folder of a run
MAX_BYTES = 4000
NAME = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.json")
COMMANDS = ("pause", "continue", "save", "stop", "evaluate", "set")  # "stop" as Ctrl-C does


@dataclass(frozen=True)
class Setting:
    """A number that may be changed while a run is going on."""

    low: float
    high: float
    about: str

    def allows(self, value: Any) -> bool:
        """Whether something that was read from a file is a number within the bounds."""
        return type(value) in (int, float) and bool(self.low <= value <= self.high)


# Factors rather than values where there is a schedule, which goes on as it was planned. A share of
# all or nothing would stop the run: without new unrolls nothing sets the pace of learning.
SETTINGS = {
    "lr_factor": Setting(0.01, 100.0, "multiplies the learning rate of the schedule"),
    "entropy_factor": Setting(0.0, 100.0, "multiplies the weight of the entropy bonus"),
    "replay_share": Setting(0.05, 0.95, "the share of each batch that is drawn from replay"),
}


@dataclass(frozen=True)
class Command:
    """One wish."""

    id: str
    name: str
    values: Mapping[str, float]

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value:g}" for name, value in self.values.items())
        return f"{self.name} {values}".strip()


def read_command(identity: str, content: str) -> Command:
    """Return the command in a control file; `identity` is the file's name without its ending.

    Raises:
      ConfigError: if `content` is anything but a command of the tables above.
    """
    where = f"the control file {identity}"
    data = parse_json(content, where)
    if not isinstance(data, dict) or not data.keys() <= {"command", "values", "time"}:
        raise ConfigError(f"{where} holds {shown(data)}, expected command, values and time.")
    name, values = data.get("command"), data.get("values", {})
    if not isinstance(name, str) or name not in COMMANDS:
        raise ConfigError(f"{where}: command is {shown(name)}, expected {', '.join(COMMANDS)}.")
    if not isinstance(values, dict) or bool(values) != (name == "set"):
        raise ConfigError(f"{where}: `set` has names with numbers, and no other command has.")
    for key, value in values.items():
        setting = SETTINGS.get(key)
        if setting is None or not setting.allows(value):
            bounds = [f"{name} {each.low:g} to {each.high:g}" for name, each in SETTINGS.items()]
            raise ConfigError(
                f"{where}: {shown(key)} is {shown(value)}, expected {', '.join(bounds)}."
            )
    return Command(identity, name, {key: float(value) for key, value in values.items()})


def write_command(folder: Path, name: str, values: Mapping[str, float] | None = None) -> str:
    """Put a command into the `control/` of a run; return its id.

    Raises:
      ConfigError: if there is no such command, or a value is out of bounds.
      OSError: if it cannot be written.
    """
    identity = str(uuid.uuid4())
    data: dict[str, Any] = {"command": name, "values": dict(values or {}), "time": time.time()}
    text = json.dumps(data) + "\n"
    read_command(identity, text)
    control = folder / CONTROL
    control.mkdir(exist_ok=True)
    if control.is_symlink():
        raise ConfigError(f"{control} is a link: expected a folder of the run itself.")
    write_text(control / f"{identity}.json", text)
    return identity
