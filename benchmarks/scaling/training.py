"""A whole training by the default command, with its workers here or in a private Ray.

What counts is measured from outside, between two records of the run: agent steps, and processor
time of all of its processes.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.programs import undisturbed
from benchmarks.scaling.processes import Processes, difference
from benchmarks.scaling.ray_cluster import end_all
from ritornello.core.process_death import environment_for_child

ROOT = Path(__file__).resolve().parents[2]
BACKENDS = {"native": "python_native", "ray": "ray"}
START_S = 400.0
STOP_S = 60.0
LOOK_S = 0.05


def train(backend: str, env: str, seconds: float, warm_up_s: float) -> dict[str, Any]:
    """Train, and return what was measured.

    Args:
      backend: native or ray.
      env: the game.
      seconds: that count.
      warm_up_s: before them, from the first update on.

    Raises:
      SystemExit: the run has ended, or made no update.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, str(ROOT / "main.py"), f"--env={env}", "--seed=1"),
            *(f"--multiprocessing_backend={BACKENDS[backend]}", f"--results_dir={folder}"),
            *("--run_name=bench", "--log_interval_s=0.5", "--tensorboard=False", "--charts=False"),
        ]
        with open(Path(folder) / "output", "w+", encoding="utf-8") as output:
            process = subprocess.Popen(
                command, cwd=ROOT, stdout=output, stderr=output, env=environment_for_child()
            )
            try:
                records = Records(process, Path(folder) / "bench" / "metrics.jsonl")
                measured = _watch(process, records, backend, seconds, warm_up_s)
            except _Ended as error:
                output.seek(0)
                raise SystemExit(f"{error}\n{output.read()[-2000:]}") from error
            finally:
                _end(process)
    return {"backend": backend, "env": env, **measured}


class _Ended(Exception):
    """The run is over, or does not begin."""


class Records:
    """The records of a run that is under way."""

    def __init__(self, process: subprocess.Popen[bytes], path: Path) -> None:
        """Nothing is read yet.

        Args:
          process: the run.
          path: of its metrics.jsonl, which need not be there yet.
        """
        self._process, self._path = process, path
        self._read = 0

    def next(self) -> dict[str, Any]:
        """Wait for a new record and return the newest one."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise _Ended(f"the run has ended with status {self._process.returncode}")
            with contextlib.suppress(OSError):
                whole = self._path.read_text("utf-8").split("\n")[:-1]
                if len(whole) > self._read:
                    self._read = len(whole)
                    newest: dict[str, Any] = json.loads(whole[-1])
                    return newest
            time.sleep(LOOK_S)
        raise _Ended(f"the run has written nothing for {START_S:.0f} s")


def _watch(
    process: subprocess.Popen[bytes],
    records: Records,
    backend: str,
    seconds: float,
    warm_up_s: float,
) -> dict[str, Any]:
    processes = Processes(has_gateway=backend == "ray", owner=process.pid)
    while not records.next()["updates"]:
        pass
    warm = time.monotonic() + warm_up_s
    first = records.next()
    while time.monotonic() < warm:
        first = records.next()
    cpu_before, began = processes.cpu_s(), time.monotonic()
    last = first
    while time.monotonic() - began < seconds:
        last = records.next()
    cpu = difference(processes.cpu_s(), cpu_before)
    steps = last["agent_steps"] - first["agent_steps"]
    wall_s = last["wall_s"] - first["wall_s"]
    if not steps:
        raise _Ended("no agent step was played in the seconds that count")
    return {
        "seconds": round(wall_s, 1),
        "updates_counted": [first["updates"], last["updates"]],
        "agent_steps_per_s": round(steps / wall_s, 1),
        "cpu_s_per_1000_steps": round(1000 * sum(cpu.values()) / steps, 4),
        "cores": {kind: round(value / wall_s, 4) for kind, value in cpu.items()},
    }


@undisturbed()
def _end(process: subprocess.Popen[bytes]) -> None:
    """Stop a run, and everything that it has started."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        children = []
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    end_all(children)
