import json
import subprocess
import sys

import pytest

from tests.integration.commands import HANGS_S, ROOT

COMMAND = [sys.executable, "benchmarks/bench_scaling.py"]


@pytest.mark.process
@pytest.mark.slow
def test_both_ways_are_measured_with_all_their_processes():
    done = subprocess.run(
        [*COMMAND, "--backends=native,threads", "--env=CartPole-v1", "--seconds=2", "--hosts=2"],
        cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S, check=True,
    )  # fmt: skip
    native, threads = map(json.loads, done.stdout.splitlines())
    assert (native["backend"], threads["backend"]) == ("native", "threads")
    for point in (native, threads):
        assert point["agent_steps_per_s"] > 0
        # At least the workers' own work: no step of CartPole with a network takes below 1 us.
        assert 0.001 < point["cpu_s_per_1000_steps"] < 1000
        assert point["cpu_ms_per_block"]["consumer"] > 0
    assert threads["cluster/hosts"] == 2
    assert threads["cluster/blocks_refused"] == 0


@pytest.mark.process
def test_what_cannot_be_measured_is_refused():
    for wrong in ("--backends=carrier_pigeon", "--hosts=3", "--backends=native,threads"):
        done = subprocess.run(
            [*COMMAND, "--kinds=training", wrong],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=HANGS_S,
            check=False,
        )
        assert done.returncode == 2
        assert wrong.partition("=")[0] in done.stderr
