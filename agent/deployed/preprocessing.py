"""What stands between an environment and the inputs of an exported network, as JSON.

A script that reads it can show the network what the agent was shown in training, and do what it
says. Whatever concerns an observation alone, such as its normalisation, is in the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from ritornello.agent.assembly import Blueprint
from ritornello.agent.deployed.graph import MASK, ActingGraph, Port
from ritornello.agent.testing.player import game_config
from ritornello.core.spec import EnvSpec
from ritornello.wrappers.action_masks import choices_in, mask_taken_out
from ritornello.wrappers.atari import numbers_of
from ritornello.wrappers.batch_env import kwargs_of_one
from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.env_ids import as_registered, find_gym_spec, is_atari
from ritornello.wrappers.env_kwargs import kwargs_of
from ritornello.wrappers.images import channel_axes, is_image_space
from ritornello.wrappers.registry import make_as_it_is, runnable
from ritornello.wrappers.spaces import leaves

PREPROCESSING = "preprocessing.json"
# What the arguments of AtariVectorEnv mean, for who makes frames by other means.
ATARI_RULES = {
    "frameskip": "shown is the pixel-wise maximum of the last two; a game's first frame alone",
    "grayscale": "round(0.2989 red + 0.587 green + 0.114 blue); else RGB, channels first",
    "img_height, img_width": "resized by averaging areas (cv2.INTER_AREA), after the maximum",
    "use_fire_reset": "FIRE, if the game has it, is pressed for one frame at its start",
    "noop_max": "then NOOP up to a frame drawn from 0 to noop_max - 1, that of FIRE counted",
}


def preprocessing(blueprint: Blueprint, graph: ActingGraph, network: str) -> dict[str, Any]:
    """Return the content of `preprocessing.json`, as JSON types; `network` is a file name.

    `blueprint` makes an environment that is not Atari's, to read its spaces.
    """
    spec = blueprint.env_spec
    return {
        "format_version": 1,
        "network": network,
        "inputs": _described(graph.inputs),
        "outputs": _described(graph.outputs),
        "normalisation": "in the network: it takes observations as they are",
        "frame_stack": {
            "count": spec.frames_stacked,
            "order": "oldest first, joined along the first axis",
            "before_the_start_of_a_game": 0,
        },
        "games": [
            {"task_id": number, "env_id": env_id, **_game(blueprint, graph, env_id)}
            for number, env_id in enumerate(spec.tasks)
        ],
    }


def _described(ports: Mapping[str, Port]) -> dict[str, Any]:
    return {name: {**p._asdict(), "shape": ["batch", *p.shape]} for name, p in ports.items()}


def _game(blueprint: Blueprint, graph: ActingGraph, env_id: str) -> dict[str, Any]:
    spec = blueprint.env_spec
    config = runnable(game_config(blueprint, env_id), spec)
    if is_atari(env_id):
        return _atari(as_registered(config), spec)
    if find_gym_spec(env_id).entry_point is None:  # a vector alone: its spaces are not told
        return {
            "env_kwargs": kwargs_of(config.kwargs),
            MASK: "...",
            "observation": [],
            "action": [],
        }
    with closing(make_as_it_is(config)) as env:
        inputs = [name for name in graph.inputs if name.startswith("obs")]
        said: dict[str, Any] = {"env_kwargs": kwargs_of_one(config)}
        if spec.has_action_mask:
            said[MASK] = _masks(env)
        if env.has_wrapper_attr("left_out"):  # a view of wrappers/world_views.py
            said["view"] = (type(env).__doc__ or "").splitlines()[0]
        return {**said, "observation": _observation(env, spec, inputs), "action": _action(env)}


def _masks(env: gymnasium.Env) -> str:
    """Return the expression of an environment's action masks, for a script that plays it.

    The environment is reset: its first mask tells how it gives them.
    """
    shown = mask_taken_out(env)
    _, info = shown.reset()
    name = "action_masks"
    method = shown.get_wrapper_attr(name) if shown.has_wrapper_attr(name) else None
    if callable(method):
        given, where = method(), f"env.get_wrapper_attr({name!r})()"
    else:
        given, where = info.get(MASK), f"info[{MASK!r}]"
    if shown is not env:
        where = f"observation[{MASK!r}]"
    paths = dict.fromkeys(path for path, _ in choices_in(env.action_space, given))
    if [*paths] == [""]:
        return where
    return f"[{', '.join(f'np.hstack({where}{path})' for path in paths)}]"


def _atari(config: EnvConfig, spec: EnvSpec) -> dict[str, Any]:
    from ritornello.wrappers.ale_vector import vector_arguments

    meanings = spec.action_meanings
    return {
        # ale_py.vector_env.AtariVectorEnv(num_envs=..., **these) does what the rules say.
        "atari_vector_env": vector_arguments(config),
        "action_meanings": list(meanings),
        "action_numbers": numbers_of(meanings) if config.actions else list(range(len(meanings))),
        "rules": ATARI_RULES,
    }


def _observation(env: gymnasium.Env, spec: EnvSpec, inputs: list[str]) -> list[dict[str, Any]]:
    """Return how each leaf of an observation is prepared, in the order of its numbers."""
    by_part = dict(zip((part.name for part in spec.observation_parts), inputs, strict=False))
    said = (getattr(env, "metadata", None) or {}).get("channels")
    shown, alone, found = mask_taken_out(env), "", []
    if shown is not env:
        others = [name for name in env.observation_space if name != MASK]  # type: ignore[attr-defined]
        alone = f"[{others[0]!r}]" if len(others) == 1 else ""
    for path, leaf in leaves(shown.observation_space):
        name, shape = by_part.get(path, inputs[0]), list(leaf.shape or ())
        entry: dict[str, Any] = {"input": name, "path": alone + path, "shape": shape}
        entry["kind"] = "numbers"
        if is_image_space(leaf):
            entry |= {"kind": "image", "channel_axes": list(channel_axes(leaf.shape, said))}
        elif isinstance(leaf, (Discrete, MultiDiscrete)):
            counts = np.ravel(leaf.n if isinstance(leaf, Discrete) else leaf.nvec)
            starts = np.broadcast_to(np.ravel(leaf.start), counts.shape)
            entry |= {"kind": "one_hot", "counts": counts.tolist(), "starts": starts.tolist()}
        found.append(entry)
    return found


def _action(env: gymnasium.Env) -> list[dict[str, Any]]:
    """Return how each leaf of an action follows from columns of the network's output."""
    found, column = [], 0
    for path, leaf in leaves(env.action_space):
        width = int(np.prod(leaf.shape or ()))
        entry: dict[str, Any] = {
            "path": path,
            "shape": list(leaf.shape or ()),
            "columns": [column, column + width],
        }
        if isinstance(leaf, Box):
            low, high = (np.nan_to_num(end).ravel().tolist() for end in (leaf.low, leaf.high))
            found.append({**entry, "kind": "numbers", "low": low, "high": high})
        else:
            start = 0 if isinstance(leaf, MultiBinary) else np.asarray(leaf.start).tolist()
            found.append({**entry, "kind": "choice", "start": start})
        column += width
    return found
