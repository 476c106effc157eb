import os
import tracemalloc

import pytest

from ritornello.metrics.run_files import (
    MAX_LINE_BYTES,
    read_evaluations,
    read_games,
    read_records,
)
from tests.metrics.builders import write_run


@pytest.mark.parametrize("cut", [2, 9, 15])
def test_a_line_cut_off_by_a_crash_costs_only_itself_also_when_the_run_goes_on(tmp_path, cut):
    write_run(tmp_path, (1, 20))
    for name in ("metrics.jsonl", "Scores.txt"):
        path = tmp_path / name
        first, second = path.read_text().splitlines()
        path.write_text(f"{first}\n{second[: -min(cut, len(second) - 1)]}")
    write_run(tmp_path, (3,))
    assert [r.updates for r in read_records(tmp_path)] == [1, 3]
    games = read_games(tmp_path)
    for column, scale in ((games.returns, 1.0), (games.agent_steps, 100.0), (games.wall_s, 1.0)):
        assert (column[0], column[-1]) == (scale, 3 * scale)


def test_numbers_that_cannot_be_computed_with_cost_only_their_line(tmp_path):
    write_run(tmp_path, (1, 3))
    with open(tmp_path / "Scores.txt", "a") as file:
        file.write("-1.7e308,1200,300,3.0\nnan,1200,300,3.0\n")
    assert read_games(tmp_path).returns.tolist() == [1.0, 3.0]
    row = "100,CartPole-v1,greedy"
    heading = "agent_steps,game,policy,mean,standard_error"
    (tmp_path / "evaluations.csv").write_text(f"{heading}\n{row},1.7e308,0\n{row},2,1\n")
    assert [row.mean for row in read_evaluations(tmp_path)] == [2.0]


def test_a_line_without_end_is_never_in_memory_as_a_whole(tmp_path):
    write_run(tmp_path, (1,))
    path = tmp_path / "metrics.jsonl"
    hole_bytes = 60 * MAX_LINE_BYTES
    os.truncate(path, os.path.getsize(path) + hole_bytes)
    with path.open("a") as file:
        file.write("\n")
    write_run(tmp_path, (3,))
    tracemalloc.start()
    records = read_records(tmp_path)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [record.updates for record in records] == [1, 3]
    assert peak_bytes < hole_bytes / 2
