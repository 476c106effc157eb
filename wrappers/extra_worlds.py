"""Worlds that come in packages of their own: MuJoCo, Box2D, MiniGrid and ViZDoom.

None of them is needed to run the program, so nothing of them is imported before an environment of
theirs is asked for. This file knows by an id which package it needs, says how to install it, has
its ids registered, and keeps its warnings from the terminal. docs/extra_worlds.md has the table for
users; wrappers/world_views.py has what is shown of MiniGrid and ViZDoom.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import gymnasium

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown, shown_text
from ritornello.core.project import install_extra
from ritornello.wrappers.user_code import RAISED, describe
from ritornello.wrappers.world_views import Screens, SymbolsAsVector

log = logging.getLogger(__name__)

View = Callable[[gymnasium.Env], gymnasium.Env]


@dataclass(frozen=True)
class World:
    """A family of environments that needs a package."""

    name: str  # in messages; an extra of pyproject.toml
    package: str  # module by which is seen whether it is installed
    ids: tuple[str, ...] = ()  # beginnings of its ids, if importing `registers` registers them
    registers: str = ""
    entry_point: str = ""  # beginning of the entry points, if Gymnasium itself has the ids
    quiet: Callable[[], None] | None = None  # called once, before the first environment is made
    view: View | None = None  # what is shown of it; None: what it shows

    @property
    def install(self) -> str:
        """The command that installs it."""
        return install_extra(self.name)


def _quiet_mujoco() -> None:
    """Let MuJoCo warn through the log of the program, each thing once.

    By itself it writes to the terminal and to a file MUJOCO_LOG.TXT in the working directory, for
    each environment that is made: Gymnasium's models use an attribute that MuJoCo 4 deprecates.
    """
    mujoco = importlib.import_module("mujoco")
    told: set[str] = set()

    def tell(text: str) -> None:
        if text not in told:
            told.add(text)
            log.info("MuJoCo: %s", shown_text(" ".join(text.split()), 300))

    mujoco.set_mju_user_warning(tell)


def _quiet_box2d() -> None:
    """Import Box2D, whose SWIG types lack a __module__, which Python 3.12 and later warn of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        importlib.import_module("Box2D")


WORLDS = (
    World("mujoco", "mujoco", entry_point="gymnasium.envs.mujoco", quiet=_quiet_mujoco),
    World("box2d", "Box2D", entry_point="gymnasium.envs.box2d", quiet=_quiet_box2d),
    World(
        "minigrid",
        "minigrid",
        ids=("MiniGrid-", "BabyAI-"),
        registers="minigrid",
        view=SymbolsAsVector,
    ),
    World(
        "vizdoom", "vizdoom", ids=("Vizdoom",), registers="vizdoom.gymnasium_wrapper", view=Screens
    ),
)


def world_of(name: str) -> World | None:
    """Return the world of an environment; None if it needs no package of its own.

    Args:
      name: id of one environment, without a module. It need not be registered.
    """
    entry = gymnasium.registry.get(name)
    place = str(entry.entry_point) if entry is not None else ""
    for world in WORLDS:
        by_place = world.entry_point and place.startswith(world.entry_point)
        if by_place or name.startswith(world.ids or ("\0",)):
            return world
    return None


def prepare_world(name: str) -> None:
    """See that the package of an environment is there, and that its ids are registered.

    Raises:
      ConfigError: if it is not installed, with the command that installs it, or cannot be imported.
    """
    world = world_of(name)
    if world is None:
        return
    if not is_installed(world):
        raise ConfigError(
            f"env is {shown(name)}, which needs the package {world.package}, and it is not "
            f"installed here: {world.install} (docs/extra_worlds.md), or choose another one."
        )
    _load(world)


def is_installed(world: World) -> bool:
    """Whether the package of a world can be imported; it is not imported for that."""
    return importlib.util.find_spec(world.package) is not None


def as_shown(name: str, env: gymnasium.Env) -> gymnasium.Env:
    """Return an environment as it is learned from, if its world has a view of its own."""
    world = world_of(name)
    return env if world is None or world.view is None else world.view(env)


@functools.cache
def _load(world: World) -> None:
    try:
        if world.quiet is not None:
            world.quiet()
        if world.registers:
            importlib.import_module(world.registers)
    except RAISED as error:
        raise ConfigError(
            f"package {world.package} raised {describe(error, 'while it was imported')}. Expected "
            f"the version that {world.install} installs."
        ) from error
