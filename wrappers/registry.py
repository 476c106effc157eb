"""The factory: from an EnvConfig to a spec and to environments.

Several backends can run Atari. `auto` takes the fast one wherever it can, and says why elsewhere.
Vectors of Gymnasium and EnvPool's are wrappers/batch_env.py's.
"""

from __future__ import annotations

import functools
import json
import math
import shlex
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

import ale_py
import gymnasium
import numpy as np

from ritornello.core.errors import ConfigError, EnvironmentFault
from ritornello.core.kept_settings import settings_kept
from ritornello.core.process_death import started_in_here_ended
from ritornello.core.spec import EnvSpec
from ritornello.wrappers.atari import action_meanings, make_atari_env
from ritornello.wrappers.batch_env import batch_backend, kwargs_of_one, make_batch
from ritornello.wrappers.config import FRAMES_PER_S, BackendChoice, EnvConfig
from ritornello.wrappers.env_ids import (
    ATARI_ENTRY_POINT,
    as_registered,
    beyond_ale_vector,
    beyond_atari_rules,
    check_env_id,
    check_game_kwargs,
    find_gym_spec,
    is_atari,
)
from ritornello.wrappers.env_kwargs import kwargs_of
from ritornello.wrappers.extra_worlds import draw_without_display, prepare_world
from ritornello.wrappers.trusted_modules import check_trusted_kwargs
from ritornello.wrappers.user_code import RAISED, told_if_slow, told_in_one_line
from ritornello.wrappers.vector import EnvVector

MIN_RATE, MAX_RATE = 0.1, 1000.0  # of pictures per second: others are a mistake


@dataclass(frozen=True)
class Backend:
    """Which implementation runs the environments, and why."""

    name: str  # ale_vector | gymnasium | gymnasium_vector | envpool
    reason: str


def choose_backend(
    config: EnvConfig, *, restorable: bool = False, render_mode: str | None = None
) -> Backend:
    """Return the backend for `config`; the fast one unless something asked for needs the other.

    Raises:
      ConfigError: if `config.backend` insists on the fast one and it cannot do what is asked, or
        the id is unknown.
    """
    obstacle, batch = None, ""
    for game in config.games:
        check_env_id(game.env_id)
        if is_atari(game.env_id):
            check_game_kwargs(game)
        batch = batch or batch_backend(game, render_mode)
        obstacle = obstacle or _obstacle_to_ale_vector(game, restorable, render_mode)
    if batch:
        asked = config.backend == batch
        return Backend(batch, "asked for" if asked else "the id stands for a vector")
    if config.backend not in ("auto", "ale_vector"):  # a vector has no pictures
        return Backend("gymnasium", "asked for")
    if obstacle is None:
        return Backend("ale_vector", "asked for" if config.backend == "ale_vector" else "fastest")
    if config.backend == "ale_vector":
        raise ConfigError(
            f"backend is ale_vector, but {obstacle}. Use backend auto or gymnasium instead."
        )
    return Backend("gymnasium", obstacle)


@functools.cache
def make_env_spec(config: EnvConfig) -> EnvSpec:
    """Make environments, once per config until `forget_tried`, and return the spec that they show.

    Raises:
      ConfigError: if an id is unknown, its spaces are not supported, a package that it needs is not
        installed, or several games do not show alike.
    """
    own = [_own_spec(replace(game, actions=())) for game in config.games]
    if len(own) == 1 and not config.actions:
        return own[0]
    from ritornello.wrappers.task_vector import common_spec

    return common_spec(config, own)


def _own_spec(config: EnvConfig) -> EnvSpec:
    """Return the spec of one game, with its own actions."""
    if is_atari(config.env_id):
        return _atari_spec(config)
    spec = tried(config.env_id, config.kwargs, config.backend).spec
    return replace(spec, frames_stacked=config.frames_stacked) if spec.shows_images else spec


@functools.cache
def _atari_spec(config: EnvConfig) -> EnvSpec:
    """Read the spec of a game of Atari off an environment."""
    with _made_for_once(config) as env:
        return EnvSpec(
            env_id=config.env_id,
            frame_shape=tuple(env.observation_space.shape or ()),
            frame_dtype="uint8",
            frames_stacked=config.frames_stacked,
            action_meanings=tuple(action_meanings(env)),
            action_repeat=config.action_repeat,
        )


class Trial(NamedTuple):
    """What is known of an environment after one step."""

    spec: EnvSpec  # of single frames
    left_out: tuple[str, ...] = ()  # the parts of an observation that the agent is not shown
    vector: str = ""  # which vector of Gymnasium's it is, in a few words


