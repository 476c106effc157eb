import json
import sys

import numpy as np
import pytest

from benchmarks import bench_relative
from benchmarks.bench_end_to_end import RealRun
from benchmarks.one_process_loop import loop_flags, updates


@pytest.mark.parametrize(
    ("loops", "others", "status"),
    [
        ([1000.0], 0.0, 0),
        ([1990.0], 0.0, 0),
        ([2010.0, 1990.0], 0.0, 0),
        ([2010.0, 4000.0, 2010.0], 10.0, 1),
        ([2010.0], 50.0, 0),
    ],
)
def test_only_rounds_below_half_of_the_recorded_ratio_fail(
    monkeypatch, capsys, loops, others, status
):
    speed = 1000.0 * bench_relative.RECORDED_RATIO
    left = list(loops)
    monkeypatch.setattr(bench_relative, "real_run", lambda *_: RealRun(speed, 100.0, (1, 9), {}))
    monkeypatch.setattr(bench_relative, "answers", lambda *_: [left.pop(0)])
    monkeypatch.setattr(bench_relative.psutil, "cpu_percent", lambda _: others)
    monkeypatch.setattr(sys, "argv", ["bench_relative.py", "--rounds=3"])
    assert bench_relative.main() == status
    said = json.loads(capsys.readouterr().out)["rounds"]
    assert [each["one_process_sps"] for each in said] == loops
    assert said[0]["ratio"] == pytest.approx(speed / loops[0], abs=0.001)


def test_the_loop_learns_from_an_unroll_of_each_game_at_each_update(monkeypatch):
    monkeypatch.setattr("torch.set_num_threads", lambda _: None)  # it is for the whole process
    flags = loop_flags("CartPole-v1", games=2) | {"model": "mlp", "r_f_steps": 5}
    loop = updates(flags, games=2)
    new = np.diff([0, *(next(loop) for _ in range(4))])
    assert set(new) <= {8, 9, 10}  # the row after a game's end is a reset, not a decision
