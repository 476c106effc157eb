"""From the name of an environment to what it stands for. No emulator is made here."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import sys
from dataclasses import replace
from inspect import signature
from typing import Any

import gymnasium
from ale_py import roms  # importing ale_py registers the Atari games with Gymnasium
from ale_py.env import AtariEnv
from gymnasium.envs.registration import EnvSpec as GymSpec

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown, shown_text
from ritornello.core.project import install_extra
from ritornello.wrappers.config import ENVPOOL, MAX_EPISODE_FRAMES, EnvConfig
from ritornello.wrappers.env_kwargs import kwargs_of
from ritornello.wrappers.extra_worlds import prepare_world
from ritornello.wrappers.trusted_modules import check_trusted
from ritornello.wrappers.user_code import import_module

NEED_JAX = ("phys2d/", "tabular/")  # ids of Gymnasium whose package is no extra here

ATARI_ENTRY_POINT = "ale_py.env:AtariEnv"
MAX_FRAMES = 2**31 - 1  # more than the fast backends can count: a year of playing
MAX_NEAREST = 4  # ids that a message proposes
GAME_KWARGS = ("mode", "difficulty")  # that --env_kwargs may give to an Atari game
# Arguments that the rules of wrappers/atari.py decide, or that the C++ vector has as well.
ALE_VECTOR_HONOURS = frozenset(signature(AtariEnv).parameters) - set(GAME_KWARGS)


def find_gym_spec(env_id: str) -> GymSpec:
    """Return Gymnasium's entry for `env_id`, which may be `module:id` (imports the module).

    Raises:
      ConfigError: if there is none (the message names the nearest ids), or if the user did not name
        the module (wrappers/trusted_modules.py): then nothing has been imported.
    """
    check_trusted(env_id)
    module_name, colon, name = env_id.rpartition(":")
    if colon:
        import_module(module_name, env_id)
    try:
        prepare_world(name)
    except ConfigError:
        if name not in gymnasium.registry or name not in envpool_worlds():
            raise
    try:
        return gymnasium.spec(name)
    except gymnasium.error.Error as error:
        if not colon and name in envpool_worlds():
            steps = envpool_tasks()[name][2].get("max_episode_steps")
            gymnasium.register(name, vector_entry_point=ENVPOOL, max_episode_steps=steps)
            return gymnasium.spec(name)
        near = _nearest_ids(name)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"Gymnasium says: {error}"
        if colon:  # another module may have been found than the user's
            place = getattr(sys.modules.get(module_name), "__file__", None)
            hint += f" Module {module_name} is {shown_text(str(place))}: it registers no such id."
        elif not near:
            hint += f" If a package registers it, name that: <module>:{shown_text(name)}."
        if not colon and importlib.util.find_spec(ENVPOOL) is None:
            hint += f" Ids of EnvPool alone need its package: {install_extra(ENVPOOL)}."
        raise ConfigError(
            f"env is {shown(env_id)}, expected the id of a registered environment such as "
            f"PongNoFrameskip-v4, ALE/Pong-v5 or CartPole-v1. {hint}"
        ) from error


def check_env_id(env_id: str) -> None:
    """Raise ConfigError if `env_id` is unknown or cannot be honoured as it is named."""
    gym_spec = find_gym_spec(env_id)
    if gym_spec.entry_point != ATARI_ENTRY_POINT:
        return
    if isinstance(game_arguments(env_id)["frameskip"], tuple) and is_atari(env_id):
        raise ConfigError(
            f"env is {shown(env_id)}, which stands for repeating each action a random number of "
            f"times; that is not supported. Use {gym_spec.name}NoFrameskip-v{gym_spec.version} or "
            f"ALE/{gym_spec.name}-v5 and choose the number with --skipped_frames."
        )
    rom = rom_name(env_id)
    if rom not in roms.get_all_rom_ids():
        raise ConfigError(
            f"env is {shown(env_id)}, but ale-py has no ROM named {rom!r}: reinstall ale-py, or "
            f"choose one of the {len(roms.get_all_rom_ids())} games it has."
        )


def problems_of_ids(names: str) -> list[str]:
    """Return one line for each wrong id in `names`, which are joined with commas.

    If one of the ids is of a module, none is checked: the run imports the module first.
    """
    problems = []
    for env_id in names.split(",") if ":" not in names else ():
        try:
            check_env_id(env_id)
        except ConfigError as error:
            problems.append(str(error))
    return problems


def is_atari(env_id: str) -> bool:
    """Whether `env_id` is a known Atari game, so that the Atari rules apply.

    They do not apply to an id that is registered to show the game's memory, to play its sound, or
    to take real numbers: it is used as Gymnasium has it.
    """
    try:
        entry_point = find_gym_spec(env_id).entry_point
    except ConfigError:
        return False
    return entry_point == ATARI_ENTRY_POINT and not beyond_atari_rules(env_id)


def game_arguments(env_id: str) -> dict[str, Any]:
    """Return all arguments with which an id of the Arcade Learning Environment is registered."""
    defaults = {name: each.default for name, each in signature(AtariEnv).parameters.items()}
    return {**defaults, **find_gym_spec(env_id).kwargs}


def beyond_atari_rules(env_id: str) -> str:
    """Return the argument of a game that leaves it without screen or joystick; "" if none does."""
    given = game_arguments(env_id)
    if given["obs_type"] == "ram":
        return "obs_type='ram'"
    return next((f"{name}=True" for name in ("continuous", "sound_obs") if given[name]), "")


def rom_name(env_id: str) -> str:
    """Return the game's ROM as ale-py spells it: "space_invaders" for ALE/SpaceInvaders-v5."""
    return str(game_arguments(env_id)["game"])