@functools.cache
def tried(env_id: str, kwargs: str = "", backend: BackendChoice = "auto") -> Trial:
    """Make an environment that is not Atari's, two if it is a vector; do one step and close it.

    A mistake is reported here more clearly than by workers.

    Raises:
      ConfigError: if there is no such environment, it raises an exception, or breaks its spaces.
    """
    from ritornello.wrappers.gym_vector import GymVector
    from ritornello.wrappers.plain_env import PlainEnv
    from ritornello.wrappers.world_views import left_out_of

    config = EnvConfig(env_id, kwargs=kwargs, backend=backend)
    told = told_in_one_line(env_id, "when it was tried out")
    if batch_backend(config):
        with tidied(env_id), told, closing(make_batch(config, [0, 1])) as batch:
            batch.reset()
            _step_once(batch)
            return Trial(batch.spec, vector=batch.describe())
    with _made_for_once(config) as env, told:
        assert isinstance(env, PlainEnv)
        vector = GymVector(env.env_spec, lambda: env, [0], looks_for_masks=True)
        vector.reset()
        _step_once(vector)
        return Trial(vector.spec, left_out_of(env))


def _step_once(vector: EnvVector) -> None:
    """Do the first action that is allowed."""
    from ritornello.wrappers.action_masks import all_allowed

    actions = vector.spec.actions
    first = np.zeros((vector.num_envs, *actions.shape), actions.dtype)
    vector.step(all_allowed(first, vector.action_mask, actions))


def check_rendering(config: EnvConfig, render_mode: str) -> None:
    """Raise ConfigError unless an environment of one game can be made, and shown, in this mode.

    With "rgb_array" a picture is asked for; "human" would open a window.
    """
    from ritornello.wrappers.images import picture_of

    choose_backend(config, render_mode=render_mode)
    with _made_for_once(config, render_mode) as env:
        if render_mode == "human":
            return
        with told_in_one_line(config.env_id, "when it was asked for a picture"):
            env.reset(seed=0)
            picture = env.render()
        try:
            picture_of(picture)
        except EnvironmentFault as fault:
            raise ConfigError(
                f"env {config.env_id}: {fault} Leave out --render, or let the environment draw one "
                "with render_mode='rgb_array'."
            ) from fault


@functools.cache
def steps_per_s(config: EnvConfig) -> float:
    """Return how many steps of one game a film shows in a second, for its natural speed.

    An environment gives its own in metadata["render_fps"]; others run at the speed of consoles.

    Raises:
      ConfigError: if the environment cannot be made, which is done once per config.
    """
    if is_atari(config.env_id):
        return FRAMES_PER_S / config.action_repeat
    with _made_for_once(config) as env:
        said: Any = (getattr(env, "metadata", None) or {}).get("render_fps")
    try:
        rate = float(said)
    except (TypeError, ValueError):
        return FRAMES_PER_S
    return rate if MIN_RATE <= rate <= MAX_RATE else FRAMES_PER_S


def forget_tried() -> None:
    """Have environments made and read anew: in a notebook they are edited and registered again."""
    for kept in (make_env_spec, _atari_spec, tried, steps_per_s):
        kept.cache_clear()


def max_game_steps(config: EnvConfig) -> int | None:
    """Return after how many agent steps Gymnasium or a rule ends a game; None: no limit."""
    if not is_atari(config.env_id):
        own = find_gym_spec(config.env_id).max_episode_steps
        steps = kwargs_of(config.kwargs).get("max_episode_steps") or own
        return steps if isinstance(steps, int) and steps > 0 else None
    return math.ceil(as_registered(config).max_episode_frames / config.action_repeat)


def advice_on_limit(config: EnvConfig) -> str:
    """Return how to give games a limit of steps; "" if they have one."""
    if max_game_steps(config) is not None:
        return ""
    kwargs = json.dumps({**kwargs_of(config.kwargs), "max_episode_steps": 1000})
    return (
        f"{config.env_id} has no limit of steps, so its games may never end; "
        f"--env_kwargs={shlex.quote(kwargs)} ends each after 1,000"
    )


@contextmanager
def tidied(env_id: str) -> Iterator[None]:
    """Undo what environments in the body change in this process, and end processes they start."""
    with settings_kept(), started_in_here_ended(), told_if_slow(env_id):
        yield


@contextmanager
def _made_for_once(config: EnvConfig, render_mode: str | None = None) -> Iterator[gymnasium.Env]:
    """Yield one environment and close it; an exception of it becomes a ConfigError."""
    make_env = _env_maker(config, render_mode)
    with tidied(config.env_id):
        with told_in_one_line(config.env_id, "when it was made"), warnings.catch_warnings():
            if render_mode is not None:
                warnings.simplefilter("ignore")  # of a mode that it does not list: asked below
            env = make_env()
        with _closed_if_refused(env):
            yield env
        with told_in_one_line(config.env_id, "when it was closed"):
            env.close()


