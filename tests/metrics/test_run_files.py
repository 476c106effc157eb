import pytest

from ritornello.metrics.run_files import read_games, read_records
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
