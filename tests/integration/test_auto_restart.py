"""A learner that is killed goes on by itself from its newest checkpoint."""

import os
import signal
import time

import pytest

from tests.deadlines import HANGS_S
from tests.integration.commands import (
    SMALL,
    descendants,
    only_run,
    records,
    start,
    wait_for_records,
)

pytestmark = [pytest.mark.process, pytest.mark.slow]


def learner_of(process):
    (learner,) = [
        child for child in descendants(process.pid) if child.ppid() == process.pid
    ]  # the workers are its own
    return learner


def test_a_killed_learner_is_resumed_in_its_folder_and_reaches_the_end(tmp_path):
    process = start(
        # Far enough away that the learner cannot be there before it is killed.
        tmp_path, *SMALL, "--environment_max_steps=30000", "--save_model_period=20",
        "--auto_restart=2",
    )  # fmt: skip
    try:
        folder = wait_for_records(tmp_path, 2, deadline_s=HANGS_S)
        deadline = time.monotonic() + HANGS_S
        while not list((folder / "checkpoints").glob("update_*.pt")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        killed = learner_of(process)
        os.kill(killed.pid, signal.SIGKILL)
        output, _ = process.communicate(timeout=HANGS_S)
    finally:
        process.kill()
    assert process.returncode == 0, output
    assert "the learner was killed by signal 9 (SIGKILL); resuming" in output
    assert only_run(tmp_path) == folder
    assert records(folder)[-1]["agent_steps"] >= 6000
    for counter in ("updates", "agent_steps", "wall_s"):
        counts = [record[counter] for record in records(folder)]
        assert counts == sorted(counts)
