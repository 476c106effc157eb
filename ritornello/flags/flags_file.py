"""`--flags_file`: flags from a YAML or JSON file, or from the flags.json of a run.

A file says how to train. It may be somebody else's, so it does not say what is done, what is read
or written where, nor whose code is run: those flags are typed. The flags.json of a run has them all
the same, because it records all flags; they are left out there, as when that run is resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import parse_json, read_text, shown, shown_text
from ritornello.core.plain_yaml import parse_yaml
from ritornello.core.run_layout import FLAGS
from ritornello.flags.earlier import modern
from ritornello.flags.names import named_flags, unknown_option
from ritornello.flags.presets import preset_flags
from ritornello.flags.problems import listed

MAX_FILE_BYTES = 200_000
# Of the flags that belong to one command, those that say what is done, and with which files.
ONLY_TYPED = frozenset(
    {
        *("op_mode", "load_model_url", "results_dir", "new_run_folder", "run_name", "flags_file"),
        "trust_env_module",
        "ray_address",  # programs run there, and come from there
    }
)


@dataclass(frozen=True)
class FlagsFile:
    """Content of a flags file, of which only the names have been checked."""

    where: str = "the flags file"  # for messages
    values: dict[str, Any] = field(default_factory=dict)
    is_record: bool = False  # written by a run: other flags already include its preset's


def read_flags_file(
    path: str,
    known: Mapping[str, bool],
) -> FlagsFile:
    """Read a .yaml, .yml or .json file with flags, or the flags.json of a run folder.

    `known` has flag -> whether it belongs to one command.

    Raises:
      ConfigError: if the file cannot be read, is no mapping, or has a name that it may not have.
    """
    file = Path(path)
    where = f"--flags_file={shown_text(path)}"
    try:
        if file.is_dir():
            file = file / FLAGS
    except (OSError, ValueError):
        pass  # told when it is read
    text = read_text(file, "the flags file", MAX_FILE_BYTES)
    parse = parse_json if file.suffix == ".json" else parse_yaml
    data = parse(text, where)
    if not isinstance(data, dict):
        raise ConfigError(
            f"{where} holds {shown(data)}, expected a mapping of flags, e.g. 'lr: 0.001'."
        )
    named = named_flags(data, where)
    data = modern(named)
    if file.name == FLAGS and _is_record(file, data, known):
        values = {name: value for name, value in data.items() if known.get(name) is False}
        return FlagsFile(where, values, is_record=True)
    if named.get("preset"):
        data = modern(named, preset_flags(str(named["preset"])))
    problems = [f"{where}: {unknown_option(name)}" for name in data if name not in known]
    problems += [
        f"{where} sets {name}, which no file may: type --{name} yourself"
        for name in data
        if name in ONLY_TYPED
    ]
    if problems:
        raise ConfigError(listed(problems))
    return FlagsFile(where, data)


def _is_record(file: Path, data: Mapping[str, Any], known: Mapping[str, bool]) -> bool:
    """Whether a run wrote a file of this name: it holds all flags, or lies in a run folder.

    Any other file has been written by hand, and a misspelt flag in it is an error.
    """
    has_all = len(data) >= len(known) / 2
    return has_all or any((file.parent / name).exists() for name in ("run.json", "model.json"))
