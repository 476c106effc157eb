"""Vectors of Gymnasium, by `gymnasium.make_vec`, and which ids are run as such.

`--env_backend=gymnasium_vector` asks for it, and an id that is registered with a
`vector_entry_point` alone needs it. `--env_kwargs` may hold all that `make_vec` takes as plain
data: `{"vectorization_mode": "sync", "vector_kwargs": {"autoreset_mode": "SameStep"}}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.vector import VectorEnv

from ritornello.core.errors import ConfigError
from ritornello.core.spec import EnvSpec
from ritornello.wrappers.config import ENVPOOL, EnvConfig
from ritornello.wrappers.env_ids import (
    beyond_ale_vector,
    envpool_task,
    find_gym_spec,
    is_atari,
    rom_name,
)
from ritornello.wrappers.env_kwargs import kwargs_of
from ritornello.wrappers.trusted_modules import check_trusted_kwargs

if TYPE_CHECKING:  # what Atari does not need is loaded where it is used
    from ritornello.wrappers.batch_vector import BatchVector

GYMNASIUM_VECTOR = "gymnasium_vector"
BATCH_BACKENDS = (GYMNASIUM_VECTOR, ENVPOOL)
OF_VECTORS = ("vectorization_mode", "vector_kwargs")  # arguments of `make_vec` itself


def batch_backend(game: EnvConfig, render_mode: str | None = None) -> str:
    """Return gymnasium_vector or envpool if one call steps all environments of a game, else "".

    Pictures are drawn by one environment of Gymnasium's where the id stands for that too.

    Raises:
      ConfigError: if the id is unknown, or a vector cannot do what is asked.
    """
    entry, backend = find_gym_spec(game.env_id), str(game.backend)
    if entry.vector_entry_point == ENVPOOL:
        backend = ENVPOOL  # which alone has the id
    elif backend not in BATCH_BACKENDS:
        if entry.entry_point is not None:
            return ""
        backend = GYMNASIUM_VECTOR
    if render_mode is not None:
        if entry.entry_point is not None:
            return ""
        raise ConfigError(f"env {game.env_id} is a vector alone, of which no pictures are drawn.")
    if backend == ENVPOOL:
        envpool_task(game.env_id, _rom(game))  # raises what is wrong before workers are started
    if is_atari(game.env_id):
        beyond = beyond_ale_vector(replace(game, kwargs=""))
        if backend == GYMNASIUM_VECTOR or beyond:
            raise ConfigError(
                f"backend is {backend}, which cannot make {game.env_id} by the rules of Atari"
                f"{' with ' * bool(beyond)}{beyond}. Use backend auto or gymnasium instead."
            )
    return backend


def kwargs_of_one(game: EnvConfig) -> dict[str, Any]:
    """Return the arguments with which one environment of a game is made, to draw pictures."""
    left_out = OF_VECTORS if game.backend == GYMNASIUM_VECTOR else ()
    return {name: each for name, each in kwargs_of(game.kwargs).items() if name not in left_out}


def make_batch(
    game: EnvConfig,
    seeds: Sequence[int],
    spec: EnvSpec | None = None,
    restorable: bool = False,
    threads: int = 1,
) -> BatchVector:
    """Make one vector of environments of a game; the arguments are those of `BatchVector`."""
    from ritornello.wrappers.batch_vector import BatchVector

    make = partial(_make, game, threads)
    return BatchVector(make, game.env_id, seeds, spec, restorable)


def _rom(game: EnvConfig) -> str | None:
    return rom_name(game.env_id) if is_atari(game.env_id) else None


def _make(game: EnvConfig, threads: int, count: int) -> VectorEnv:
    check_trusted_kwargs(game.kwargs)
    kwargs, entry = kwargs_of(game.kwargs), find_gym_spec(game.env_id)
    if batch_backend(game) == ENVPOOL:
        from ritornello.wrappers.envpool_env import AtariPool, Pool

        task = envpool_task(game.env_id, _rom(game))
        pool = {**kwargs, "num_envs": count, "num_threads": threads}
        return AtariPool(task, pool, game) if is_atari(game.env_id) else Pool(task, pool)
    mode = kwargs.get("vectorization_mode") or entry.kwargs.get("vectorization_mode")
    options: dict[str, Any] = {}
    if mode in ("sync", "async") or (mode is None and entry.vector_entry_point is None):
        from ritornello.wrappers.world_views import as_shown

        options = {"disable_env_checker": True, "wrappers": (as_shown,)}
    return gymnasium.make_vec(game.env_id, count, **options, **kwargs)
