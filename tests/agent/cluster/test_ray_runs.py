"""Real Ray: whole runs of main.py, which learn, are interrupted, stand still, and share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from ritornello.agent.stored.checkpoint import load
from tests.agent.cluster.ray_helpers import WITH_RAY, processes_of_ray
from tests.deadlines import HANGS_S
from tests.house import ROOT
from tests.integration.commands import only_run, records, run

pytestmark = WITH_RAY

RAY = "--multiprocessing_backend=ray"
SOLVED = 475.0  # mean return over 100 games, CartPole-v1's own limit; at random it is 22
STANDS_S = 20.0  # long enough for queues that nobody empties to show
MAX_GROWTH = 30e6  # bytes: queues without bounds would take some hundred MB in that time


def start(folder, *flags):
    return subprocess.Popen(
        [
            *(sys.executable, "main.py", "--env=CartPole-v1", RAY, "--worker_count=2"),
            *("--envs_per_worker=2", f"--results_dir={folder}", "--run_name=with_ray"),
            *("--log_interval_s=0.5", "--charts=False", "--tensorboard=False", *flags),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # as in a terminal of its own
    )


def wait_for_updates(process, folder):
    metrics = folder / "with_ray" / "metrics.jsonl"
    deadline = time.monotonic() + HANGS_S
    while not metrics.exists() or all(
        '"updates": 0,' in line for line in metrics.read_text("utf-8").splitlines()
    ):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.5)
    return metrics.parent


def sigterm(process):
    os.kill(process.pid, signal.SIGTERM)


def ctrl_c(process):
    """The terminal sends it to all processes of the group, those of Ray included."""
    os.killpg(process.pid, signal.SIGINT)


@pytest.mark.parametrize("stop", [sigterm, ctrl_c])
def test_a_run_with_a_private_ray_saves_when_it_is_told_to_stop(tmp_path, stop):
    before = processes_of_ray()
    process = start(tmp_path)
    try:
        folder = wait_for_updates(process, tmp_path)
        stop(process)
        output, _ = process.communicate(timeout=HANGS_S)
    finally:
        process.kill()
    assert process.returncode == 130, output
    assert output.count("stopping: saving a checkpoint") == 1
    assert "Traceback" not in output
    assert load(folder).state["tally"]["updates"] == records(folder)[-1]["updates"] > 0
    assert "cluster/machines" in (folder / "metrics.jsonl").read_text("utf-8")
    deadline = time.monotonic() + HANGS_S
    while processes_of_ray() != before:
        assert time.monotonic() < deadline, processes_of_ray()
        time.sleep(0.1)


def memory_beside(learner):
    """Bytes of all processes of a run but the learner, shared memory (Ray's store) included."""
    total = 0
    for process in learner.children(recursive=True):
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue
    return total


def test_while_the_learner_stands_still_nothing_grows(tmp_path):
    process = start(tmp_path)
    try:
        folder = wait_for_updates(process, tmp_path)
        learner = psutil.Process(process.pid)
        learner.suspend()
        time.sleep(STANDS_S)  # all queues fill
        full = memory_beside(learner)
        time.sleep(STANDS_S)
        assert memory_beside(learner) - full < MAX_GROWTH
        learner.resume()
        seen = len(records(folder))
        deadline = time.monotonic() + HANGS_S
        while len(records(folder)) < seen + 3:  # and it goes on
            assert time.monotonic() < deadline
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.5)
        last = records(folder)[-1]
        assert last["values"]["workers/lost_unrolls"] == 0
        sigterm(process)
        output, _ = process.communicate(timeout=HANGS_S)
    finally:
        process.kill()
    assert process.returncode == 130, output


@pytest.mark.learning
def test_workers_in_ray_learn_cartpole(tmp_path):
    status, output = run(
        tmp_path, "--env=CartPole-v1", "--seed=1", RAY, "--worker_count=2", "--envs_per_worker=4",
        "--environment_max_steps=300000", f"--stop_at_mean_return={SOLVED}",
        timeout=1_700,
    )  # fmt: skip
    assert status == 0, output
    folder = only_run(tmp_path)
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    assert summary["reason"] == "return", summary
    assert max(record["values"].get("cluster/machines", 0) for record in records(folder)) == 1
