"""Driver of this platform: main.py as bench_end_to_end.py starts it, reported like the others.

Runs until it is stopped. Writes to `--progress`: first a line that describes the run, then one line
for each record of metrics.jsonl from `--from_update` on, {"steps": agent steps, "wall_s":
time.monotonic()}.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.bench_end_to_end import REPLAYS, ROOT, arguments_of, flag_values, real_run
from ritornello.core.process_death import end_with_starter, environment_for_child
from ritornello.metrics.run_files import read_games

POLL_S = 0.2
FOREVER_S = 86_400.0


def write(path: Path, **line: Any) -> None:
    """Append one JSON line to the file at `path`."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, allow_nan=False) + "\n")


def forward(results: Path, progress: Path, ended: threading.Event, from_update: int) -> None:
    """Copy the counters of a run, and its games, to the progress file while it writes them.

    Args:
      results: folder below which a metrics.jsonl will appear.
      progress: the progress file, which takes the lines.
      ended: event that stops the copying.
      from_update: records of earlier updates are not copied.
    """
    done, games, began_s = 0, 0, 0.0
    while not ended.wait(POLL_S):
        for path in results.rglob("metrics.jsonl"):
            lines = path.read_text("utf-8").splitlines(keepends=True)
            before = done
            for line in lines[done:]:
                if not line.endswith("\n"):
                    break  # half written
                done += 1
                record = json.loads(line)
                # Its clock starts with the run; ours is set by the first record, once.
                began_s = began_s or time.monotonic() - record["wall_s"]
                if record["updates"] >= from_update:
                    write(progress, steps=record["agent_steps"], wall_s=began_s + record["wall_s"])
            if done == before:
                continue
            played = read_games(path.parent)
            for score, seconds in zip(played.returns[games:], played.wall_s[games:], strict=True):
                write(progress, game=score, wall_s=began_s + seconds)
            games = len(played.returns)


def equal_work(options: argparse.Namespace) -> dict[str, Any]:
    """Return flags with which the work is that of the other systems: as many games, too."""
    # By itself it would have a worker for each core, with as many games each: 24 games on 6 cores.
    workers = f"--worker_count={options.workers}"
    games = f"--envs_per_worker={options.envs_per_worker}"
    more = argparse.Namespace(env=options.env, flags=["--device=cpu", workers, games])
    return flag_values(options.config, more)


def default_values(options: argparse.Namespace) -> dict[str, Any]:
    """Return what a user gives who chooses a game and a seed."""
    return {"env": options.env, "seed": options.seed, "device": "cpu"}


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read the options of the driver."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("env", "workers", "envs_per_worker", "seed", "progress", "scratch"):
        parser.add_argument(f"--{name}", required=True)
    # Always on the CPU, also where there is a GPU: there the others are compared.
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--config", choices=REPLAYS)
    what.add_argument("--as_published", action="store_true", help="the default command")
    parser.add_argument("--from_update", type=int, default=1, help="report none before")
    return parser.parse_args(argv)


def main() -> None:
    """Train until stopped."""
    end_with_starter()
    options = parse(sys.argv[1:])
    values = default_values(options) if options.as_published else equal_work(options)
    flags = arguments_of(values)
    write(Path(options.progress), flags=" ".join(flags))
    tempfile.tempdir = options.scratch  # where real_run has the run folder made
    ended = threading.Event()
    watcher = threading.Thread(
        target=forward,
        args=(Path(options.scratch), Path(options.progress), ended, options.from_update),
        daemon=True,
    )
    watcher.start()
    try:
        if options.as_published:
            command = [sys.executable, str(ROOT / "main.py"), "--op_mode=train", *flags]
            command.append(f"--results_dir={options.scratch}")
            subprocess.run(command, check=True, cwd=ROOT, env=environment_for_child())
        else:
            real_run(arguments_of(values), FOREVER_S)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)  # main.py has said why
    finally:
        ended.set()
        watcher.join()


if __name__ == "__main__":
    main()
