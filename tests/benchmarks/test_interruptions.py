import argparse
import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import bench_interruptions
from benchmarks.bench_interruptions import change_at, compare, resumed_at
from ritornello.live.json_text import json_text
from tests.integration.commands import HANGS_S, ROOT, SMALL

OPTIONS = argparse.Namespace(env="Test-v0", steps=10_000, window=1000, settle=500)
CLOCK = "2026-11-22 13:00:00,000 INFO MainProcess/MainThread ritornello.agent.run.training: "


def write_run(folder, seed, resumed=(), dent=0.0):
    """A run that learns steadily, and is worse by `dent` for 1500 steps after each resume."""
    folder.mkdir()
    noise = np.random.default_rng(seed).normal(0.0, 2.0, 1000)
    lines = []
    for number, at in enumerate(range(10, 10_001, 10)):
        hurt = sum(dent for step in resumed if step < at <= step + 1500)
        lines.append(f"{at / 100 + noise[number] - hurt:.3f},0,{at},0.0\n")
    (folder / "Scores.txt").write_text("".join(lines))
    log = [f"{CLOCK}resuming {folder}/x.pt at {step:,} agent steps\n" for step in resumed]
    (folder / "train.log").write_text("".join(log))
    return folder


@pytest.mark.parametrize(("dent", "visible"), [(0.0, False), (10.0, True)])
def test_a_dent_is_told_from_none(tmp_path, dent, visible):
    alone = [write_run(tmp_path / f"alone{n}", n) for n in range(3)]
    marks = [(2400, 5100), (2500, 5000), (2450, 5050)]
    hurt = [write_run(tmp_path / f"hurt{n}", 10 + n, marks[n], dent) for n in range(3)]
    result = compare(alone, hurt, OPTIONS)
    assert result["dent"] is visible
    assert result["kills"] == 6
    assert result["resumed_at"] == [list(steps) for steps in marks]
    # From the middle of one window to that of the other are 1500 steps: 15 points of learning.
    assert result["change_where_not"][0] == pytest.approx(15.0, abs=1.0)
    assert result["change_where_interrupted"][0] == pytest.approx(15.0 - dent, abs=1.0)


def test_each_window_of_the_control_counts_once(tmp_path):
    """Runs of the same seed are compared: the steps of another one are the same games again."""
    alone = [write_run(tmp_path / f"alone{n}", n) for n in range(3)]
    marks = [(2400, 5100), (2500, 5000), (2450, 5050)]
    hurt = [write_run(tmp_path / f"hurt{n}", 10 + n, marks[n]) for n in range(3)]
    changes = [
        change_at(folder, step, OPTIONS)
        for folder, steps in zip(alone, marks, strict=True)
        for step in steps
    ]
    expected = [np.mean(changes), np.std(changes, ddof=1) / len(changes) ** 0.5]
    result = compare(alone, hurt, OPTIONS)
    assert result["change_where_not"] == pytest.approx(expected, abs=1e-3)


def test_a_single_window_tells_of_no_dent(tmp_path):
    alone = write_run(tmp_path / "alone", 1)
    hurt = write_run(tmp_path / "hurt", 2, [5000])
    (hurt / "Scores.txt").write_text("".join(f"5,0,{at},0\n" for at in range(10, 9000, 10)))
    result = json.loads(json_text(compare([alone], [hurt], OPTIONS)))
    assert result["change_where_interrupted"] == [0.0, None]
    assert result["change_where_not"][1] is None
    assert result["difference_in_errors"] is None
    assert result["dent"] is None
    assert result["final_mean_returns"]["interrupted"] == [None]  # no game in the last window


KILLED = """
import json, os, signal, sys
from pathlib import Path
results = next(x for x in sys.argv if x.startswith("--results_dir=")).split("=")[1]
run = Path(results) / "run"
run.mkdir()
(run / "flags.json").write_text("{}")
(run / "metrics.jsonl").write_text(json.dumps({"agent_steps": 4000}) + chr(10))
os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does without memory
"""


@pytest.mark.process
@pytest.mark.parametrize("kills", [[], [5000]])
def test_a_run_that_somebody_else_kills_is_not_finished(tmp_path, monkeypatch, kills):
    (tmp_path / "main.py").write_text(KILLED)
    monkeypatch.setattr(bench_interruptions, "ROOT", tmp_path)
    monkeypatch.setattr(bench_interruptions, "POLL_S", 0.02)
    options = argparse.Namespace(env="Test-v0", steps=10_000, flags=[])
    with pytest.raises(RuntimeError, match="a session ended with status -9"):
        bench_interruptions.train(tmp_path / "results", 1, options, kills)


def test_windows_without_games_give_no_answer(tmp_path):
    folder = write_run(tmp_path / "run", 1, [9900])
    assert resumed_at(folder) == [9900]
    assert change_at(folder, 9900, OPTIONS) is None
    with pytest.raises(RuntimeError, match="no game ended in the windows"):
        compare([folder], [folder], OPTIONS)


@pytest.mark.process
@pytest.mark.slow
def test_a_short_one_runs_to_its_line(tmp_path):
    flags = [flag for flag in SMALL if not flag.startswith(("--env=", "--seed="))]
    done = subprocess.run(
        [
            sys.executable, "benchmarks/bench_interruptions.py", "--steps=12000", "--runs=1",
            "--kills=1", f"--results={tmp_path}", "--window=2000", "--", *flags,
            "--save_model_period=20",
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S * 5, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["kills"] == 1
    assert 0 < result["resumed_at"][0][0] < 12000
    assert len(result["final_mean_returns"]["interrupted"]) == 1
