"""Whose code may be imported to find an environment.

`module:Id` names an environment that a module registers with Gymnasium when it is imported, which
runs the code of that module. So a name of that form is honoured only if somebody typed it: a
checkpoint, a flags.json, a model.json or a sequence may come from a stranger, and a folder of his
may hold the module too. `--trust_env_module=True` says that this invocation may import what a file
names.

The list belongs to the process. Worker processes get the names that the learner's process has
checked (agent/worker.py).
"""

from __future__ import annotations

from core.errors import ConfigError

_trusted: set[str] = set()
_EVERYTHING = "*"


def module_of(env_id: str) -> str:
    """Return the module that an id asks for, or "" if it is a plain id."""
    return env_id.rpartition(":")[0]


def trust_modules_of(env_ids: str) -> None:
    """Allow the modules in some ids, joined with commas, that the user has typed."""
    _trusted.update(filter(None, map(module_of, env_ids.split(","))))


def trust_every_module() -> None:
    """Allow every module, as the user has asked for."""
    _trusted.add(_EVERYTHING)


def check_trusted(env_ids: str, source: str = "a file") -> None:
    """Raise ConfigError if some ids, joined with commas, name a module that is not allowed.

    Args:
      env_ids: from anywhere.
      source: where they come from, for the message.
    """
    for env_id in env_ids.split(","):
        module = module_of(env_id)
        if module and not _trusted & {module, _EVERYTHING}:
            raise ConfigError(
                f"env is {_shown(env_id)}, from {source}: expected a plain id, because finding "
                f"this one means to import the module {_shown(module)}, which runs its code, and a "
                "file may not ask for that. If the module is your own, type "
                "--env=<module>:<id> yourself, or give --trust_env_module=True."
            )


def _shown(text: str) -> str:
    return repr(text if len(text) <= 100 else text[:97] + "...")
