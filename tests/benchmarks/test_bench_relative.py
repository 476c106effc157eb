import json
import os
import signal
import sys

import numpy as np
import pytest

from benchmarks import bench_end_to_end, bench_relative
from benchmarks.bench_end_to_end import RealRun, arguments_of, flag_values
from benchmarks.one_process_loop import loop_flags, updates
from benchmarks.programs import leaving_by_exception, undisturbed
from ritornello.core.stop_signals import handled_by


@pytest.fixture
def python_handlers():
    """Let Ctrl-C raise in this process as in any program that is started in a terminal."""

    def interrupt(number, frame):
        raise KeyboardInterrupt

    with handled_by(interrupt):
        yield


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


@pytest.mark.parametrize("wrong", ["--model=resnt", "--no_such_flag=1"])
def test_a_wrong_flag_is_refused_before_anything_is_measured(monkeypatch, wrong):
    def run_config(config, options):
        raise AssertionError("measured")

    monkeypatch.setattr(bench_end_to_end, "run_config", run_config)
    monkeypatch.setattr(sys, "argv", ["bench_end_to_end.py", "--", wrong])
    with pytest.raises(SystemExit, match=f"error: .*{wrong.split('=')[0]}"):
        bench_end_to_end.main()
    options = bench_end_to_end.argparse.Namespace(env="CartPole-v1", flags=["--model=mlp"])
    said = arguments_of(flag_values("queue", options))
    assert said[:3] == ["--env=CartPole-v1", "--seed=1", "--model=mlp"]


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, None)]
)
def test_a_signal_leaves_through_the_blocks_but_ends_none_half(python_handlers, number, status):
    done = []

    def hear():
        with leaving_by_exception():
            try:
                os.kill(os.getpid(), number)
            finally:
                with undisturbed():
                    os.kill(os.getpid(), signal.SIGTERM)
                    done.append(True)

    with pytest.raises((KeyboardInterrupt, SystemExit)) as left:
        hear()
    assert done
    assert left.type is SystemExit or status is None
