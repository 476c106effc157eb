import os
import signal
import subprocess
import sys

import pytest

from ritornello.agent.stored.checkpoint import load
from tests.agent.cluster.ray_helpers import WITH_RAY, processes_of_ray
from tests.deadlines import HANGS_S, wait_until
from tests.house import ROOT
from tests.integration.commands import records

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
        start_new_session=True,  # as in a terminal of its own
    )


def wait_for_updates(process, folder):
    metrics = folder / "with_ray" / "metrics.jsonl"
    wait_until(
        lambda: (
            metrics.exists()
            and any('"updates": 0,' not in line for line in metrics.read_text("utf-8").splitlines())
        ),
        process=process,
    )
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
    wait_until(lambda: processes_of_ray() == before)
