"""Twelve faults of twelve kinds, injected into real trainings: the short form of `make chaos`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.zygote import ROOT

SAMPLES = (
    "kill-worker", "kill-learner", "kill-server", "signal-once-in-finishing",
    "signal-twice-in-training", "signal-once-in-import", "closed-pipe", "disk-full",
    "damaged-checkpoint", "environment-of-a-stranger", "environment-no-numbers", "two-runs",
)  # fmt: skip
LIMIT_S = 900  # each takes some seconds alone, and a minute beside many other tests


@pytest.mark.chaos
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the harness needs Linux")
def test_twelve_kinds_of_faults_cost_nothing(tmp_path: Path) -> None:
    seed = os.environ.get("CHAOS_SEED", "1")
    command = [
        sys.executable, "-m", "tests.chaos", f"--seed={seed}", f"--faults={len(SAMPLES)}",
        f"--only={','.join(f'^{name}$' for name in SAMPLES)}", f"--results_dir={tmp_path}",
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    (path,) = tmp_path.glob("chaos_*/outcomes.jsonl")
    outcomes = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted(each["fault"] for each in outcomes) == sorted(SAMPLES)
    configurations = [each["plan"].get("configuration", {}) for each in outcomes]
    assert {each.get("numbers", False) for each in configurations} == {True, False}
    bad = [each for each in outcomes if each["verdict"] in ("LOST", "broken", "error")]
    assert not bad, done.stdout
    assert done.returncode == 0, done.stdout + done.stderr
