"""Real Ray: whole runs of main.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from tests.agent.cluster.ray_helpers import WITH_RAY
from tests.deadlines import HANGS_S
from tests.house import ROOT

pytestmark = WITH_RAY

RAY = "--multiprocessing_backend=ray"


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


def test_a_run_with_a_private_ray_learns_and_saves_when_it_is_told_to_stop(tmp_path):
    process = start(tmp_path)
    try:
        folder = wait_for_updates(process, tmp_path)
        os.kill(process.pid, signal.SIGTERM)
        output, _ = process.communicate(timeout=HANGS_S)
    finally:
        process.kill()
    assert process.returncode == 130, output
    assert list(folder.glob("*.pt")) or list(folder.rglob("checkpoint*")), output
    assert "cluster/hosts" in (folder / "metrics.jsonl").read_text("utf-8")
