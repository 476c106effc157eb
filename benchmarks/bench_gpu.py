"""How fast a real run is with a GPU, by network, and by where actions are chosen.

    python benchmarks/bench_gpu.py --seconds=20 --repeats=2
    python benchmarks/bench_gpu.py --updates

Each run is the default command with a network, a device of the learner and a place of inference.
A round runs every placement of every network once, so that placements of a network follow each
other; rounds are repeated. A placement that the machine does not have is an error.

With `--updates` nothing is played: an update of the learner is timed alone, with the same batch
again and again, computed and replayed from a recording (agent/learning/recorded.py).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.bench_end_to_end import RealRun, arguments_of, real_run  # noqa: E402
from benchmarks.parts import PARTS  # noqa: E402
from benchmarks.programs import leaving_by_exception  # noqa: E402
from ritornello.agent.assembly import Blueprint  # noqa: E402
from ritornello.agent.machine import cpu_count  # noqa: E402
from ritornello.agent.models.pixels import OBSERVED_BATCHES  # noqa: E402
from ritornello.core.errors import ConfigError  # noqa: E402
from ritornello.core.process_settings import environment_to_restart_with  # noqa: E402
from ritornello.flags.options import Flags  # noqa: E402
from ritornello.flags.parsing import parse as parse_flags  # noqa: E402
from ritornello.live.json_text import json_text  # noqa: E402

PLACEMENTS = ("cpu:worker", "cuda:worker", "cuda:server")  # device of the learner: inference
NETWORKS = ("impala_shallow", "resnet_light", "resnet")
BATCHES = (8, 32)  # unrolls of an update
SETTLED_UPDATES = OBSERVED_BATCHES + 30  # then nothing but the update is computed
SHOWN = (  # what says which part of the run the others wait for
    "throughput/updates_per_s", "cache/wait_fraction", "ring/wait_fraction", "workers/env_fraction",
    "workers/act_fraction", "lag/mean_updates", "system/cpu_percent", "system/gpu_percent",
    "system/gpu_memory_mb", "system/gpu_power_w",
)  # fmt: skip


def names(text: str, allowed: tuple[str, ...]) -> list[str]:
    """Return the parts of a list with commas; each must be allowed."""
    chosen = text.split(",")
    for name in chosen:
        if name not in allowed:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(allowed)}")
    return chosen


def parse() -> argparse.Namespace:
    """Read the options of the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--env", default="BreakoutNoFrameskip-v4")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each run")
    parser.add_argument("--repeats", type=int, default=1, help="rounds; the median counts")
    parser.add_argument(
        "--networks", type=lambda text: names(text, NETWORKS), default=list(NETWORKS)
    )
    parser.add_argument(
        "--placements", type=lambda text: names(text, PLACEMENTS), default=list(PLACEMENTS)
    )
    parser.add_argument("--updates", action="store_true", help="time updates alone")
    parser.add_argument("flags", nargs="*", help="more flags of main.py, after --")
    return parser.parse_args()


def command_line(network: str, placement: str, options: argparse.Namespace) -> list[str]:
    """Return the command line of a run."""
    device, inference = placement.split(":")
    values = {"env": options.env, "seed": 1, "model": network}
    return [
        *arguments_of(values | {"device": device, "inference": inference}),
        *options.flags,
    ]


def summary(network: str, placement: str, runs: list[RealRun]) -> dict[str, Any]:
    """Return what the runs of a placement showed."""
    speed = statistics.median(run.speed for run in runs)
    return {
        "network": network,
        "placement": placement,
        "sps": round(speed, 1),
        "sps_runs": [round(run.speed, 1) for run in runs],
        "updates_counted": [run.updates for run in runs],
        **{name: round(v, 3) for name, v in runs[-1].values.items() if name in SHOWN},
    }


def update_ms(values: dict[str, Any], seconds: float) -> float:
    """Return the milliseconds of an update of the learner that these flags ask for."""
    work = PARTS["learning"](Blueprint.draw(Flags(**values)))
    for _ in range(SETTLED_UPDATES):
        work()
    updates, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        work()  # it waits for the device, to see whether the gradient is finite
        updates += 1
    return 1e3 * (time.perf_counter() - began) / updates


def time_updates(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the time of an update of each network and batch, on each device, and print it."""
    torch.set_num_threads(1)
    found = []
    for network, size in product(options.networks, BATCHES):
        for device in sorted({placement.split(":")[0] for placement in options.placements}):
            for recorded in (False, True) if device == "cuda" else (False,):
                values = {"env": options.env, "seed": 1, "model": network, "device": device}
                values |= {"batch_size": size, "compile": "auto" if recorded else False}
                how = f"{device}, {'replayed' if recorded else 'computed'}"
                row = f"{network:<16}{size:>3} unrolls  {how}:"
                print(f"{row} {SETTLED_UPDATES} updates first", flush=True)
                ms = round(update_ms(values, options.seconds), 3)
                found.append(
                    {"network": network, "batch": size, "device": device, "recorded": recorded}
                    | {"update_ms": ms}
                )
                print(f"{row} {ms:.2f} ms", flush=True)
    return found


def time_runs(options: argparse.Namespace, arms: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return what the runs of each placement showed."""
    runs: dict[tuple[str, str], list[RealRun]] = defaultdict(list)
    with leaving_by_exception():
        for _ in range(options.repeats):
            for arm in arms:
                network, placement = arm
                run = real_run(command_line(*arm, options), options.seconds)
                print(f"{network:<16}{placement:<14}{run.speed:>8.0f} agent steps/s", flush=True)
                runs[arm].append(run)
    return [summary(*arm, runs[arm]) for arm in arms]


def main() -> None:
    """Run the benchmark; the last line is JSON."""
    options = parse()
    arms = [(n, p) for n in options.networks for p in options.placements]
    try:
        for arm in arms:  # before the first run
            parse_flags(command_line(*arm, options))
        wants_gpu = any(placement.startswith("cuda") for placement in options.placements)
        if wants_gpu and not torch.cuda.is_available():
            raise ConfigError("torch sees no CUDA device here; use --placements=cpu:worker")
    except ConfigError as error:
        sys.exit(f"error: {error}")
    found = time_updates(options) if options.updates else time_runs(options, arms)
    gpus = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    print(
        json_text(
            {
                "gpus": gpus,
                "cores": cpu_count(),
                "torch": torch.__version__,
                "env": options.env,
                "seconds": options.seconds,
                "flags": options.flags,
                "updates" if options.updates else "runs": found,
            }
        )
    )


if __name__ == "__main__":
    environment = environment_to_restart_with()
    if environment is not None:
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    main()
