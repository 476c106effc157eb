import sys

import pytest

from benchmarks import bench_neighbour
from benchmarks.bench_neighbour import measure, speed
from ritornello.metrics.record import Record


def write(folder, *records):
    run = folder / "run"
    run.mkdir()
    lines = [Record(wall_s=s, agent_steps=n).to_json() for s, n in records]
    (run / "metrics.jsonl").write_text("".join(line + "\n" for line in lines))


def test_the_speed_is_that_after_the_start(tmp_path):
    write(tmp_path, (2.0, 10), (8.0, 1_000), (10.0, 1_500), (18.0, 6_000))
    assert speed(tmp_path) == 500.0


def test_a_training_that_came_to_nothing_has_no_speed(tmp_path):
    assert speed(tmp_path) == 0.0
    write(tmp_path, (2.0, 10), (9.0, 20))
    assert speed(tmp_path) == 0.0


@pytest.mark.process
def test_a_training_that_fails_is_no_speed(tmp_path, monkeypatch):
    refused = "print('error: --worker_niceness=99: at most 19'); raise SystemExit(2)"
    (tmp_path / "main.py").write_text(refused)
    monkeypatch.setattr(bench_neighbour, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match="status 2: error: --worker_niceness=99: at most 19"):
        measure(niceness=99, busy=0, trainings=2, seconds=10.0)


def test_too_short_a_training_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench_neighbour.py", "--seconds=8"])
    with pytest.raises(SystemExit) as refused:
        bench_neighbour.main()
    assert refused.value.code == 2
    assert "--seconds must be above 8" in capsys.readouterr().err
