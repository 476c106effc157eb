"""How fast a real run is with a GPU, by network, and by where actions are chosen.

    python benchmarks/bench_gpu.py --seconds=20 --repeats=2

Each run is the default command with a network, a device of the learner and a place of inference.
A round runs every placement of every network once, so that placements of a network follow each
other; rounds are repeated. A placement that the machine does not have is an error.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from agent.machine import cpu_count  # noqa: E402
from benchmarks.bench_end_to_end import RealRun, arguments_of, real_run  # noqa: E402
from benchmarks.programs import leaving_by_exception  # noqa: E402
from core.errors import ConfigError  # noqa: E402
from core.process_settings import environment_to_restart_with  # noqa: E402
from flag_parsing import parse as parse_flags  # noqa: E402
from live.json_text import json_text  # noqa: E402

PLACEMENTS = ("cpu:worker", "cuda:worker", "cuda:server")  # device of the learner: inference
NETWORKS = ("impala_shallow", "resnet_light", "resnet")
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
    """Return what the runs of a placement showed; print its speed."""
    speed = statistics.median(run.speed for run in runs)
    print(f"{network:<16}{placement:<14}{speed:>8.0f} agent steps/s", flush=True)
    return {
        "network": network,
        "placement": placement,
        "sps": round(speed, 1),
        "sps_runs": [round(run.speed, 1) for run in runs],
        "updates_counted": [run.updates for run in runs],
        **{name: round(v, 3) for name, v in runs[-1].values.items() if name in SHOWN},
    }


def main() -> None:
    """Run the benchmark; the last line is JSON."""
    options = parse()
    arms = [(n, p) for n in options.networks for p in options.placements]
    runs: dict[tuple[str, str], list[RealRun]] = defaultdict(list)
    try:
        for arm in arms:  # before the first run
            parse_flags(command_line(*arm, options))
        wants_gpu = any(placement.startswith("cuda") for placement in options.placements)
        if wants_gpu and not torch.cuda.is_available():
            raise ConfigError("torch sees no CUDA device here; use --placements=cpu:worker")
    except ConfigError as error:
        sys.exit(f"error: {error}")
    with leaving_by_exception():
        for _ in range(options.repeats):
            for arm in arms:
                runs[arm].append(real_run(command_line(*arm, options), options.seconds))
                summary(*arm, runs[arm])
    gpus = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    print(
        json_text(
            {
                "gpus": gpus,
                "cores": cpu_count(),
                "torch": torch.__version__,
                "env": options.env,
                "seconds": options.seconds,
                "runs": [summary(*arm, runs[arm]) for arm in arms],
            }
        )
    )


if __name__ == "__main__":
    environment = environment_to_restart_with()
    if environment is not None:
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    main()
