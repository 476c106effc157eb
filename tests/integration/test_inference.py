"""Whole runs in which one server acts for all workers."""

import sys
import time
from pathlib import Path

import pytest

from ritornello.agent.stored.checkpoint import load
from tests.integration.commands import (
    SMALL,
    descendants,
    interrupt,
    records,
    start,
    wait_for_records,
)

pytestmark = pytest.mark.process
SERVER = (*SMALL, "--inference=server", "--device=cpu")
FOR_EVER = "--environment_max_steps=100000000"
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def mapped(process):
    """Names of the shared memory that a process has mapped."""
    try:
        text = Path(f"/proc/{process.pid}/maps").read_text()
    except OSError:
        return set()
    return {name for name in ("ring", "mailbox") if f"vtrace_{name}" in text}


def children(process, limit_s=45):
    """(the server, the two workers) of a run, as soon as all have started."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        alive = descendants(process.pid)
        servers = [child for child in alive if mapped(child) == {"mailbox"}]
        workers = [child for child in alive if mapped(child) == {"ring", "mailbox"}]
        if len(servers) == 1 and len(workers) == 2:
            return servers[0], workers
        time.sleep(0.05)
    raise AssertionError(f"no server and two workers in {limit_s} s")


@pytest.mark.slow
@linux_only
def test_a_killed_server_and_a_killed_worker_are_replaced_and_the_run_stops_cleanly(tmp_path):
    process = start(tmp_path, *SERVER, FOR_EVER)
    try:
        folder = wait_for_records(tmp_path, 1)
        for restarts, who in enumerate(("server", "worker"), 1):
            server, workers = children(process)
            (server if who == "server" else workers[0]).kill()
            deadline = time.monotonic() + 45
            while records(folder)[-1]["values"].get("workers/restarts", 0) < restarts:
                assert time.monotonic() < deadline, f"the death of the {who} was not noticed"
                time.sleep(0.1)
            steps = records(folder)[-1]["agent_steps"]
            while records(folder)[-1]["agent_steps"] <= steps + 100:
                assert time.monotonic() < deadline, f"without its {who} the run did not go on"
                time.sleep(0.1)
        status, output = interrupt(process)
    finally:
        process.kill()
    assert status == 130, output
    assert output.count("was killed by signal 9") == 2
    assert "inference server (pid" in output
    assert load(folder).state["tally"]["updates"] > 0
