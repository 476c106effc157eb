"""Worlds that come in packages of their own: MuJoCo, Box2D, MiniGrid and ViZDoom.

None of them is needed to run the program, so nothing of them is imported before an environment of
theirs is asked for. This file knows by an id which package it needs, says how to install it, has
its ids registered, and keeps its warnings from the terminal. docs/extra_worlds.md has the table for
users; wrappers/world_views.py has what is shown of MiniGrid and ViZDoom.
"""

from __future__ import annotations

import ctypes.util
import functools
import importlib
import importlib.util
import logging
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import gymnasium

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown, shown_text
from ritornello.core.project import install_extra
from ritornello.wrappers.user_code import RAISED, describe

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class World:
    """A family of environments that needs a package."""

    name: str  # in messages; an extra of pyproject.toml
    package: str  # module by which is seen whether it is installed
    begins: tuple[str, ...]  # beginnings of its entry points, and of ids that are to be registered
    registers: str = ""  # module that registers its ids when it is imported
    quiet: Callable[[], None] | None = None  # called once, before the first environment is made

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
    World("mujoco", "mujoco", ("gymnasium.envs.mujoco",), quiet=_quiet_mujoco),
    World("box2d", "Box2D", ("gymnasium.envs.box2d",), quiet=_quiet_box2d),
    World("minigrid", "minigrid", ("minigrid.", "MiniGrid-", "BabyAI-"), "minigrid"),
    World("vizdoom", "vizdoom", ("vizdoom.", "Vizdoom"), "vizdoom.gymnasium_wrapper"),
)


def world_of(name: str) -> World | None:
    """Return the world of the environment with this id; None if it needs no package of its own.

    An id that is registered belongs to a world by its entry point alone.
    """
    entry = gymnasium.registry.get(name)
    place = name if entry is None else str(entry.entry_point)
    return next((world for world in WORLDS if place.startswith(world.begins)), None)


def prepare_world(name: str) -> None:
    """Make sure that the package of an environment is installed, and its ids are registered.

    Raises:
      ConfigError: if the package is not installed, with the command that installs it, or cannot be
        imported.
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


def draw_without_display() -> None:
    """Let MuJoCo draw pictures without a display, unless the user has chosen a library for it.

    By default it takes GLFW, which needs a display.
    """
    has_display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if has_display or sys.platform != "linux" or importlib.util.find_spec("mujoco") is None:
        return
    if ctypes.util.find_library("EGL"):
        os.environ.setdefault("MUJOCO_GL", "egl")


def is_installed(world: World) -> bool:
    """Whether the package of a world can be imported; it is not imported for that."""
    return importlib.util.find_spec(world.package) is not None


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
