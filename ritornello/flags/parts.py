"""Parts that a flag names. Parts of this platform have a plain name, your own are `module:name`.

A `Registry` holds the parts of one kind, such as networks (`--model`) or algorithms
(`--algorithm`). You register a part in a module of your own, and the flag names the module and the
part. The program then imports the module and finds the part, without a change in these packages.
Importing a module runs its code, so the rules are the same as for environments: only a module that
the user has typed is imported (wrappers/trusted_modules.py). Kinds of replay are in a list of their
own (replay/registry.py), which lies in a layer below; `find_replay_kinds` fills it.

This file does not import torch, so that flags are checked and `--help` is printed quickly.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown, shown_text
from ritornello.replay.parameters import types_of_modules
from ritornello.replay.registry import is_own
from ritornello.wrappers.trusted_modules import check_trusted, module_of
from ritornello.wrappers.user_code import import_module

Part = TypeVar("Part")
REPLAY = "replay_parameters"  # the flag
AUTO = "auto"  # --model: impala_shallow for images (resnet for small ones), mlp for vectors

# What multiprocessing calls the program's own module in a process that it has spawned.
_MAIN = {"__mp_main__": "__main__"}


class Registry(Generic[Part]):
    """All parts of one kind. Filled while modules are imported; not thread-safe."""

    def __init__(self, flag: str, noun: str, shipped: Mapping[str, str]) -> None:
        """Start with the shipped parts.

        Args:
          flag: name of the flag that names one of the parts, without dashes.
          noun: word for one part, for messages.
          shipped: name -> the module that registers the part when it is imported.
        """
        self.flag = flag
        self.noun = noun
        self.shipped = dict(shipped)
        self._parts: dict[str, Part] = {}  # by full name

    def add(self, name: str, part: Part, module: str) -> None:
        """Register a part; if a module registers a name twice, the later part counts.

        Args:
          name: letters, digits and underscores.
          part: the part, of the kind that this registry holds.
          module: the `__name__` of the module in which the part is written.

        Raises:
          ConfigError: if the name has other characters, or is that of a shipped part.
        """
        if not name.isidentifier():
            raise ConfigError(
                f"{self.noun} is registered as {shown(name)}, expected a name of letters, digits "
                "and underscores."
            )
        if name in self.shipped and self.shipped[name] != module:
            raise ConfigError(
                f"{module} registers {self.noun} {name!r}, which is the name of one that "
                "is shipped: choose another."
            )
        full = name if name in self.shipped else f"{_MAIN.get(module, module)}:{name}"
        self._parts[full] = part

    def register(self, name: str) -> Callable[[Part], Part]:
        """Return a decorator that registers a class or a function."""

        def keep(part: Part) -> Part:
            self.add(name, part, str(getattr(part, "__module__", "")))
            return part

        return keep

    def full_name(self, name: str) -> str:
        """Return the name by which every process finds a part: a word, or `module:name`.

        Nothing is imported: only `find` finds out whether there is such a part.

        Raises:
          ConfigError: if no part can have this name. A word must be shipped, or registered by now.
        """
        if name in self.shipped:
            return name
        module, colon, plain = name.rpartition(":")
        if colon and module and plain:
            return name
        own = [full for full in self._parts if full.rpartition(":")[2] == name]
        if len(own) == 1:
            return own[0]
        if own:
            raise ConfigError(
                f"{self.flag} is {shown(name)}, which several modules have registered: expected "
                f"one of {', '.join(sorted(own))}."
            )
        raise ConfigError(self._unknown(name))

    def find(self, name: str) -> Part:
        """Return the part of this name, importing the module that has it.

        Raises:
          ConfigError: if there is no such part, or its module may not be or cannot be imported.
        """
        full = self.full_name(name)
        if full in self._parts:
            return self._parts[full]
        if full in self.shipped:
            importlib.import_module(self.shipped[full])
            return self._parts[full]
        check_trusted(full, flag=self.flag)
        module = full.rpartition(":")[0]
        import_module(
            module,
            full,
            flag=self.flag,
            rule=f"Expected module:name, where importing the module registers the {self.noun}.",
        )
        if full not in self._parts:
            own = [each for each in self._parts if each.startswith(f"{module}:")]
            known = f"it registers {', '.join(sorted(own))}" if own else "it registers none"
            raise ConfigError(
                f"{self.flag} is {shown(name)}, but importing {shown_text(module)} registers no "
                f"{self.noun} of that name: {known}. See docs/your_own.md."
            )
        return self._parts[full]

    def check_trusted(self, name: Any, source: str) -> None:
        """Raise ConfigError if a file names a module that nobody has typed.

        `name` is that of a part, from a file; if it is no text, the check of the flags reports it.
        `source` is its origin, for the message.
        """
        if isinstance(name, str) and name not in self._parts:
            check_trusted(name, source, flag=self.flag)

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.shipped, 2)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        shipped = f"one of {', '.join(self.shipped)}, or " if self.shipped else ""
        article = "an" if self.noun[0] in "aeiou" else "a"
        return (
            f"{self.flag} is {shown(name)}, expected {shipped}<module>:<name> for {article} {self.noun} "
            f"of your own.{hint}"
        )


# The parts themselves are in agent/: what a network is says agent/models/networks.py, what an
# algorithm is agent/algorithms/base.py.
_TORSOS = "ritornello.agent.models.torsos"
NETWORKS: Registry[Any] = Registry(
    "model",
    "network",
    {
        "nature": _TORSOS,
        "impala_shallow": _TORSOS,
        "resnet": _TORSOS,
        "resnet_light": _TORSOS,
        "resnet_small": _TORSOS,
        "elite": _TORSOS,
        "attention": "ritornello.agent.models.attention",
        "mlp": _TORSOS,
    },
)
ALGORITHMS: Registry[Any] = Registry(
    "algorithm",
    "algorithm",
    {
        "impala": "ritornello.agent.algorithms.impala",
        "impact": "ritornello.agent.algorithms.impact",
        "q_lambda": "ritornello.agent.algorithms.q_lambda",
    },
)

# Functions that make a metrics.sinks.Sink of the path of the run folder.
_TRACKERS = "ritornello.agent.run.tracker_sinks"
SINKS: Registry[Any] = Registry(
    "sink", "sink", {"wandb": _TRACKERS, "mlflow": _TRACKERS, "trackio": _TRACKERS}
)


def find_replay_kinds(parameters: Any) -> None:
    """Import the modules that `--replay_parameters` names, so that they register their kinds.

    Raises:
      ConfigError: if a module may not be or cannot be imported, or registers no such kind.
    """
    for kind in types_of_modules(parameters):
        if is_own(kind):
            continue
        check_trusted(kind, flag=REPLAY)
        module = module_of(kind)
        import_module(
            module,
            kind,
            flag=REPLAY,
            rule="Expected module:name, where importing the module registers the kind of replay.",
        )
        if not is_own(kind):
            raise ConfigError(
                f"{REPLAY} has the type {shown(kind)}, but importing {shown_text(module)} registers "
                "no kind of replay of that name, or one whose class is in another module. See "
                "docs/replay.md."
            )


def check_trusted_kinds(parameters: Any, source: str) -> None:
    """Raise ConfigError if `--replay_parameters` names a module that nobody has typed.

    `source` is the file that has the flag, for the message.
    """
    for kind in types_of_modules(parameters):
        if not is_own(kind):
            check_trusted(kind, source, flag=REPLAY)


def checked_sink(names: str) -> str:
    """Return the full names of some sinks, joined with commas, for the flag; "" for none.

    Raises:
      ConfigError: if no sink can have one of these names.
    """
    wanted = [name.strip() for name in names.split(",")] if names else []
    return ",".join(dict.fromkeys(SINKS.full_name(name) for name in wanted))


def checked_model(name: str) -> str:
    """Return the full name of a network, for the flag.

    Raises:
      ConfigError: if no network can have this name.
    """
    return AUTO if name == AUTO else NETWORKS.full_name(name)
