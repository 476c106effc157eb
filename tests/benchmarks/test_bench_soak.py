import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.bench_soak import Sample, growth
from tests.integration.commands import HANGS_S, ROOT, SMALL


def samples(memory):
    return [Sample(10.0 * number, 0, 3, value, 1.0, 30, 9) for number, value in enumerate(memory)]


def test_a_leak_is_told_from_noise_and_from_one_high_sample():
    noise = np.random.default_rng(1).normal(0.0, 5.0, 400)
    assert abs(growth(samples(1000 + noise), "pss_mb")["grown"]) < 3
    leak = 1000 + noise + 0.5 * np.arange(400)
    assert growth(samples(leak), "pss_mb")["grown"] == pytest.approx(200, abs=5)
    peak = np.full(400, 1000.0)
    peak[-1] = 1100
    assert growth(samples(peak), "pss_mb")["grown"] < 2


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc/<pid>/smaps_rollup")
def test_a_short_soak_measures_the_tree_and_draws(tmp_path):
    done = subprocess.run(
        [sys.executable, "benchmarks/bench_soak.py", "--minutes=0.4", "--warm_up_minutes=0.2",
         "--interval_s=1", f"--output={tmp_path}", "--", *SMALL, "--tensorboard=False"],
        cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S, check=True,
    )  # fmt: skip
    result = json.loads(done.stdout)
    assert result["processes"]["last"] >= 3
    assert result["pss_mb"]["last"] > 100
    assert (tmp_path / "soak.png").stat().st_size < 200_000
    assert len((tmp_path / "samples.csv").read_text().splitlines()) > 5
