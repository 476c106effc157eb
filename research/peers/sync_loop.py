"""Driver of the one-process loop of our own parts (benchmarks/one_process_loop.py).

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

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.one_process_loop import loop_flags, updates
from ritornello.agent.machine import cpu_count
from ritornello.core.process_death import end_with_starter
from ritornello.core.process_settings import environment_to_restart_with


def write(path: Path, **line: Any) -> None:
    """Append one JSON line to the file at `path`."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, allow_nan=False) + "\n")


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
    values = loop_flags(options.env, games)
    flags = {k: v for k, v in values.items() if k != "replay_parameters"}
    flags |= {"torch_threads": cpu_count()}
    progress = Path(options.progress)
    write(progress, flags=json.dumps(flags, allow_nan=False))
    for number, steps in enumerate(updates(values, games), start=1):
        if number >= options.from_update:
            write(progress, steps=steps, wall_s=time.monotonic())


if __name__ == "__main__":
    main()
