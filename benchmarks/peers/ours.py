"""Driver of this platform: main.py as bench_end_to_end.py starts it, reported like the others.

Runs until it is stopped. Writes to `--progress`: first a line that describes the run, then one line
for each record of metrics.jsonl, {"steps": agent steps, "wall_s": time.monotonic()}.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.bench_end_to_end import REPLAYS, flag_values, real_run

POLL_S = 0.2
FOREVER_S = 86_400.0


def write(path: Path, **line: Any) -> None:
    """Append one JSON line to the file at `path`."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def forward(results: Path, progress: Path, ended: threading.Event) -> None:
    """Copy the counters of a run to the progress file while it writes them.

    Args:
      results: folder below which a metrics.jsonl will appear.
      progress: the progress file, which takes the lines.
      ended: event that stops the copying.
    """
    done, began_s = 0, 0.0
    while not ended.wait(POLL_S):
        for path in results.rglob("metrics.jsonl"):
            lines = path.read_text("utf-8").splitlines(keepends=True)
            for line in lines[done:]:
                if not line.endswith("\n"):
                    break  # half written
                done += 1
                record = json.loads(line)
                # Its clock starts with the run; ours is set by the first record, once.
                began_s = began_s or time.monotonic() - record["wall_s"]
                if record["updates"]:
                    write(progress, steps=record["agent_steps"], wall_s=began_s + record["wall_s"])


def main() -> None:
    """Train until stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    # The number of workers is not passed on: ours chooses it itself, one per core.
    for name in ("env", "workers", "envs_per_worker", "progress", "scratch"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--config", required=True, choices=REPLAYS)
    options = parser.parse_args()
    # Also where there is a GPU: the others are compared on the CPU.
    games = f"--envs_per_worker={options.envs_per_worker}"
    more = argparse.Namespace(env=options.env, flags=["--device=cpu", games])
    values = flag_values(options.config, more)
    flags = [f"--{k}={json.dumps(v) if isinstance(v, list) else v}" for k, v in values.items()]
    write(Path(options.progress), flags=" ".join(flags))
    tempfile.tempdir = options.scratch  # where real_run has the run folder made
    ended = threading.Event()
    watcher = threading.Thread(
        target=forward, args=(Path(options.scratch), Path(options.progress), ended), daemon=True
    )
    watcher.start()
    try:
        real_run(values, FOREVER_S)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)  # main.py has said why
    finally:
        ended.set()
        watcher.join()


if __name__ == "__main__":
    main()
