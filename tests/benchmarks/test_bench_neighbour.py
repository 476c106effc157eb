from benchmarks.bench_neighbour import speed
from metrics.record import Record


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
