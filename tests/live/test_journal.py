import math
import os
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ritornello.analysis.places import ResultsFolder
from ritornello.live import journal
from ritornello.live.journal import Journal, thinned
from ritornello.metrics.record import METRICS, Record
from ritornello.metrics.run_files import MAX_LINE_BYTES, read_records
from ritornello.wrappers.games import expand_games
from tests.live.builders import make_run, record, write_records

LOSS = "loss/policy"
DAMAGED = (
    b"\xff\xfe", b'{"agent_steps": 1}', b"{" * 9999,
    b'{"agent_steps": 9999999999999999999, "updates": 0, "episodes": 0, "wall_s": 1, "values":{}}',
)  # fmt: skip


def journal_of(folder):
    read = Journal(ResultsFolder(folder.parent), folder.name)
    read.read()
    return read


def add(folder, content):
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(content)


def steps_of(read):
    return read.rows([])["steps"]


def test_the_columns_are_those_of_the_records_and_grow_from_where_reading_ended(tmp_path):
    folder = make_run(tmp_path, "run", [record(n) for n in range(1, 900)])
    read = journal_of(folder)
    rows = read.rows([LOSS, "no/such"])
    expected = read_records(folder)
    assert rows["steps"] == [r.agent_steps for r in expected]
    assert rows["minutes"] == pytest.approx([r.wall_s / 60 for r in expected], rel=1e-5)
    assert rows["columns"].keys() == {LOSS}
    assert rows["columns"][LOSS] == pytest.approx([r.values[LOSS] for r in expected], rel=1e-5)
    assert read.newest()[LOSS] == expected[-1].values[LOSS]
    write_records(folder, [record(n) for n in range(900, 903)], append=True)
    assert read.read() == 902
    assert read.rows([LOSS])["steps"][-3:] == [90_000, 90_100, 90_200]


def test_half_a_line_is_taken_when_it_is_whole(tmp_path):
    folder = make_run(tmp_path, "run", 2)
    read = journal_of(folder)
    line = record(3).to_json().encode() + b"\n"
    add(folder, line[:40])
    assert read.read() == 2
    add(folder, line[40:-1])
    assert read.read() == 2
    add(folder, line[-1:])
    assert read.read() == 3


@pytest.mark.parametrize("line", DAMAGED)
def test_a_damaged_line_is_passed_over(tmp_path, line):
    folder = make_run(tmp_path, "run", 2)
    add(folder, line + b"\n")
    write_records(folder, [record(3)], append=True)
    assert steps_of(journal_of(folder)) == [100, 200, 300]


def test_a_journal_takes_little_more_memory_than_its_file(tmp_path):
    folder = make_run(
        tmp_path, "run", [Record(1, 4, 1, 1, 1.0, {f"m{k}": 1.0 for k in range(2000)})]
    )
    add(folder, (Record(2, 8, 2, 2, 2.0).to_json().encode() + b"\n") * 2000)
    tracemalloc.start()
    read = journal_of(folder)
    # Threads of other tests may take memory as well.
    own = [tracemalloc.Filter(True, journal.__file__)]
    taken_bytes = sum(t.size for t in tracemalloc.take_snapshot().filter_traces(own).traces)
    tracemalloc.stop()
    assert read.rows(["m7"])["columns"]["m7"][::999] == [1.0, None]
    assert "m7" not in read.newest()
    assert taken_bytes < 5 * os.path.getsize(folder / "metrics.jsonl")


def test_no_two_columns_are_filled_at_the_same_time():
    place = np.arange(100_000, dtype=np.float64)
    tracemalloc.start()
    thinned(place, place, ((str(n), place + n) for n in range(50)), 100)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 5 * place.nbytes


def test_a_line_without_end_is_passed_over_and_never_read_again(tmp_path):
    folder = make_run(tmp_path, "run", 2)
    path = folder / "metrics.jsonl"
    hole_bytes = 60 * MAX_LINE_BYTES
    os.truncate(path, os.path.getsize(path) + hole_bytes)
    tracemalloc.start()
    read = journal_of(folder)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < hole_bytes / 2
    assert read._offset > hole_bytes - MAX_LINE_BYTES
    add(folder, b"\n")
    write_records(folder, [record(3)], append=True)
    assert read.read() == 3


def test_a_file_that_was_replaced_or_removed_is_read_anew(tmp_path):
    folder = make_run(tmp_path, "run", 9)
    read = journal_of(folder)
    shorter = folder / "shorter"
    shorter.write_text("".join(record(n, score=7.0).to_json() + "\n" for n in range(1, 5)))
    shorter.replace(folder / "metrics.jsonl")
    assert read.read() == 4
    rows = read.rows(["episode/return_mean"])
    assert rows["columns"]["episode/return_mean"] == [7.0] * 4
    path = folder / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-1])  # in place, and shorter
    assert read.read() == 3
    path.unlink()
    assert read.read() == 0
    assert read.newest() == {}


def test_a_run_that_goes_back_loses_what_it_had_beyond(tmp_path):
    folder = make_run(tmp_path, "run", 9)
    read = journal_of(folder)
    write_records(folder, [record(5, score=77.0), record(6)], append=True)
    assert read.read() == 6
    assert steps_of(read) == [100, 200, 300, 400, 500, 600]
    assert read.rows(["episode/return_mean"])["columns"]["episode/return_mean"][4] == 77.0


def test_the_metrics_of_a_run_of_all_games_are_read(tmp_path):
    games = expand_games("all").split(",")
    own = [name for name in METRICS if name.endswith("_*")]
    names = [name.replace("*", str(task)) for name in own for task in range(len(games))]
    values = dict.fromkeys([*METRICS.keys() - own, *names], 1.0)
    folder = make_run(tmp_path, "run", [Record(1, 4, 1, 1, 1.0, values)])
    assert journal_of(folder).names() == sorted(values)


@given(
    st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), min_size=1, max_size=300),
    st.integers(2, 40),
)
def test_thinned_rows_keep_both_ends_and_the_extremes(values, points):
    column = np.array(values)
    place = np.arange(len(values), dtype=np.float64)
    steps, minutes, columns = thinned(place, place / 2, [("a", column)], points)
    assert len(steps) == len(minutes) == len(columns["a"]) <= max(points, 2)
    assert (steps[0], steps[-1]) == (0, len(values) - 1)
    known = column[~np.isnan(column)]
    if len(known):
        assert np.nanmax(columns["a"]) == known.max()
        assert np.nanmin(columns["a"]) == known.min()