def as_registered(config: EnvConfig) -> EnvConfig:
    """Return an Atari `config` that honours what its id stands for beside the ROM.

    Where the config leaves the sticky actions open, the id decides: Machado et al., "Revisiting the
    Arcade Learning Environment" (JAIR 61, 2018) made 0.25 the standard, which v5 (and v0) stand
    for; v4 stands for none. A limit of the id's own, other than the usual one, holds where the
    config has none of its own or a longer one. Gymnasium counts `max_episode_steps` in steps of
    `frameskip` frames.
    """
    given, steps = game_arguments(config.env_id), find_gym_spec(config.env_id).max_episode_steps
    own = [given["max_num_frames_per_episode"], steps and steps * given["frameskip"]]
    limits = [frames for frames in own if frames and frames != MAX_EPISODE_FRAMES]
    if config.max_episode_frames != MAX_EPISODE_FRAMES or not limits:
        limits.append(config.max_episode_frames)
    sticky = config.sticky_action_probability
    return replace(
        config,
        sticky_action_probability=(
            float(given["repeat_action_probability"]) if sticky is None else sticky
        ),
        full_action_space=config.full_action_space or bool(given["full_action_space"]),
        max_episode_frames=min(*limits, MAX_FRAMES),
    )


def beyond_ale_vector(config: EnvConfig) -> str:
    """Return the argument of a game that the fast backend cannot honour; "" if there is none."""
    gym_spec = find_gym_spec(config.env_id)
    given = {**gym_spec.kwargs, **kwargs_of(config.kwargs)}
    wrappers = [each.name for each in gym_spec.additional_wrappers or ()]
    given["additional_wrappers"] = wrappers or None
    return ", ".join(
        f"{name}={shown(value)}"
        for name, value in given.items()
        if value is not None and name not in ALE_VECTOR_HONOURS
    )


def check_game_kwargs(config: EnvConfig) -> None:
    """Raise ConfigError if `config.kwargs` of an Atari game has what flags or rules decide."""
    wrong = [name for name in kwargs_of(config.kwargs) if name not in GAME_KWARGS]
    if wrong:
        raise ConfigError(
            f"env_kwargs gives {', '.join(map(shown_text, wrong))}, expected only "
            f"{' and '.join(GAME_KWARGS)} for {config.env_id}: the rest of an Atari game is chosen "
            "with flags, such as --skipped_frames and --max_episode_frames (--help=all). Another "
            "environment is chosen with --env."
        )


def all_atari_ids() -> list[str]:
    """Return every NoFrameskip-v4 game whose ROM ale-py has, in alphabetical order."""
    available = set(roms.get_all_rom_ids())
    return sorted(
        env_id
        for env_id, entry in gymnasium.registry.items()
        if entry.entry_point == ATARI_ENTRY_POINT
        and env_id.endswith("NoFrameskip-v4")
        and entry.kwargs["game"] in available
    )


def _nearest_ids(name: str) -> list[str]:
    """Return MAX_NEAREST usable ids at most that look like `name` in any case, best first."""
    usable = {
        env_id.lower(): env_id
        for env_id, entry in gymnasium.registry.items()
        if not isinstance(entry.kwargs.get("frameskip"), tuple)
        and not env_id.startswith(NEED_JAX)
        # Gymnasium keeps the ids of what it has given up, as functions that raise.
        and not getattr(entry.entry_point, "__name__", "").startswith("_raise")
    }
    usable |= {env_id.lower(): env_id for env_id in envpool_worlds()}
    asked = name.lower()
    near = difflib.get_close_matches(asked, usable, n=2 * MAX_NEAREST)
    # "pong" is no near spelling of "PongNoFrameskip-v4" by letters, but its beginning.
    stem = asked.split("-v")[0]
    begun = [key for key in usable if stem and key.split("/")[-1].startswith(stem)]
    return [usable[key] for key in dict.fromkeys([*begun[::-1], *near])][:MAX_NEAREST]


@functools.cache
def envpool_tasks() -> dict[str, tuple[str, Any, dict[str, Any]]]:
    """Import EnvPool; return id -> (module, class, arguments).

    Raises:
      ConfigError: if EnvPool cannot be imported.
    """
    try:
        importlib.import_module(ENVPOOL)
        return importlib.import_module("envpool.registration").registry.specs
    except ImportError as error:
        raise ConfigError(
            f"backend is envpool, and the package envpool cannot be imported ({error}): "
            f"{install_extra(ENVPOOL)}."
        ) from error


@functools.cache
def envpool_worlds() -> frozenset[str]:
    """Return EnvPool's ids that are no Atari games; none if EnvPool is not installed."""
    if importlib.util.find_spec(ENVPOOL) is None:
        return frozenset()
    return frozenset(
        name for name, (module, *_) in envpool_tasks().items() if module != "envpool.atari"
    )


def envpool_task(env_id: str, rom: str | None) -> str:
    """Return EnvPool's id of a game; `rom` is None unless it is an Atari game.

    Raises:
      ConfigError: if EnvPool is not installed, or has no such environment.
    """
    named = [env_id] if env_id in envpool_tasks() else []
    if rom is not None:
        named = [
            name for name, (*_, kwargs) in envpool_tasks().items() if kwargs.get("task") == rom
        ]
    if not named:
        raise ConfigError(
            f"backend is envpool, and env is {shown(env_id)}, which is none of the "
            f"{len(envpool_tasks())} ids of EnvPool (envpool.list_all_envs()). Use backend auto."
        )
    return named[0]
