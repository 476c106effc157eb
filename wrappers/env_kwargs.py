"""Arguments that an environment is made with, as `--env_kwargs` says: plain data, one mapping.

They travel as one text, JSON with its keys in order, so that equal arguments are equal text: an
EnvConfig can be compared and hashed, and the flags of a run hold just what was asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import check_plain, parse_json, shown

WHERE = "env_kwargs"
MAX_VALUES = 10_000
# These are arguments of gymnasium.make which this program gives itself.
DECIDED_HERE = {
    "id": "give --env",
    "render_mode": "give --render=True",
    "disable_env_checker": "what an environment gives is checked in each step anyway",
}


def kwargs_text(value: Any, where: str = WHERE) -> str:
    """Return arguments, given as a mapping or as one in JSON, in their normal form; "" for none.

    `where` is the name of their flag, for messages.

    Raises:
      ConfigError: if `value` is no mapping of names to plain data, or has a name that is not for
        the user.
    """
    if isinstance(value, str):
        value = parse_json(value, where) if value.strip() else {}
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{where} is {shown(value)}, expected a mapping of argument names to values in JSON, "
            'such as {"size": 8}.'
        )
    arguments = dict(value)
    check_plain(arguments, where, MAX_VALUES)
    for name in arguments:
        if not name.isidentifier():
            raise ConfigError(f"{where} has the key {shown(name)}, expected names of arguments.")
        if where == WHERE and name in DECIDED_HERE:
            raise ConfigError(f"{where} has {name}, which is not an argument of yours: "
                              f"{DECIDED_HERE[name]}.")  # fmt: skip
    try:
        return json.dumps(arguments, sort_keys=True, allow_nan=False) if arguments else ""
    except ValueError as error:
        raise ConfigError(f"{where} holds a number that is not finite.") from error


def kwargs_of(text: str) -> dict[str, Any]:
    """Return the arguments that a text of `kwargs_text` stands for."""
    arguments: dict[str, Any] = json.loads(text) if text else {}
    return arguments


def holds_text(text: str) -> bool:
    """Whether some value in the arguments is a text, which may name a file or a module."""
    waiting: list[Any] = list(kwargs_of(text).values())
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            return True
        if isinstance(value, dict):
            waiting += [*value, *value.values()]
        elif isinstance(value, list):
            waiting += value
    return False
