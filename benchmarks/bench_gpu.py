"""How long an update of the learner takes, by network and batch, on a CPU and on a GPU.

    python benchmarks/bench_gpu.py --seconds=20

Nothing is played: the same batch is learned from again and again. On a GPU an update is computed,
and replayed from a recording (agent/learning/recorded.py). How fast whole runs are with a GPU is
told by `bench_end_to_end.py --config=default --part_seconds=0 -- --device=cuda`.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.parts import PARTS  # noqa: E402
from ritornello.agent.assembly import Blueprint  # noqa: E402
from ritornello.agent.machine import cpu_count  # noqa: E402
from ritornello.agent.models.pixels import OBSERVED_BATCHES  # noqa: E402
from ritornello.core.plain_data import json_text  # noqa: E402
from ritornello.core.process_settings import restart_with_settings  # noqa: E402
from ritornello.flags.options import Flags  # noqa: E402

NETWORKS = ("impala_shallow", "resnet_light", "resnet")
BATCHES = (8, 32)  # unrolls of an update
SETTLED_UPDATES = OBSERVED_BATCHES + 30  # then nothing but the update is computed


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


def main() -> None:
    """Run the benchmark; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--env", default="BreakoutNoFrameskip-v4")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each measurement")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    ways = [("cpu", False)]
    if torch.cuda.is_available():
        ways += [("cuda", False), ("cuda", True)]
    for network, size, (device, recorded) in product(options.networks, BATCHES, ways):
        values = {"env": options.env, "seed": 1, "model": network, "device": device}
        values |= {"batch_size": size, "compile": "auto" if recorded else False}
        how = f"{device}, {'replayed' if recorded else 'computed'}"
        ms = round(update_ms(values, options.seconds), 3)
        print(f"{network:<16}{size:>3} unrolls  {how}: {ms:.2f} ms", flush=True)
        row = {"network": network, "batch": size, "device": device, "recorded": recorded}
        found.append(row | {"update_ms": ms})
    gpus = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    machine = {"gpus": gpus, "cores": cpu_count(), "torch": torch.__version__}
    print(json_text(machine | {"env": options.env, "updates": found}))


if __name__ == "__main__":
    restart_with_settings()
    main()