def make_env_vector(
    config: EnvConfig,
    num_envs: int,
    seeds: Sequence[int],
    *,
    tasks: Sequence[int] | None = None,
    restorable: bool = False,
    render_mode: str | None = None,
    threads: int = 1,
) -> EnvVector:
    """Make E environments that are stepped together.

    Args:
      config: which environments, and what they show.
      num_envs: E, number of environments.
      seeds: E root seeds; equal seeds give equal games with the same backend.
      tasks: number of the game that each environment plays, by default the first. Neighbours that
        play the same game are cheapest.
      restorable: make a vector with a `state_dict`, which needs Gymnasium.
      render_mode: "human" or "rgb_array"; needs Gymnasium.
      threads: number of threads that step the environments, if the backend can use them.

    Raises:
      ConfigError: if the environment is unknown or not supported.
    """
    tasks = [0] * num_envs if tasks is None else list(tasks)
    assert len(seeds) == len(tasks) == num_envs, "a seed and a task for each environment"
    games = config.games
    backend = choose_backend(config, restorable=restorable, render_mode=render_mode)
    spec = make_env_spec(config)
    parts: list[EnvVector] = []
    start = 0
    with settings_kept():
        for task, run in groupby(tasks):
            end = start + len(list(run))
            game, own = runnable(games[task], spec), seeds[start:end]
            game_spec, start = replace(spec, env_id=game.env_id), end
            if batch_backend(game, render_mode):
                game = as_registered(game) if is_atari(game.env_id) else game
                parts.append(make_batch(game, own, game_spec, restorable, threads))
            elif backend.name == "ale_vector":
                from ritornello.wrappers.ale_vector import AleVector  # a build may be without it

                parts.append(AleVector(game_spec, as_registered(game), own, threads))
            else:
                from ritornello.wrappers.gym_vector import GymVector

                make_env = _env_maker(game, render_mode)
                parts.append(GymVector(game_spec, make_env, own, restorable=restorable))
    if len(parts) == 1:
        return parts[0]
    from ritornello.wrappers.task_vector import TaskVector

    return TaskVector(spec, parts)


def make_single_env(config: EnvConfig, render_mode: str | None = None) -> gymnasium.Env:
    """Make one environment as a model sees it: it shows single frames of the run's EnvSpec.

    Raises:
      ConfigError: if the environment is unknown or not supported.
    """
    return _env_maker(runnable(config.games[0], make_env_spec(config)), render_mode)()


def runnable(game: EnvConfig, spec: EnvSpec) -> EnvConfig:
    """Return the config of one game with the agent's actions; () if they are the game's own.

    Whether FIRE is pressed at the start of a game depends on its own actions, so that it starts as
    it does when it is played alone.
    """
    own, actions = _own_spec(replace(game, actions=())), spec.action_meanings
    if actions == own.action_meanings:
        return replace(game, actions=())
    fire = game.fire_reset and "FIRE" in own.action_meanings
    return replace(game, full_action_space=True, fire_reset=fire, actions=actions)


def _obstacle_to_ale_vector(
    game: EnvConfig, restorable: bool, render_mode: str | None
) -> str | None:
    """Return why the C++ vector cannot do what is asked; None if it can."""
    if not is_atari(game.env_id):
        is_atari_env = find_gym_spec(game.env_id).entry_point == ATARI_ENTRY_POINT
        why = (
            f"made with {beyond_atari_rules(game.env_id)}" if is_atari_env else "not an Atari game"
        )
        return f"{game.env_id} is {why}"
    own = beyond_ale_vector(game)
    if own:
        return f"{game.env_id} is made with {own}, which ale_vector cannot honour"
    if not hasattr(ale_py, "ALEVectorInterface"):
        return "this build of ale-py has no vector environment"
    if restorable:
        return "environments that can be restored are asked for, and ale_vector has none"
    if render_mode is not None:
        return f"render_mode {render_mode} is asked for, and ale_vector cannot render"
    return None


def _env_maker(config: EnvConfig, render_mode: str | None = None) -> Callable[[], gymnasium.Env]:
    """Return a function that makes one environment showing single frames."""
    check_env_id(config.env_id)
    if is_atari(config.env_id):
        atari_config = as_registered(config)
        return lambda: make_atari_env(atari_config, render_mode)
    check_trusted_kwargs(config.kwargs)
    from ritornello.wrappers.plain_env import PlainEnv

    if find_gym_spec(config.env_id).entry_point is None:
        raise ConfigError(f"env {config.env_id} is a vector alone, with none to be had singly.")

    def make_env() -> gymnasium.Env:
        env = make_as_it_is(config, render_mode)
        with _closed_if_refused(env):
            return PlainEnv(env, config.env_id)

    return make_env


def make_as_it_is(config: EnvConfig, render_mode: str | None = None) -> gymnasium.Env:
    """Make an environment that is not Atari's, with its own observations and actions."""
    # Some environments know no render_mode, so it is only named where it is wanted. Gymnasium's
    # checker would look at each observation; the spaces are checked once.
    options: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
    prepare_world(config.env_id.rpartition(":")[2])
    if render_mode == "rgb_array":
        draw_without_display()
    options |= kwargs_of_one(config)
    env = gymnasium.make(config.env_id, disable_env_checker=True, **options)
    with _closed_if_refused(env):
        from ritornello.wrappers.world_views import as_shown

        return as_shown(env)


@contextmanager
def _closed_if_refused(env: gymnasium.Env) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(*RAISED):  # the first error is the one to tell
            env.close()
        raise
