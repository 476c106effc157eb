"""Whose code may be imported to find an environment, a network or another part of a user's own.

`module:Id` names an environment that a module registers with Gymnasium when it is imported, which
runs the code of that module; `module:name` likewise a network, an algorithm, a sink or a kind of
replay that it registers with this program (flags/parts.py). So a name of that form is honoured only
if somebody typed it: a checkpoint, a flags.json, a model.json or a sequence may come from a
stranger, and a folder of his may hold the module too. `--trust_env_module=True` says that this
invocation may import what a file names.

Arguments for an environment (`--env_kwargs`) that come from a file may be numbers, but no texts: a
text may be the name of a file or a module.

The list belongs to the process. Worker processes get the names that the learner's process has
checked (agent/acting/worker.py).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown
from ritornello.wrappers.env_kwargs import holds_text

_trusted: set[str] = set()
_EVERYTHING = "*"
_trusted_kwargs: set[str] = set()


def module_of(env_id: str) -> str:
    """Return the module in an id of the form `module:id`; "" for a plain id."""
    return env_id.rpartition(":")[0]


def without_modules(env_ids: str) -> list[str]:
    """Return the ids, joined with commas, without their modules, whose names may have changed."""
    return [env_id.rpartition(":")[2] for env_id in env_ids.split(",")]


def trust_modules_of(names: str) -> None:
    """Allow the modules in `names`, joined with commas, that the user has typed."""
    _trusted.update(filter(None, map(module_of, names.split(","))))


def trust_every_module() -> None:
    """Allow every module, as the user has asked for."""
    _trusted.add(_EVERYTHING)


@contextlib.contextmanager
def trust_forgotten() -> Iterator[None]:
    """Forget, after the block, what the user has typed in it: another call may mean otherwise.

    A module that was imported because of it stays trusted: its code has run in this process.
    """
    trusted, kwargs = set(_trusted), set(_trusted_kwargs)
    try:
        yield
    finally:
        imported = {name for name in _trusted if name in sys.modules}
        _trusted.clear()
        _trusted.update(trusted | imported)
        if not imported - trusted:
            _trusted_kwargs.clear()
            _trusted_kwargs.update(kwargs)


def check_trusted(names: str, source: str = "a file", *, flag: str = "env") -> None:
    """Raise ConfigError if one of `names`, joined with commas, needs a module that is not allowed.

    The names are ids of environments, or of other parts of a user's own. For the message, `source`
    says where they come from, and `flag` which flag has them.
    """
    plain = "a plain id" if flag == "env" else "a plain name"
    for name in names.split(","):
        module = module_of(name)
        if module and _EVERYTHING in _trusted:
            _trusted.add(module)
        elif module and module not in _trusted:
            raise ConfigError(
                f"{flag} is {shown(name)}, from {source}: expected {plain}, because finding "
                f"this one means to import the module {shown(module)}, which runs its code, and a "
                "file may not ask for that. If the module is your own, give "
                f"--trust_env_module=True, or to main.py {written(flag)} yourself."
            )


def written(flag: str, module: str = "<module>") -> str:
    """Return how a part in a module is written on a command line."""
    if flag == "replay_parameters":
        return f'"type": "{module}:<name>" in --replay_parameters'
    return f"--{flag}={module}:{'<id>' if flag == 'env' else '<name>'}"


def trust_kwargs(text: str) -> None:
    """Allow arguments of environments (`kwargs_text`) that the user has typed."""
    _trusted_kwargs.add(text)


def check_trusted_kwargs(text: str, source: str = "a file") -> None:
    """Raise ConfigError if arguments (`kwargs_text`) that were not typed have a text value."""
    if text in _trusted_kwargs or _EVERYTHING in _trusted or not holds_text(text):
        return
    raise ConfigError(
        f"env_kwargs is {shown(text)}, from {source}: expected numbers only, because a text may "
        "name a file or a module, and a file may not choose one. If these arguments are your own, "
        "give --trust_env_module=True, or to main.py --env_kwargs yourself."
    )
