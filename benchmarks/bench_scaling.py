"""What it costs to have the workers elsewhere, and what limits a run with many of them.

    python benchmarks/bench_scaling.py --kinds=rollout --backends=native,ray --workers=1,2

| kind | what is measured |
|---|---|
| `parts` | single operations: a block squeezed and restored, a step acted, a gradient summed |
| `transport` | prepared blocks (no environment acts), as fast as they are taken; and Ray at rest |
| `rollout` | real workers that play real games; nothing is learned |
| `paced` | many workers that send prepared blocks at a given rate (`--blocks_per_s`) |
| `nodes` | the same over Ray clusters of several nodes, which are all this machine |
| `link` | prepared blocks over a network of limited bandwidth (needs root, on Linux) |
| `training` | whole runs of main.py, native and with Ray |
| `lost` | how long a run of two learners goes on when one is killed or stopped |

Prints one line of JSON for each point, and appends it to `--out`. Points are repeated in turns
(`--repeats`), because a machine gets faster and slower by itself. `native` is the pool of one
machine, `threads` the gateway with hosts that are threads of it, `ray` the gateway with Ray.

`cpu_s_per_1000_steps` is the processor time of *all* processes: learner, gateway, hosts, workers
and whatever Ray has started; `cores` says which of them. Rates of points with more busy workers
than cores say nothing about the transport; the processor time does.

`python -m benchmarks.scaling.model <file>` makes a model of the parts, compares it with the other
points and says what it means for a thousand workers.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.parts import machine_us  # noqa: E402
from benchmarks.programs import leaving_by_exception  # noqa: E402
from benchmarks.scaling.link import Link  # noqa: E402
from benchmarks.scaling.lost import lose  # noqa: E402
from benchmarks.scaling.micro import acting_cost, gradient_sum, wire_costs  # noqa: E402
from benchmarks.scaling.point import Point, measure  # noqa: E402
from benchmarks.scaling.ray_cluster import RayCluster  # noqa: E402
from benchmarks.scaling.training import BACKENDS as TRAINED  # noqa: E402
from benchmarks.scaling.training import train  # noqa: E402
from ritornello.agent.cluster.ray_engine import check_ray  # noqa: E402
from ritornello.agent.machine import cpu_count  # noqa: E402
from ritornello.core.process_settings import environment_to_restart_with  # noqa: E402
from ritornello.live.json_text import json_text  # noqa: E402

BACKENDS = ("native", "threads", "ray")
LEARNER_TIMEOUT_S = 20.0
LEARNERS = 2  # that add up a gradient
WARM_UP_S = 10.0  # of a training, from its first update on
# What is asked of Ray against native in a training: medians over pairs.
MOST_CPU, LEAST_SPEED = 1.15, 0.85

Lines = Iterator[dict[str, Any]]


def parse() -> argparse.Namespace:
    """Read the options of the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", default="rollout", help=f"some of {','.join(KINDS)}")
    parser.add_argument("--backends", default="native,threads", help=f"some of {BACKENDS}")
    parser.add_argument("--workers", default="2", help="workers on all hosts together, e.g. 1,2,4")
    parser.add_argument("--hosts", default="1", help="hosts (threads, nodes), e.g. 1,2,4")
    parser.add_argument("--envs", type=int, default=8, help="environments per worker")
    parser.add_argument("--env", default="PongNoFrameskip-v4")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each point")
    parser.add_argument("--repeats", type=int, default=1, help="rounds of all points")
    parser.add_argument("--versions_per_s", type=float, default=5.0, help="of the weights")
    parser.add_argument("--blocks_per_s", type=float, default=2.0, help="of each paced worker")
    parser.add_argument("--mbit", default="20,80", help="of the link, in each direction")
    parser.add_argument("--address", default="", help="of a Ray cluster, for the kind nodes")
    parser.add_argument("--link_mbit", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--out", default="", help="file to which the lines are appended")
    options = parser.parse_args()
    for name, known in (("kinds", KINDS), ("backends", BACKENDS)):
        values = getattr(options, name).split(",")
        unknown = sorted(set(values) - set(known))
        if unknown:
            parser.error(f"--{name}={','.join(unknown)}: expected some of {', '.join(known)}")
        setattr(options, name, values)
    untrained = sorted(set(options.backends) - set(TRAINED))
    if "training" in options.kinds and untrained:
        parser.error(
            f"--backends={','.join(untrained)}: a training is {' or '.join(TRAINED)}; measure "
            "--kinds=training apart from the others"
        )
    options.workers, options.hosts = _numbers(options.workers), _numbers(options.hosts)
    if min(options.workers) < max(options.hosts):
        parser.error("--workers must not be below --hosts")
    return options


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def base(options: argparse.Namespace, kind: str, backend: str, workers: int) -> Point:
    """Return a point with what all kinds have in common."""
    return Point(
        kind, backend, workers, 1, options.env, options.envs, options.seconds,
        options.versions_per_s,
    )  # fmt: skip


def parts(options: argparse.Namespace) -> Lines:
    """Single operations."""
    seconds = options.seconds / 2
    flags = {"env": options.env, "seed": 1, "worker_count": 1, "envs_per_worker": options.envs}
    learning_us = machine_us("learning", flags, cpu_count(), seconds)
    summed = gradient_sum(LEARNERS, options.env)
    yield {
        "kind": "parts",
        **wire_costs(options.env, options.envs, seconds),
        **acting_cost(options.env, options.envs, seconds),
        "learning_us_per_step": round(learning_us, 1),
        **summed,
        "cpus": cpu_count(),
    }


def transport(options: argparse.Namespace) -> Lines:
    """Prepared blocks as fast as they are taken; then Ray at rest, and with weights only."""
    for backend in options.backends:
        fast = replace(base(options, "transport", backend, options.workers[0]), prepared=True)
        yield measure(replace(fast, versions_per_s=0.0))
        if backend == "ray":
            at_rest = replace(fast, pace=0.2)
            for versions_per_s in (0.0, 10.0):
                yield measure(replace(at_rest, versions_per_s=versions_per_s))
            yield measure(replace(fast, pace=5.0, versions_per_s=0.0))


def rollout(options: argparse.Namespace) -> Lines:
    """Real workers."""
    for workers, backend in product(options.workers, options.backends):
        point = base(options, "rollout", backend, workers)
        for hosts in options.hosts if backend == "threads" else [1]:
            yield measure(replace(point, hosts=hosts))


def paced(options: argparse.Namespace) -> Lines:
    """Many workers on one machine."""
    for workers, backend in product(options.workers, options.backends):
        point = base(options, "paced", backend, workers)
        yield measure(replace(point, prepared=True, pace=options.blocks_per_s))


def nodes(options: argparse.Namespace) -> Lines:
    """Workers on several nodes."""
    workers = options.workers[0]
    point = replace(
        base(options, "nodes", "ray", workers), prepared=True, pace=options.blocks_per_s
    )
    if options.address:  # of a cluster that runs
        link = replace(point, kind="link", link_mbit=options.link_mbit, pace=0.0)
        yield measure(replace(link if options.link_mbit else point, address=options.address))
        return
    for hosts in options.hosts:
        with RayCluster(hosts, -(-workers // hosts)) as cluster:
            line = measure(replace(point, hosts=hosts, address=cluster.address))
        yield line


def link(options: argparse.Namespace) -> Lines:
    """Blocks over limited networks; this program runs again at their near end."""
    for mbit in map(float, options.mbit.split(",")):
        with Link(mbit, options.workers[0]) as network:
            command = [
                *(sys.executable, str(Path(__file__).resolve()), "--kinds=nodes"),
                *(f"--address={network.address}", f"--link_mbit={mbit}", f"--env={options.env}"),
                *(f"--workers={options.workers[0]}", f"--envs={options.envs}"),
                *(f"--seconds={options.seconds}", f"--versions_per_s={options.versions_per_s}"),
            ]
            done = subprocess.run(
                network.inside(command), stdout=subprocess.PIPE, text=True, check=True,
                timeout=options.seconds + 500,
            )  # fmt: skip
        yield json.loads(done.stdout.splitlines()[-1])


def training(options: argparse.Namespace) -> Lines:
    """Whole runs."""
    for backend in options.backends:
        yield {
            "kind": "training",
            **train(backend, options.env, options.seconds, WARM_UP_S),
        }


def lost(options: argparse.Namespace) -> Lines:
    """A learner that is lost."""
    for how in ("killed", "stopped"):
        yield {"kind": "lost", **lose(how, LEARNER_TIMEOUT_S)}


KINDS: dict[str, Callable[[argparse.Namespace], Lines]] = {
    kind.__name__: kind for kind in (parts, transport, rollout, paced, nodes, link, training, lost)
}


def verdict(lines: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Compare the trainings with Ray to the native ones beside them, in the order of the pairs."""
    runs = {
        backend: [x for x in lines if (x["kind"], x.get("backend")) == ("training", backend)]
        for backend in ("native", "ray")
    }
    pairs = list(zip(runs["native"], runs["ray"], strict=False))
    if not pairs:
        return None
    cpu = [ray["cpu_s_per_1000_steps"] / own["cpu_s_per_1000_steps"] for own, ray in pairs]
    speed = [ray["agent_steps_per_s"] / own["agent_steps_per_s"] for own, ray in pairs]
    return {
        "kind": "verdict",
        "pairs": len(pairs),
        "cpu_ratios": [round(ratio, 3) for ratio in cpu],
        "speed_ratios": [round(ratio, 3) for ratio in speed],
        "cpu_ratio": round(statistics.median(cpu), 3),
        "speed_ratio": round(statistics.median(speed), 3),
        "is_met": statistics.median(cpu) <= MOST_CPU and statistics.median(speed) >= LEAST_SPEED,
    }


def main() -> None:
    """Measure all points in turns."""
    options = parse()
    if "ray" in options.backends or {"nodes", "link"} & set(options.kinds):
        check_ray()
    lines: list[dict[str, Any]] = []

    def tell(line: dict[str, Any]) -> None:
        lines.append(line)
        text = json_text(line)
        print(text, flush=True)
        if options.out:
            with open(options.out, "a", encoding="utf-8") as file:
                file.write(text + "\n")

    with leaving_by_exception():
        for _, kind in product(range(options.repeats), options.kinds):
            for line in KINDS[kind](options):
                tell(line)
    last = verdict(lines)
    if last is not None:
        tell(last)


if __name__ == "__main__":
    environment = environment_to_restart_with()
    if environment is not None:
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    main()
