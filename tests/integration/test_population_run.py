"""Agents that share their replay, as a user starts them: one is killed, one is frozen."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import psutil
import pytest

from ritornello.agent.stored.checkpoint import load
from ritornello.metrics.record import METRICS
from ritornello.sequences.folder import SequenceFolder
from tests.integration.commands import (
    HANGS_S,
    QUIET,
    ROOT,
    SMALL,
    interrupt,
    only_run,
    records,
    start,
)

ENDLESS = "--environment_max_steps=100000000"
MASK = "--use_kl_mask=True"
REPLAY = (
    '--replay_parameters=[{"type": "queue", "capacity": 4, "sample_ratio": 0.5}, '
    '{"type": "standard", "capacity": 3000, "sample_ratio": 0.5}]'
)


class Agents:
    """Two agents in processes of their own, that are ended whatever happens."""

    def __init__(self, path: Path, backend: str = "python_native") -> None:
        self.path = path
        self.backend = backend
        self.processes: dict[int, subprocess.Popen[str]] = {}

    def flags(self, number: int) -> list[str]:
        folder = f"--share_replay_in={self.path / 'exchange'}"
        workers = f"--multiprocessing_backend={self.backend}"
        place = (folder, "--agent_count=2", f"--agent_number={number}")
        return [*SMALL, MASK, REPLAY, workers, *place]

    def results(self, number: int) -> Path:
        return self.path / f"results{number}"

    def start(self, number: int, *more: str) -> None:
        worker = "--worker_count=1"
        flags = [*self.flags(number), worker, ENDLESS, "--save_replay=True", *more]
        self.processes[number] = start(self.results(number), *flags)

    def values(self, number: int) -> dict[str, float]:
        """The newest value of each metric, and the updates."""
        found: dict[str, float] = {}
        for path in self.results(number).glob("*/metrics.jsonl"):
            for line in path.read_text("utf-8").splitlines(keepends=True):
                if line.endswith("\n"):
                    record = json.loads(line)
                    found |= {**record["values"], "updates": record["updates"]}
        return found

    def wait_for(self, number: int, what: Callable[[dict[str, float]], bool]) -> dict[str, float]:
        deadline = time.monotonic() + HANGS_S
        while time.monotonic() < deadline:
            values = self.values(number)
            if what(values):
                return values
            assert self.processes[number].poll() is None, self.processes[number].communicate()[0]
            time.sleep(0.1)
        raise AssertionError(f"agent {number} never came so far: {self.values(number)}")

    def end(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.communicate()


def hears(metric: str, more_than: float = 0.0) -> Callable[[dict[str, float]], bool]:
    return lambda values: values.get(metric, 0.0) > more_than


@pytest.mark.process
@pytest.mark.slow
def test_agents_learn_from_each_other_and_the_death_of_one_hurts_no_other(tmp_path: Path) -> None:
    live_through_deaths(tmp_path, "python_native")


def live_through_deaths(tmp_path: Path, backend: str) -> None:
    """Let two agents share, freeze one, kill it, start it anew, and look at what was shared."""
    agents = Agents(tmp_path, backend)
    try:
        agents.start(0)
        agents.start(1)
        for number in (0, 1):
            values = agents.wait_for(number, hears(f"share/agent_{1 - number}/drawn_fraction"))
            assert 0 <= values[f"share/agent_{1 - number}/trusted_fraction"] <= 1
            # Its own appears with the first replayed unroll of its own, which may come later.
            agents.wait_for(number, hears(f"share/agent_{number}/drawn_fraction"))
            assert f"share/agent_{number}/trusted_fraction" in agents.values(number)

        # Frozen: the other goes on; thawed: it is heard again.
        agents.processes[1].send_signal(signal.SIGSTOP)
        updates = agents.values(0)["updates"]
        agents.wait_for(0, hears("updates", updates + 100))
        taken = agents.values(0)["share/agent_1/taken"]
        agents.processes[1].send_signal(signal.SIGCONT)
        agents.wait_for(0, hears("share/agent_1/taken", taken + 20))

        # Killed: the other goes on.
        for child in psutil.Process(agents.processes[1].pid).children(recursive=True):
            child.kill()
        agents.processes[1].kill()
        agents.processes[1].communicate()
        updates = agents.values(0)["updates"]
        agents.wait_for(0, hears("updates", updates + 100))

        # Back again, as a new run: it is heard again.
        taken = agents.values(0)["share/agent_1/taken"]
        agents.start(1, "--run_name=again")
        agents.wait_for(0, hears("share/agent_1/taken", taken + 20))

        for number in (0, 1):  # first the one whose replay is looked at
            status, output = interrupt(agents.processes[number])
            assert status == 130, output
    finally:
        agents.end()
    written = {name for r in records(only_run(agents.results(0))) for name in r["values"]}
    promised = [name for name in METRICS if name.startswith("share/")]
    assert [name for name in promised if not any(fnmatchcase(w, name) for w in written)] == []
    assert agents.values(0)["share/agent_1/refused"] == 0
    # What was saved says who made it, and nothing foreign was ever new.
    contents = load(only_run(agents.results(0))).load_replay()["contents"]
    items = contents["items"]
    makers = dict(zip(items["ids"].tolist(), items["agents"].tolist(), strict=True))
    queue, ring = contents["buffers"]
    assert {makers[i] for i in queue["ids"].tolist()} <= {-1}
    assert {makers[int(i)] for ids in contents["collected"] for i in ids} <= {-1}
    assert {makers[i] for i in ring["ids"].tolist()} == {-1, 1}


@pytest.mark.process
@pytest.mark.slow
def test_a_population_runs_resumes_and_has_its_table(tmp_path: Path) -> None:
    sequence = tmp_path / "small.yaml"
    flags = dict(flag[2:].split("=", 1) for flag in SMALL)
    flags.pop("seed")
    base = {**flags, "worker_count": 1, "use_kl_mask": True, "environment_max_steps": 4000}
    lines = [f"  {name}: {value}" for name, value in base.items()]
    sequence.write_text(
        "share_replay: true\nbase:\n" + "\n".join(lines) + "\n"
        "runs:\n"
        "  - {name: low, flags: {entropy_loss_weight: 0.001}}\n"
        "  - {name: short, flags: {gamma: 0.5}}\n"
        "  - {name: high, flags: {entropy_loss_weight: 0.05}}\n"
    )
    command = [sys.executable, "multi_train.py", f"--results_dir={tmp_path / 'results'}"]
    done = subprocess.run(
        [*command, f"--sequence={sequence}", *QUIET],
        cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    folder = SequenceFolder.open(only_run(tmp_path / "results"))
    assert [state.status for state in folder.runs] == ["done"] * 3
    for state in folder.runs:
        last = records(folder.run_folders(state)[-1].path)[-1]["values"]
        assert last["share/sent"] > 0
    assert (folder.path / "population.png").exists()
    rows = (folder.path / "population.md").read_text().splitlines()
    assert sum(row.startswith(("| 0: low", "| 1: short", "| 2: high")) for row in rows) == 3
    assert not list(folder.path.glob("exchange_*"))
