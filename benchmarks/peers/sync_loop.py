"""Driver of the simplest honest rival: our own parts in one process, one after the other.

All 16 games in one fast vector, the same network, precision, allocator settings, batch and V-trace
as ours; no worker processes, no rings, no replay, no cache, and no threads but those that torch
spreads an operator over. What a run gains over it is what the distributed design is worth.

Runs until it is stopped. Writes to `--progress`: first a line that describes the run, then one line
for each update from `--from_update` on, {"steps": agent steps learned from, "wall_s":
time.monotonic()}.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.bench_end_to_end import flag_values
from ritornello.agent.acting.acting_model import ActingModel
from ritornello.agent.acting.actor import Actor, LocalActor
from ritornello.agent.acting.lane import EnvGroup
from ritornello.agent.acting.rollout import Rollout
from ritornello.agent.assembly import Blueprint, env_config
from ritornello.agent.learning.feed import Feed
from ritornello.agent.machine import cpu_count
from ritornello.core.process_death import end_with_starter
from ritornello.core.process_settings import environment_to_restart_with
from ritornello.flags.options import Flags
from ritornello.replay.codec import Plain
from ritornello.replay.item import Draw, Item
from ritornello.transport.weights import WeightBoard
from ritornello.wrappers.registry import make_env_vector


def write(path: Path, **line: Any) -> None:
    """Append one JSON line to the file at `path`."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, allow_nan=False) + "\n")


def train(blueprint: Blueprint, games: int, progress: Path, from_update: int) -> None:
    """Act, step and learn in turn, for ever.

    Args:
      blueprint: the parts; one batch is one unroll of each game.
      games: E, number of environments.
      progress: file that takes a line for each update.
      from_update: the first update that gets one.
    """
    schema, learner = blueprint.schema, blueprint.learner()
    board = WeightBoard(blueprint.acting_weights.nbytes)
    model, _ = blueprint.acting_model()
    acting = ActingModel(model, blueprint.acting_weights, board)
    config, seeds = env_config(blueprint.flags), list(range(games))
    env = make_env_vector(config, games, seeds, threads=cpu_count())
    actor = LocalActor(Actor(model, 0, with_features=False), acting)
    feed = Feed(schema, blueprint.choices.device)
    records = schema.allocate(games)
    codec, steps = Plain(), 0
    # The batch reads `records` where they were written: nothing acts while it learns.
    draws = [Draw(Item(i, r, codec, 0, 0), 0, r, is_online=True) for i, r in enumerate(records)]
    group = EnvGroup(env, actor, task_id=np.zeros(games, np.int64))
    rollout = Rollout([group], schema, worker_id=0)
    while True:
        with board.write(learner.version) as block:
            blueprint.acting_weights.pack(learner.model, block)
        acting.refresh()
        rollout.collect(records)
        resets = schema.unroll(records).first[:, 1:]  # a reset row is not a decision
        steps += resets.size - int(resets.sum())
        learner.step(feed.compose(draws, learner.version), 0.0)
        if learner.version >= from_update:
            write(progress, steps=steps, wall_s=time.monotonic())


def main() -> None:
    """Train until stopped."""
    environment = environment_to_restart_with()
    if environment is not None:
        os.execve(sys.executable, [sys.executable, "-I", *sys.argv], environment)
    end_with_starter()
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("env", "workers", "envs_per_worker", "seed", "progress", "scratch"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--from_update", type=int, default=1, help="report none before")
    options = parser.parse_args()
    games = int(options.workers) * int(options.envs_per_worker)
    more = argparse.Namespace(env=options.env, flags=["--device=cpu"])
    # One share per batch: here torch has the cores, operator by operator.
    values = flag_values("queue", more) | {"batch_size": games, "learner_thread_count": 1}
    torch.set_num_threads(cpu_count())
    blueprint = Blueprint.draw(Flags(**values))
    flags = {k: v for k, v in values.items() if k != "replay_parameters"}
    flags |= {"torch_threads": cpu_count(), "precision": str(blueprint.choices.torso_dtype)}
    write(Path(options.progress), flags=json.dumps(flags, allow_nan=False))
    train(blueprint, games, Path(options.progress), options.from_update)


if __name__ == "__main__":
    main()
