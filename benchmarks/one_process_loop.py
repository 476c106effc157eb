"""The simplest honest rival: the platform's own parts in one process, one after the other.

All games in one fast vector, the same network, precision, allocator settings, batch and V-trace as
a training; no worker processes, no rings, no replay, no cache, and no threads but those that torch
spreads an operator over. What a training gains over it is what the distributed design is worth.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from benchmarks.bench_end_to_end import flag_values
from ritornello.agent.acting.acting_model import ActingModel
from ritornello.agent.acting.actor import Actor, LocalActor
from ritornello.agent.acting.lane import Lane
from ritornello.agent.acting.rollout import Rollout
from ritornello.agent.assembly import Blueprint, env_config
from ritornello.agent.learning.feed import Feed
from ritornello.agent.machine import cpu_count
from ritornello.flags.options import Flags
from ritornello.replay.item import Draw, Item
from ritornello.transport.weights import WeightBoard
from ritornello.wrappers.registry import make_env_vector

GAMES = 16


def loop_flags(env: str, games: int = GAMES) -> dict[str, Any]:
    """Return the flags of the loop, as option_flags.Flags takes them: the "queue" benchmark's."""
    more = argparse.Namespace(env=env, flags=["--device=cpu"])
    # One share per batch: here torch has the cores, operator by operator.
    return flag_values("queue", more) | {"batch_size": games, "learner_thread_count": 1}


def updates(flags: dict[str, Any], games: int = GAMES) -> Iterator[int]:
    """Act, step and learn in turn, for ever; torch's threads of this process are set to all cores.

    Args:
      flags: those of `loop_flags`; one batch is one unroll of each game.
      games: E, number of environments.

    Yields:
      The agent steps that were learned from, in all, after each update.
    """
    torch.set_num_threads(cpu_count())
    blueprint = Blueprint.draw(Flags(**flags))
    schema, learner = blueprint.schema, blueprint.learner()
    board = WeightBoard(blueprint.acting_weights.nbytes)
    model, _ = blueprint.acting_model()
    acting = ActingModel(model, blueprint.acting_weights, board)
    config, seeds = env_config(blueprint.flags), list(range(games))
    env = make_env_vector(config, games, seeds, threads=cpu_count())
    actor = LocalActor(Actor(model, 0, with_features=False), acting)
    feed = Feed(schema, blueprint.choices.device)
    records = schema.allocate(games)
    steps = 0
    # The batch reads `records` where they were written: nothing acts while it learns.
    draws = [Draw(Item(i, r, "none", 0, 0), 0, r, is_online=True) for i, r in enumerate(records)]
    group = Lane(env, actor, task_id=np.zeros(games, np.int64))
    rollout = Rollout([group], schema, worker_id=0)
    while True:
        with board.write(learner.version) as block:
            blueprint.acting_weights.pack(learner.model, block)
        acting.refresh()
        rollout.collect(records)
        resets = schema.unroll(records).first[:, 1:]  # a reset row is not a decision
        steps += resets.size - int(resets.sum())
        learner.step(feed.compose(draws, learner.version), 0.0)
        yield steps


def loop_speed(env: str, seconds: float, from_update: int) -> float:
    """Return the loop's agent steps per second, over `seconds` after its first updates."""
    loop = updates(loop_flags(env))
    for _ in range(max(1, from_update)):
        before = next(loop)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        steps = next(loop)
    return (steps - before) / (time.perf_counter() - began)
