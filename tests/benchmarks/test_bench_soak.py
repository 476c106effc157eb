import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import bench_soak
from benchmarks.bench_soak import Sample, TrainingEnded, growth, report
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


def soak(monkeypatch, tmp_path, ending, seen, *options):
    """Run the benchmark with a training that ends by `ending` after these samples."""

    def train_and_look(flags, minutes, interval_s, console, samples):
        samples += seen
        if ending is not None:
            raise ending

    monkeypatch.setattr(bench_soak, "train_and_look", train_and_look)
    monkeypatch.setattr(sys, "argv", ["bench_soak.py", f"--output={tmp_path}", *options])
    with pytest.raises(SystemExit) as left:
        bench_soak.main()
    return left.value.code


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        (None, 0),
        (KeyboardInterrupt(), 0),
        (SystemExit(143), 143),
        (TrainingEnded("the training ended with status -9"), "the training ended with status -9"),
    ],
    ids=["time", "INT", "TERM", "failure"],
)
def test_however_it_ends_what_was_measured_is_kept(monkeypatch, tmp_path, capsys, ending, status):
    assert soak(monkeypatch, tmp_path, ending, samples([1.0] * 70)) == status
    result = json.loads(capsys.readouterr().out)
    assert result["pss_mb"]["last"] == 1.0
    assert len((tmp_path / "samples.csv").read_text().splitlines()) == 71
    assert (tmp_path / "soak.png").exists()


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (KeyboardInterrupt(), "nothing was measured"),
        (TrainingEnded("the training ended with status 2"), "ended with status 2"),
    ],
)
def test_without_a_sample_it_says_so(monkeypatch, tmp_path, capsys, ending, said):
    assert said in soak(monkeypatch, tmp_path, ending, [])
    assert capsys.readouterr().out == ""


@pytest.mark.process
def test_a_training_that_dies_ends_it(monkeypatch, tmp_path):
    (tmp_path / "main.py").write_text("raise SystemExit(3)")
    monkeypatch.setattr(bench_soak, "ROOT", tmp_path)
    console = bench_soak.Console(quiet=True)
    with pytest.raises(TrainingEnded, match="the training ended with status 3"):
        bench_soak.train_and_look([], 1000.0, 0.02, console, [])


def test_the_warm_up_that_is_reported_is_the_one_that_was_left_out(monkeypatch, tmp_path, capsys):
    rising = samples(np.arange(50.0))  # 490 s
    report(rising, 5.0, None)
    after = json.loads(capsys.readouterr().out)
    assert (after["warm_up_minutes"], after["pss_mb"]["first"]) == (5.0, 30.0)
    report(rising, 10.0, None)  # it was interrupted within the warm-up
    early = json.loads(capsys.readouterr().out)
    assert (early["warm_up_minutes"], early["pss_mb"]["first"]) == (0.0, 0.0)
    assert soak(monkeypatch, tmp_path, None, rising, "--minutes=10") == 2
    assert "--minutes=10 must be above --warm_up_minutes=10" in capsys.readouterr().err


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc/<pid>/smaps_rollup")
def test_a_short_soak_measures_the_tree_and_draws(tmp_path):
    for minutes in (0.4, 2.0, 6.0):  # on a busy machine workers take minutes to start
        done = subprocess.run(
            [sys.executable, "benchmarks/bench_soak.py", f"--minutes={minutes}",
             "--warm_up_minutes=0.2", "--interval_s=1", f"--output={tmp_path}", "--", *SMALL,
             "--tensorboard=False"],
            cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S, check=True,
        )  # fmt: skip
        result = json.loads(done.stdout)
        if result["processes"]["last"] >= 3:
            break
    assert result["processes"]["last"] >= 3
    assert result["pss_mb"]["last"] > 100
    assert (tmp_path / "soak.png").stat().st_size < 200_000
    assert len((tmp_path / "samples.csv").read_text().splitlines()) > 5
