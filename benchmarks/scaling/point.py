"""One point of bench_scaling.py: a pool of some backend, a consumer, and what they cost.

The consumer does what the learner's process does with blocks (it copies them) and publishes
weights. It learns nothing. Next to read: benchmarks/scaling/processes.py, whose time it was.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.scaling.prepared import PreparedGateway, prepared_pool
from benchmarks.scaling.processes import Processes, difference
from ritornello.agent.assembly import Blueprint
from ritornello.agent.cluster.engine import Node
from ritornello.agent.cluster.gateway import GatewayConfig
from ritornello.agent.cluster.gateway_pool import GatewayPool
from ritornello.agent.cluster.thread_engine import ThreadEngine
from ritornello.agent.pools.pool import ProcessPool
from ritornello.agent.pools.worker_pool import WorkerPool
from ritornello.flags.options import Flags
from ritornello.transport.weights import WeightBoard

START_S = 400.0  # a busy machine takes minutes to start some processes with torch
POLL_S = 0.1
FIGURES_S = 1.0
RATES = ("cluster/messages_per_s", "cluster/bytes_in_per_s", "cluster/weights_bytes_per_s")


@dataclass(frozen=True)
class Point:
    """What is measured."""

    kind: str
    backend: str  # native | threads | ray
    workers: int  # on all hosts together
    hosts: int = 1
    env: str = "PongNoFrameskip-v4"
    envs: int = 8  # per worker
    seconds: float = 30.0
    versions_per_s: float = 5.0  # of the weights; 0: the first ones only
    prepared: bool = False  # workers that cost nothing (benchmarks/scaling/prepared.py)
    pace: float = 0.0  # blocks per second of each prepared worker; 0: as many as are taken
    address: str = ""  # of a Ray cluster; empty: a private one
    link_mbit: float = 0.0  # of the network in between, if it is limited


def hosts_in_threads(limits: tuple[int, ...]) -> ThreadEngine:
    """Return an engine of hosts with so many workers each."""
    return ThreadEngine([Node(f"n{i}", f"host {i}", limit) for i, limit in enumerate(limits)])


def make_pool(point: Point, blueprint: Blueprint, board: WeightBoard) -> WorkerPool:
    """Return the pool of a point, not started."""
    slots = blueprint.flags.shared_queue_size
    if point.backend == "native":
        if point.prepared:
            return prepared_pool(blueprint.workers(), board, slots, point.pace)
        return ProcessPool(blueprint.workers(), board, slots=slots, max_restarts=0)
    config = replace(blueprint.gateway(), max_restarts=0)
    if point.backend == "threads":
        limits = _shares(point.workers, point.hosts)
        config = replace(config, make_engine=partial(hosts_in_threads, limits))
    if point.prepared:
        values = {name: getattr(config, name) for name in GatewayConfig.__dataclass_fields__}
        config = PreparedGateway(**values, blocks_per_s=point.pace)
    return GatewayPool(config, board)


def _shares(workers: int, hosts: int) -> tuple[int, ...]:
    return tuple(workers // hosts + (index < workers % hosts) for index in range(hosts))


def measure(point: Point) -> dict[str, Any]:
    """Measure a point.

    Args:
      point: what to measure.

    Raises:
      SystemExit: if not all workers have begun.
    """
    flags = Flags(
        env=point.env,
        seed=1,
        worker_count=point.workers,
        envs_per_worker=point.envs,
        multiprocessing_backend="ray" if point.backend == "ray" else "python_native",
        ray_address=point.address,
    )
    blueprint = Blueprint.draw(flags)
    board = WeightBoard(blueprint.acting_weights.nbytes)
    model = blueprint.learner().model

    def publish(version: int) -> None:
        with board.write(version) as block:
            blueprint.acting_weights.pack(model, block)

    publish(0)
    pool = make_pool(point, blueprint, board)
    processes = Processes(has_gateway=point.backend != "native")
    pool.start()
    try:
        measured = _Consumer(point, pool, publish, processes).run()
    finally:
        pool.stop(5.0)
    sizes = {
        "record_kb": round(blueprint.schema.nbytes / 1e3, 1),
        "weights_mb": round(blueprint.acting_weights.nbytes / 1e6, 3),
        "steps_per_block": point.envs * blueprint.schema.unroll_length,
    }
    return {**asdict(point), **measured, **sizes}


class _Consumer:
    """Takes blocks, publishes weights, and reads meters from the first block of all workers on."""

    def __init__(
        self, point: Point, pool: WorkerPool, publish: Callable[[int], None], processes: Processes
    ) -> None:
        self._point, self._pool, self._publish = point, pool, publish
        self._processes = processes
        self._version = 0
        self._next_version = time.monotonic()
        self._steps = self._blocks = 0
        self._figures: dict[str, list[float]] = defaultdict(list)
        self._figures_at = 0.0

    def run(self) -> dict[str, Any]:
        began = time.monotonic()
        waiting = set(range(self._point.workers))
        while waiting:
            waiting -= self._take()
            if time.monotonic() - began > START_S:
                raise SystemExit(f"workers {sorted(waiting)} have not begun in {START_S:.0f} s")
        self._settle()
        self._steps = self._blocks = 0
        self._figures.clear()
        wire_before, cpu_before = wire_bytes(), self._processes.cpu_s()
        start = time.monotonic()
        while time.monotonic() - start < self._point.seconds:
            self._take()
        passed_s = time.monotonic() - start
        cpu = difference(self._processes.cpu_s(), cpu_before)
        wire = wire_bytes() - wire_before
        return {
            "first_blocks_s": round(start - began, 1),
            "agent_steps_per_s": round(self._steps / passed_s, 1),
            "blocks_per_s": round(self._blocks / passed_s, 2),
            "cpu_s_per_1000_steps": round(1000 * sum(cpu.values()) / max(self._steps, 1), 4),
            "cpu_ms_per_block": {
                kind: round(1000 * seconds / max(self._blocks, 1), 3)
                for kind, seconds in cpu.items()
            },
            "cores": {kind: round(seconds / passed_s, 4) for kind, seconds in cpu.items()},
            "wire_mbit_per_s": round(8e-6 * wire / passed_s, 2),
            **{
                name: round(statistics.mean(values), 3)
                for name, values in self._figures.items()
                if values
            },
        }

    def _settle(self) -> None:
        """Pass over the burst of what has waited in rings and queues."""
        end = time.monotonic() + min(3.0, self._point.seconds / 4)
        while time.monotonic() < end:
            self._take()

    def _take(self) -> set[int]:
        now = time.monotonic()
        if self._point.versions_per_s and now >= self._next_version:
            self._version += 1
            self._publish(self._version)
            self._next_version = now + 1 / self._point.versions_per_s
        if now - self._figures_at >= FIGURES_S:
            self._figures_at = now
            for name, value in self._pool.stats().items():
                if "cluster/" in name:
                    self._figures[name].append(value)
        heard = set()
        for block in self._pool.poll(POLL_S):
            heard.add(block.worker_id)
            block.records.copy()
            self._steps += block.stats.steps
            self._blocks += 1
            block.release()
        return heard


def wire_bytes() -> int:
    """Return the bytes that came in over networks (not the loopback) in this network namespace."""
    total = 0
    try:
        lines = Path("/proc/self/net/dev").read_text("ascii").splitlines()[2:]
    except OSError:  # not Linux
        return 0
    for line in lines:
        name, _, numbers = line.partition(":")
        if name.strip() != "lo":
            total += int(numbers.split()[0])
    return total
