"""From Python values to a command line, so that a call and a command mean exactly the same."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown


def command_line(flags: Mapping[str, Any]) -> list[str]:
    """Return `--name=value` for each flag; a flag that is None is left out, and has its default.

    A value is a text, number, bool, path, or a list or tuple of these. Mappings and lists of
    mappings (`replay_parameters`, `env_kwargs`) become JSON.

    Raises:
      ConfigError: if a value is of another type.
    """
    return [f"--{name}={_text(name, value)}" for name, value in flags.items() if value is not None]


def path_text(path: object) -> str:
    """Return a path that a function was given first as text, with `~` expanded.

    Raises:
      ConfigError: if it is no path.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        its = ", or its .folder" if hasattr(path, "folder") else ""  # of a Summary or a table
        raise ConfigError(
            f"the path is {shown(path)}, expected text or a pathlib.Path, such as "
            f"results/<run>{its}."
        )
    return os.path.expanduser(text)


def _text(name: str, value: Any) -> str:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return repr(value)
    plain = isinstance(value, list | tuple)
    if plain and all(isinstance(part, str | int | float) for part in value):
        return ",".join(map(str, value))
    if plain or isinstance(value, Mapping):
        try:
            return json.dumps(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"{name} is {shown(value)}, expected values that JSON has: {error}."
            ) from error
    if name == "env":
        raise ConfigError(
            f"env is {shown(value)}, expected its id: workers make environments of their own. "
            'Register it in a module, and give env="<module>:<id>" (docs/your_own.md).'
        )
    raise ConfigError(
        f"{name} is {shown(value)}, expected text, a number, True or False, a path, or a list or "
        "mapping of these."
    )
