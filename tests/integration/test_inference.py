"""Whole runs in which one server acts for all workers."""

import sys
from pathlib import Path

import pytest

from ritornello.agent.stored.checkpoint import load
from tests.deadlines import wait_until
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


def children(process):
    """(the server, the two workers) of a run, as soon as all have started."""

    def started():
        alive = descendants(process.pid)
        servers = [child for child in alive if mapped(child) == {"mailbox"}]
        workers = [child for child in alive if mapped(child) == {"ring", "mailbox"}]
        return (*servers, workers) if (len(servers), len(workers)) == (1, 2) else None

    return wait_until(started, "no server and two workers")


@pytest.mark.slow
@linux_only
def test_a_killed_server_and_a_killed_worker_are_replaced_and_the_run_stops_cleanly(tmp_path):
    process = start(tmp_path, *SERVER, FOR_EVER)
    try:
        folder = wait_for_records(tmp_path, 1)
        for restarts, who in enumerate(("server", "worker"), 1):
            server, workers = children(process)
            (server if who == "server" else workers[0]).kill()

            def last(name):
                record = records(folder)[-1]
                return {**record, **record["values"]}.get(name, 0)

            wait_until(lambda n=restarts: last("workers/restarts") >= n, f"{who}: not noticed")
            steps = last("agent_steps")
            wait_until(lambda n=steps: last("agent_steps") > n + 100, f"{who}: it did not go on")
        status, output = interrupt(process)
    finally:
        process.kill()
    assert status == 130, output
    assert output.count("was killed by signal 9") == 2
    assert "inference server (pid" in output
    assert load(folder).state["tally"]["updates"] > 0
