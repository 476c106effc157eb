"""What single operations cost: a block squeezed and restored, and a gradient summed by learners.

All of it in loops of their own, so that a model can be made of the figures and then be compared
with whole systems.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.scaling.prepared import play
from ritornello.agent.acting.worker import WorkerBody
from ritornello.agent.assembly import Blueprint
from ritornello.agent.cluster.wire import open_block, seal
from ritornello.agent.learners.group import Group, open_store
from ritornello.agent.learners.place import Place
from ritornello.flags.options import Flags
from ritornello.transport.weights import WeightBoard

START_S = 300.0
ROUNDS = 200


def wire_costs(env: str, envs: int, seconds: float) -> dict[str, Any]:
    """Return milliseconds of processor time for what is done to a block on its way.

    Args:
      env: the game.
      envs: E, unrolls in a block.
      seconds: for all of them together.
    """
    blueprint = Blueprint.draw(Flags(env=env, seed=1, worker_count=1, envs_per_worker=envs))
    schema, board = blueprint.schema, WeightBoard(blueprint.acting_weights.nbytes)
    with board.write(0) as half:
        blueprint.acting_weights.pack(blueprint.learner().model, half)
    torch.set_num_threads(1)
    (config,) = blueprint.workers()
    blocks = play(config, board, lambda phase: None)
    into = schema.allocate(envs)
    sealed = [seal(0, number, 0, block) for number, block in enumerate(blocks)]
    count = len(blocks)
    operations: dict[str, Callable[[int], object]] = {
        "seal_ms": lambda i: seal(0, i, 0, blocks[i % count]),
        "open_ms": lambda i: open_block(sealed[i % count], schema, into, 0),
        "copy_ms": lambda i: np.copyto(into, blocks[i % count]),
    }
    return {
        "env": env,
        "envs": envs,
        **{name: _cpu_ms(call, seconds / 3) for name, call in operations.items()},
        "block_kb": round(blocks[0].nbytes / 1e3, 1),
        "wire_kb": round(statistics.mean(block.nbytes for block in sealed) / 1e3, 2),
        "weights_mb": round(blueprint.acting_weights.nbytes / 1e6, 3),
        "steps_per_block": envs * schema.unroll_length,
    }


def acting_cost(env: str, envs: int, seconds: float) -> dict[str, Any]:
    """Return microseconds of processor time that a worker needs for an agent step, alone."""
    blueprint = Blueprint.draw(Flags(env=env, seed=1, worker_count=1, envs_per_worker=envs))
    board = WeightBoard(blueprint.acting_weights.nbytes)
    with board.write(0) as half:
        blueprint.acting_weights.pack(blueprint.learner().model, half)
    torch.set_num_threads(1)
    (config,) = blueprint.workers()
    body, block = WorkerBody(config, board), blueprint.schema.allocate(envs)
    try:
        ms = _cpu_ms(lambda i: body.collect(block), seconds)
    finally:
        body.close()
    return {"acting_us_per_step": round(1000 * ms / (envs * blueprint.schema.unroll_length), 1)}


def _cpu_ms(call: Callable[[int], object], seconds: float) -> float:
    """Return the median processor milliseconds of a call, of all threads of this process."""
    spent = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(spent) < 5:
        began = time.process_time()
        call(len(spent))
        spent.append(time.process_time() - began)
    return round(1000 * statistics.median(spent), 4)


def gradient_sum(learners: int, env: str) -> dict[str, Any]:
    """Return what it costs `learners` processes of this machine to add up a gradient.

    Args:
      learners: how many.
      env: of the network whose gradient it is.
    """
    blueprint = Blueprint.draw(Flags(env=env, seed=1, worker_count=1, envs_per_worker=1))
    numbers = sum(parameter.numel() for parameter in blueprint.learner().model.parameters())
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    children = [
        context.Process(target=_sum, args=(rank, learners, port, numbers, results), daemon=True)
        for rank in range(learners)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(START_S)
        if child.exitcode != 0:
            raise SystemExit(f"a learner ended with {child.exitcode} while summing a gradient")
    found = [results.get() for _ in children]
    return {
        "learners": learners,
        "gradient_mb": round(4e-6 * numbers, 2),
        "sum_wall_ms": round(max(wall for wall, _, _ in found), 2),
        "sum_cpu_ms": round(statistics.mean(cpu for _, cpu, _ in found), 2),
        "agree_wall_ms": round(max(agree for _, _, agree in found), 3),
    }


def _sum(rank: int, size: int, port: int, numbers: int, results: Any) -> None:
    """Child process: report wall and processor milliseconds of a sum, and of a meeting."""
    torch.set_num_threads(1)
    place = Place(rank, size, rank, size, "127.0.0.1", port)
    group = Group(open_store(place, START_S), rank, size, first_timeout_s=START_S)
    gradient = torch.ones(numbers)
    walls, agrees = [], []
    cpu = time.process_time()
    for _ in range(ROUNDS):
        gradient.fill_(1.0)
        began = time.monotonic()
        group.sum_(gradient, "gradient")
        walls.append(time.monotonic() - began)
    cpu = (time.process_time() - cpu) / ROUNDS
    for _ in range(ROUNDS):
        began = time.monotonic()
        group.agree([1.0] * 10)
        agrees.append(time.monotonic() - began)
    results.put((1e3 * statistics.median(walls), 1e3 * cpu, 1e3 * statistics.median(agrees)))
    group.agree([0.0])  # nobody leaves while others still add up
