import json
import sys

import pytest
import torch

from benchmarks import bench_gpu


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["bench_gpu.py", *arguments])
    bench_gpu.main()


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--networks=impala", "'impala' is not one of impala_shallow, resnet_light, resnet"),
        ("--placements=gpu", "'gpu' is not one of cpu:worker, cuda:worker, cuda:server"),
    ],
)
def test_what_it_does_not_know_is_refused(monkeypatch, capsys, argument, message):
    with pytest.raises(SystemExit):
        run(monkeypatch, argument)
    assert message in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_without_a_gpu_it_says_what_can_be_measured(monkeypatch):
    with pytest.raises(SystemExit, match=r"error: .*no CUDA device"):
        run(monkeypatch)


def test_an_update_is_timed_alone(monkeypatch, capsys):
    monkeypatch.setattr(bench_gpu, "BATCHES", (2,))
    monkeypatch.setattr(bench_gpu, "SETTLED_UPDATES", 1)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)  # it is for the whole process
    run(monkeypatch, "--updates", "--seconds=0.01", "--networks=impala_shallow",
        "--placements=cpu:worker")  # fmt: skip
    out = capsys.readouterr().out
    (update,) = json.loads(out.splitlines()[-1])["updates"]
    assert update.pop("update_ms") > 0
    assert update == {
        "network": "impala_shallow", "batch": 2, "device": "cpu", "recorded": False,
    }  # fmt: skip
    assert "impala_shallow    2 unrolls  cpu, computed:" in out
