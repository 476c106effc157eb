"""status.json of whole runs: one that ends, one that is killed and goes on, one that fails."""

import contextlib
import json
import signal

import pytest

from ritornello.analysis.places import ResultsFolder
from ritornello.live.overview import Overview
from tests.deadlines import HANGS_S, wait_until
from tests.integration.commands import SMALL, hurt_by, only_run, run, start

pytestmark = [pytest.mark.process, pytest.mark.slow]


def said(folder):
    with contextlib.suppress(FileNotFoundError):
        return json.loads((folder / "status.json").read_text("utf-8"))


def is_training(results):
    return [
        status
        for folder in results.glob("*/")
        if (status := said(folder)) is not None and status["state"] == "training"
    ]


def test_a_run_that_is_killed_is_seen_to_have_died_and_goes_on_as_the_next_session(tmp_path):
    endless = "--environment_max_steps=100000000"
    process = start(tmp_path, *SMALL, endless, "--save_model_period=5", "--log_interval_s=0.1")
    try:
        (status,) = wait_until(lambda: is_training(tmp_path), process=process)
        assert status["pid"] == process.pid
        folder = only_run(tmp_path)
        wait_until(lambda: any(folder.glob("checkpoints/*.pt")))
        # A name in the table is a process of this run.
        workers = said(folder)["workers"]
        assert [worker["number"] for worker in workers] == [0, 1]
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=HANGS_S)
    (seen,) = Overview(ResultsFolder(tmp_path)).runs()
    assert seen["state"] == "stopped"
    steps = said(folder)["agent_steps"]
    status, output = run(
        tmp_path, "--op_mode=train_w_load", f"--load_model_url={folder}",
        f"--environment_max_steps={steps + 2000}",
    )  # fmt: skip
    assert status == 0, output
    now = said(folder)
    assert (now["state"], now["reason"], now["session"]) == ("ended", "steps", 2)
    assert now["agent_steps"] >= steps + 2000
    assert not list(folder.glob(".*.tmp"))


def test_a_run_that_fails_says_so_and_why(tmp_path):
    fault = '[{"at": "learner.step", "nth": 3, "do": "raise"}]'
    status, output = run(tmp_path, *SMALL, program=hurt_by(fault))
    folder = only_run(tmp_path)
    assert status == 1, output
    now = said(folder)
    assert now["state"] == "failed"
    assert "learner.step" in now["reason"]
