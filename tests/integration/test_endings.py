import os
import pty
import signal
import time
from pathlib import Path

import pytest

from ritornello.agent.stored.checkpoint import load
from tests.deadlines import wait_until
from tests.integration.commands import (
    HANGS_S,
    SMALL,
    only_run,
    records,
    start,
    started,
    wait_for_records,
)

pytestmark = pytest.mark.process
ENDLESS = "--environment_max_steps=100000000"


def log_of(results):
    return (only_run(results) / "train.log").read_text("utf-8")


def updates_saved(folder):
    return load(folder).state["tally"]["updates"]


def has_begun(process):
    """Whether the first lines of main.py are done: it holds signals back, or has a handler."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in status.splitlines() if line[:6] in MASKS]
    return any(mask >> (signal.SIGHUP - 1) & 1 for mask in masks)


MASKS = ("SigBlk", "SigCgt")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks at /proc")
@pytest.mark.parametrize(
    ("number", "seconds"),
    [
        (signal.SIGINT, 1.5),
        *(pytest.param(signal.SIGINT, seconds, marks=pytest.mark.slow) for seconds in (0.0, 3.0)),
        *(pytest.param(signal.SIGTERM, s, marks=pytest.mark.slow) for s in (0.0, 1.5, 3.0)),
        *(pytest.param(signal.SIGHUP, s, marks=pytest.mark.slow) for s in (0.0, 1.5, 3.0)),
    ],
)
def test_a_signal_while_the_program_starts_ends_it_with_130_and_without_a_traceback(
    tmp_path, number, seconds
):
    with started(tmp_path, *SMALL, ENDLESS) as process:
        wait_until(lambda: has_begun(process), process=process)
        time.sleep(seconds)  # in the first start, in the second, in imports, or beyond them
        process.send_signal(number)
        output, _ = process.communicate(timeout=HANGS_S)
    assert process.returncode == 130, output
    assert "Traceback" not in output


@pytest.mark.slow
def test_a_frozen_terminal_stops_neither_the_training_nor_its_end(tmp_path):
    """Ctrl-S, or a connection that hangs: nobody reads what is written."""
    master, slave = pty.openpty()
    process = start(tmp_path, *SMALL, ENDLESS, "--log_interval_s=0.05", stdout=slave, stderr=slave)
    os.close(slave)
    try:
        folder = wait_for_records(tmp_path, 60)  # a pty holds a few kB only
        seen = len(records(folder))
        wait_for_records(tmp_path, seen + 20)
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANGS_S) == 130
    finally:
        process.kill()
        os.close(master)
    assert updates_saved(folder) == records(folder)[-1]["updates"]
