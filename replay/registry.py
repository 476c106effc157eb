"""The kinds of replay by name. A kind is a sampler with a name: one class and one registration.

    class Newest(Sampler):
        ...

    register("newest", Newest)

The keys, the checks of their values, the help text and the tables of the documentation follow from
the class (docs/replay.md, "A kind of your own"). Users write `"my_module:newest"`: flags/parts.py
then imports the module, which registers the kind.

Next to read: replay/parameters.py, which makes buffers of the parameter.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from ritornello.core.errors import ConfigError
from ritornello.replay.keys import OF_RINGS, REQUIRED, Key
from ritornello.replay.sampler import Fifo, Sampler, Uniform

# Name -> the class, or the module and class that `sampler_of` imports when the kind is asked for.
KINDS: dict[str, type[Sampler] | tuple[str, str]] = {
    "queue": Fifo,
    "standard": Uniform,
    "attentive": ("ritornello.replay.scored", "Attentive"),
    "elite": ("ritornello.replay.scored", "Elite"),
    "prioritised": ("ritornello.replay.prioritised", "Prioritised"),
    "least_drawn": ("ritornello.replay.samplers", "LeastDrawn"),
    "circular": ("ritornello.replay.samplers", "Circular"),
}

SHIPPED = frozenset(KINDS)


def register(name: str, sampler: type[Sampler]) -> None:
    """Make a sampler a kind of replay. Call it in the module in which the class is written.

    Args:
      name: the `type` of such buffers: letters, digits and underscores.
      sampler: the class; its `from_keys` is tried with the defaults of its keys.

    Raises:
      ConfigError: if the name is taken by another class, or the class cannot be a kind.
    """
    is_kind = name.isidentifier() and issubclass(sampler, Sampler) and not sampler.consumes
    if not is_kind or (sampler.takes_turns and not issubclass(sampler, sampler_of("circular"))):
        raise ConfigError(
            f"{_full_name(sampler)} cannot be the kind of replay {name!r}: expected letters, "
            "digits and underscores, and a subclass of replay.sampler.Sampler that sets neither "
            "`consumes`, which is the queue's alone, nor, if it is no Circular, `takes_turns`."
        )
    taken = sampler_of(name) if name in KINDS else None
    # A notebook in which a cell is run again makes a new class of the same name.
    if taken is not None and _full_name(taken) != _full_name(sampler):
        raise ConfigError(
            f"the kind of replay {name!r} is {_full_name(taken)} already. Give yours another name."
        )
    if known := sampler.keys.keys() & (REQUIRED.keys() | OF_RINGS.keys()):
        raise ConfigError(
            f"the kind of replay {name!r} has the keys {', '.join(sorted(known))}, which all "
            "buffers have. Call yours otherwise."
        )
    try:
        sampler.from_keys({name: key.default for name, key in {**sampler.keys, **OF_RINGS}.items()})
    except TypeError as error:
        raise ConfigError(
            f"the kind of replay {name!r} cannot be built from its keys "
            f"({', '.join(sampler.keys) or 'it has none'}): {error}. Each key is an argument of "
            "__init__, unless from_keys says otherwise."
        ) from error
    KINDS[name] = sampler


def sampler_of(kind: str) -> type[Sampler]:
    """Return the sampler class of a registered kind.

    `kind` is a name in `KINDS`; a module may stand before it, as in `my_module:newest`.
    """
    found = KINDS[kind.rpartition(":")[2]]
    if isinstance(found, type):
        return found
    module, name = found
    sampler: type[Sampler] = getattr(import_module(module), name)
    return sampler


def is_own(kind: str) -> bool:
    """Whether `kind` is a `module:name` that the module has registered by now."""
    module, _, name = kind.rpartition(":")
    return name not in SHIPPED and name in KINDS and sampler_of(name).__module__ == module


def keys_of(kind: str) -> Mapping[str, Key]:
    """Return the keys of a kind by name, in the order in which they are shown."""
    sampler = sampler_of(kind)
    return {**REQUIRED, **sampler.keys, **({} if sampler.sets_the_pace() else OF_RINGS)}


def all_keys() -> tuple[str, ...]:
    """Return the names of the keys of all kinds, each once."""
    names = [name for kind in KINDS for name in keys_of(kind) if name not in OF_RINGS]
    return tuple(dict.fromkeys([*names, *OF_RINGS]))


def _full_name(sampler: type) -> str:
    return f"{sampler.__module__}.{sampler.__qualname__}"
