from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from research.queue import index, trainer_process
from research.queue.plan import PlannedRun, load_queue
from research.queue.queue_loop import Places, QueueLoop, StopRequests
from research.queue.store import Store
from tests.deadlines import HANGS_S
from tests.house import ROOT

FAKE_MAIN = Path(__file__).with_name("fake_main.py")

# A queue as a process of its own, with the fake program in the place of main.py.
QUEUE_PROCESS = """
import sys
from pathlib import Path
from research.queue import __main__ as program, trainer_process, queue_loop
trainer_process.POLL_S = 0.02
program.GRACE_S = queue_loop.GRACE_S = float(sys.argv[2])
real = program.Places
program.Places = lambda *args, **more: real(*args, main_program=Path(sys.argv[1]), **more)
sys.exit(program.main(sys.argv[3:]))
"""


def entry(name: str = "first", **changes: Any) -> dict[str, Any]:
    """Return an entry of a queue: one run of CartPole, 1000 steps."""
    return {
        "name": name,
        "question": "Is it so?",
        "what_counts": "The area.",
        "priority": 1,
        "games": ["CartPole-v1"],
        "seeds": [1],
        "steps": 1000,
        **changes,
    }


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait until something is so; fail after a deadline."""
    deadline = time.monotonic() + HANGS_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come about"
        time.sleep(0.02)


def lives(pid: int) -> bool:
    """Whether a process runs (one that ended, and that nobody has asked about yet, does not)."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@dataclass
class Bench:
    """A queue file, a store and a place for results, with a fake main program."""

    path: Path

    @property
    def places(self) -> Places:
        return Places(
            self.path / "queue.yaml", self.path / "store", self.path / "results", FAKE_MAIN
        )

    @property
    def store(self) -> Store:
        return Store(self.places.store)

    def write(self, *entries: dict[str, Any]) -> None:
        self.places.queue_file.write_text(yaml.safe_dump(list(entries), sort_keys=False))

    def runs(self) -> list[PlannedRun]:
        return load_queue(self.places.queue_file).runs

    def work(self, requests: StopRequests | None = None, seconds: float | None = None) -> QueueLoop:
        """Work on the queue in this process until nothing is left."""
        store = self.store
        store.lock(1.0, print)
        try:
            loop = QueueLoop(self.places, store, seconds)
            loop.run(requests or StopRequests())
        finally:
            store.close()
        return loop

    def rows(self) -> list[index.Row]:
        return list(index.read_index(self.places.results / index.INDEX_FILE).values())

    def statuses(self) -> dict[str, str]:
        return {row.run: row.status for row in self.rows()}

    def output(self, run: PlannedRun) -> str:
        return (self.store.folder(run) / "output.log").read_text()

    def queue_process(self, *arguments: str, grace_s: float = 20.0) -> subprocess.Popen[str]:
        """Start `python -m research.queue run` with the fake program."""
        places = self.places
        return subprocess.Popen(
            [
                *(sys.executable, "-c", QUEUE_PROCESS, str(FAKE_MAIN), str(grace_s), "run"),
                f"--queue={places.queue_file}",
                f"--store={places.store}",
                f"--results_dir={places.results}",
                *arguments,
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def waiting_pid(self) -> int | None:
        """Return the process id of a trainer that waits at half-time."""
        for mark in self.places.store.glob("*/*/*/waits"):
            return int(json.loads((mark.parent / "flags.json").read_text())["pid"])
        return None


def options(bench: Bench) -> list[str]:
    """Return what `python -m research.queue` has to be told to work on a bench."""
    places = bench.places
    where = [f"--queue={places.queue_file}", f"--store={places.store}"]
    return [*where, f"--results_dir={places.results}"]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(trainer_process, "POLL_S", 0.02)
    made = Bench(tmp_path)
    made.write(entry())
    return made
