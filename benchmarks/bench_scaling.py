"""What it costs to have the workers elsewhere: steps per second and processor time per step.

    python benchmarks/bench_scaling.py --backends=native,threads,ray --workers=2 --seconds=30

Real workers play a real game; a consumer takes their blocks, copies them as replay does, and
publishes weights some times per second. Nothing is learned, so the workers and the way to the
consumer are measured and nothing else. `native` is the pool of one machine, `threads` the gateway
with hosts that are threads of it, `ray` the gateway with a private Ray. Prints one line of JSON for
each point: points are repeated in turns, because a machine gets faster and slower by itself.

`cpu_s_per_1000_steps` is the processor time of *all* processes: consumer, gateway, hosts, workers
and whatever the engine has started. Rates of points with more busy workers than cores say nothing
about the transport; the processor time does.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from agent.assembly import Blueprint  # noqa: E402
from agent.cluster.engine import Node  # noqa: E402
from agent.cluster.gateway_pool import GatewayPool  # noqa: E402
from agent.cluster.ray_engine import check_ray  # noqa: E402
from agent.cluster.thread_engine import ThreadEngine  # noqa: E402
from agent.pools.pool import ProcessPool, WorkerPool  # noqa: E402
from option_flags import Flags  # noqa: E402
from transport.weights import WeightBoard  # noqa: E402

BACKENDS = ("native", "threads", "ray")
START_S = 300.0  # a busy machine takes a minute to import torch
POLL_S = 0.1


def parse() -> argparse.Namespace:
    """Read the options of the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--backends", default="native,threads", help=f"some of {BACKENDS}")
    parser.add_argument("--workers", type=int, default=2, help="workers on all hosts together")
    parser.add_argument("--hosts", type=int, default=1, help="hosts of the backend threads")
    parser.add_argument("--envs", type=int, default=8, help="environments per worker")
    parser.add_argument("--env", default="PongNoFrameskip-v4")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each point")
    parser.add_argument("--repeats", type=int, default=1, help="rounds of all points")
    parser.add_argument("--versions_per_s", type=float, default=5.0, help="of the weights")
    options = parser.parse_args()
    options.backends = options.backends.split(",")
    unknown = set(options.backends) - set(BACKENDS)
    if unknown:
        parser.error(f"--backends={','.join(sorted(unknown))}: expected some of {BACKENDS}")
    if options.workers < options.hosts:
        parser.error("--workers must not be below --hosts")
    return options


def hosts_in_threads(limits: tuple[int, ...]) -> ThreadEngine:
    """Return an engine of hosts with so many workers each."""
    return ThreadEngine([Node(f"n{i}", f"host {i}", limit) for i, limit in enumerate(limits)])


def make_pool(backend: str, blueprint: Blueprint, board: WeightBoard, hosts: int) -> WorkerPool:
    """Return a pool of the backend, not started."""
    workers = blueprint.choices.worker_count
    if backend == "native":
        return ProcessPool(
            blueprint.workers(), board, slots=blueprint.flags.shared_queue_size, max_restarts=0
        )
    config = replace(blueprint.gateway(), max_restarts=0)
    if backend == "threads":
        limits = tuple(workers // hosts + (index < workers % hosts) for index in range(hosts))
        config = replace(config, make_engine=partial(hosts_in_threads, limits))
    return GatewayPool(config, board)


class Tree:
    """Processor time of this process and of all that it has started, also of those that ended."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._seen: dict[tuple[int, float], float] = {}

    def cpu_s(self) -> float:
        """Return processor seconds so far, of all processes seen by any call."""
        own = psutil.Process()
        for process in [own, *own.children(recursive=True)]:
            try:
                times = process.cpu_times()
                key = (process.pid, process.create_time())
            except psutil.Error:
                continue
            self._seen[key] = times.user + times.system
        return sum(self._seen.values())


def measure(backend: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run one point and return what was measured."""
    flags = Flags(
        env=options.env,
        seed=1,
        worker_count=options.workers,
        envs_per_worker=options.envs,
        multiprocessing_backend="ray" if backend == "ray" else "python_native",
    )
    blueprint = Blueprint.draw(flags)
    board = WeightBoard(blueprint.acting_weights.nbytes)
    model = blueprint.learner().model

    def publish(version: int) -> None:
        with board.write(version) as block:
            blueprint.acting_weights.pack(model, block)

    publish(0)
    pool, tree = make_pool(backend, blueprint, board, options.hosts), Tree()
    pool.start()
    try:
        return {"backend": backend, **_consume(pool, blueprint, publish, tree, options)}
    finally:
        pool.stop(5.0)


def _consume(
    pool: WorkerPool, blueprint: Blueprint, publish: Any, tree: Tree, options: argparse.Namespace
) -> dict[str, Any]:
    heard: set[int] = set()
    began, start = time.monotonic(), 0.0
    steps = blocks = version = 0
    cpu_before = own_before = 0.0
    next_version = began
    while not start or time.monotonic() - start < options.seconds:
        now = time.monotonic()
        if not start and now - began > START_S:
            raise SystemExit(f"only workers {sorted(heard)} of {options.workers} have begun")
        if now >= next_version:
            version += 1
            publish(version)
            next_version = now + 1 / options.versions_per_s
        for block in pool.poll(POLL_S):
            heard.add(block.worker_id)
            block.records.copy()
            steps += block.stats.steps
            blocks += 1
            block.release()
        if not start and len(heard) == options.workers:
            steps = blocks = 0
            cpu_before, own_before = tree.cpu_s(), time.process_time()
            start = time.monotonic()
    passed_s, cpu_s = time.monotonic() - start, tree.cpu_s() - cpu_before
    return {
        "env": options.env,
        "workers": options.workers,
        "hosts": options.hosts,
        "envs_per_worker": options.envs,
        "versions_per_s": options.versions_per_s,
        "first_blocks_s": round(start - began, 1),
        "agent_steps_per_s": round(steps / passed_s, 1),
        "blocks_per_s": round(blocks / passed_s, 2),
        "cpu_s_per_1000_steps": round(1000 * cpu_s / max(steps, 1), 4),
        "consumer_cpu_ms_per_block": round(
            1000 * (time.process_time() - own_before) / max(blocks, 1), 3
        ),
        "record_kb": round(blueprint.schema.nbytes / 1e3, 1),
        "weights_mb": round(blueprint.acting_weights.nbytes / 1e6, 2),
        **{name: round(value, 3) for name, value in pool.stats().items() if "cluster/" in name},
    }


def main() -> None:
    """Measure all points in turns."""
    options = parse()
    if "ray" in options.backends:
        check_ray()
    for _ in range(options.repeats):
        for backend in options.backends:
            print(json.dumps(measure(backend, options)), flush=True)


if __name__ == "__main__":
    main()
