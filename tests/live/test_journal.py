from __future__ import annotations

import json
import math
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ritornello.live import journal
from ritornello.live.journal import Journal, Journals
from ritornello.live.places import ResultsFolder
from ritornello.live.records import sampled
from ritornello.live.rows import Rows, thinned
from ritornello.metrics.record import Record
from ritornello.metrics.run_files import read_records
from tests.live.builders import eventually, make_run, record, write_records

LOSS = "loss/policy"
DAMAGED = (
    b"", b"{", b"null", b"[]", b"7", b"\xff\xfe", b'{"agent_steps": 1}', b"{" * 9999, b"9" * 9999,
    b'{"agent_steps": -1, "updates": 0, "episodes": 0, "wall_s": 1, "values": {}}',
    b'{"agent_steps": true, "updates": 0, "episodes": 0, "wall_s": 1, "values": {}}',
    b'{"agent_steps": 9999999999999999999, "updates": 0, "episodes": 0, "wall_s": 1, "values":{}}',
    b'{"agent_steps": 1, "updates": 0, "episodes": 0, "wall_s": 1e999, "values": {}}',
    b'{"agent_steps": 1, "updates": 0, "episodes": 0, "wall_s": NaN, "values": {}}',
    b'{"agent_steps": 1, "updates": 0, "episodes": 0, "wall_s": 1, "values": [1]}',
)  # fmt: skip


def journal_of(folder: Path) -> Journal:
    read = Journal(ResultsFolder(folder.parent), folder.name)
    read.read()
    return read


def add(folder: Path, content: bytes) -> None:
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(content)


def steps_of(read: Journal) -> list[int]:
    return [int(step) for step in read.rows([]).steps]


def test_the_columns_are_those_of_the_records(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "run", [record(n) for n in range(1, 1300)])
    read = journal_of(folder)
    rows = read.rows([LOSS, "no/such"], points=2000)
    expected = read_records(folder)
    assert rows.steps.tolist() == [r.agent_steps for r in expected]
    assert rows.minutes.tolist() == pytest.approx([r.wall_s / 60 for r in expected])
    assert {n: c.tolist() for n, c in rows.columns.items()} == {
        LOSS: [r.values[LOSS] for r in expected]
    }
    assert read.newest()[LOSS] == expected[-1].values[LOSS]


def test_what_is_added_is_read_from_where_reading_ended(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "run", 10)
    read = journal_of(folder)
    generation, total = read.read()
    write_records(folder, [record(n) for n in range(11, 14)], append=True)
    assert read.read() == (generation, 13)
    new = read.rows([LOSS], after=total, generation=generation)
    assert new.steps.tolist() == [1100, 1200, 1300]
    assert len(read.rows([LOSS], after=total, generation=generation + 1).steps) == 13


def test_half_a_line_is_taken_when_it_is_whole(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "run", 2)
    read = journal_of(folder)
    line = record(3).to_json().encode() + b"\n"
    for cut in (1, len(line) // 2, len(line) - 1):
        whole = (folder / "metrics.jsonl").read_bytes()
        add(folder, line[:cut])
        assert read.read()[1] == 2, cut
        with (folder / "metrics.jsonl").open("r+b") as file:
            file.truncate(len(whole))
    add(folder, line)
    assert read.read()[1] == 3


@pytest.mark.parametrize("line", DAMAGED)
def test_a_damaged_line_is_passed_over(tmp_path: Path, line: bytes) -> None:
    folder = make_run(tmp_path, "run", 2)
    add(folder, line + b"\n")
    write_records(folder, [record(3)], append=True)
    assert steps_of(journal_of(folder)) == [100, 200, 300]


def test_a_line_without_end_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MAX_LINE_BYTES", 5000)
    monkeypatch.setattr(journal, "READ_BYTES", 1000)
    folder = make_run(tmp_path, "run", 2)
    read = journal_of(folder)
    add(folder, b"x" * 50_000)
    assert read.read()[1] == 2
    add(folder, b"x" * 50_000 + b"\n")
    write_records(folder, [record(3)], append=True)
    assert read.read()[1] == 3


def test_records_are_taken_over_with_each_piece_of_the_file_that_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long lines are, parsed ones take ten times the memory of a piece at most."""
    monkeypatch.setattr(journal, "READ_BYTES", 4 * len(record(1).to_json()))
    taken: list[int] = []
    take = Journal._take
    monkeypatch.setattr(
        Journal, "_take", lambda j, batch: taken.append(len(batch)) or take(j, batch)
    )
    read = journal_of(make_run(tmp_path, "run", 100))
    assert read.read()[1] == sum(taken) == 100
    assert max(taken) <= 5


@given(st.dictionaries(st.text(max_size=5), st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3), max_leaves=5,
), max_size=4))  # fmt: skip
def test_values_of_any_kind_become_numbers_or_nothing(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, object]
) -> None:
    folder = make_run(tmp_path_factory.mktemp("results"), "run", 1)
    line = {"agent_steps": 200, "updates": 2, "episodes": 2, "wall_s": 10.0, "values": values}
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    read = journal_of(folder)
    assert read.read()[1] == 2
    columns = read.rows(list(values)).columns
    for name, value in values.items():
        is_number = type(value) in (int, float) and abs(value) < 1e300  # type: ignore[arg-type]
        if is_number:
            assert columns[name][1] == float(value)  # type: ignore[arg-type]
        else:
            assert not math.isfinite(columns[name][1]) or abs(columns[name][1]) >= 1e300
    json.dumps(read.rows(list(values)).to_json(), allow_nan=False)


def test_a_run_that_went_back_is_another_generation(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "run", 10)
    read = journal_of(folder)
    generation, _ = read.read()
    write_records(folder, [record(n) for n in (6, 7)], append=True)  # without a cut
    assert read.read() == (generation + 1, 7)
    assert steps_of(read) == [100, 200, 300, 400, 500, 600, 700]

    replaced = folder / "shorter"
    replaced.write_text("".join(record(n).to_json() + "\n" for n in (1, 2)), encoding="utf-8")
    replaced.replace(folder / "metrics.jsonl")  # as a resume cuts it
    assert read.read() == (generation + 2, 2)


def test_a_file_that_is_cut_and_grows_again_is_noticed(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "run", 4)
    read = journal_of(folder)
    generation, _ = read.read()
    path = folder / "metrics.jsonl"
    with path.open("r+b") as file:  # the same file, so that only its bytes tell
        file.truncate(0)
    write_records(folder, [record(n, score=-3.0) for n in range(1, 9)], append=True)
    assert read.read() == (generation + 1, 8)
    assert read.rows(["episode/return_mean"]).columns["episode/return_mean"].tolist() == [-3.0] * 8


def test_a_file_that_vanishes_leaves_nothing_and_may_come_back(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "run", 4)
    read = journal_of(folder)
    (folder / "metrics.jsonl").unlink()
    assert read.read()[1] == 0
    write_records(folder, [record(1)])
    assert read.read()[1] == 1


def test_minutes_are_those_of_the_clock_of_the_run_after_it_has_gone_back(tmp_path: Path) -> None:
    """The clock goes on from that of the checkpoint, as the counters do."""
    folder = make_run(tmp_path, "run", [record(n) for n in (1, 2, 3, 2, 4)])
    minutes = journal_of(folder).rows([]).minutes.tolist()
    assert minutes == pytest.approx([n * 5 / 60 for n in (1, 2, 4)])


def test_no_more_names_are_kept_than_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MAX_NAMES", 10)
    folder = make_run(tmp_path, "run", [record(1, more=50), record(2, more=90)])
    assert len(journal_of(folder).names()) == 10


def test_a_file_takes_no_more_memory_for_names_than_it_has_values(tmp_path: Path) -> None:
    """Two records name every metric that is allowed, and thousands between them name one."""
    folder = make_run(tmp_path, "run", 0)
    many = {f"m{number}": 0.5 for number in range(journal.MAX_NAMES)}
    with (folder / "metrics.jsonl").open("w", encoding="utf-8") as file:
        for number in range(1, 5001):
            values = many if number in (1, 5000) else {"m7": float(number)}
            file.write(Record(agent_steps=number, updates=1, values=values).to_json() + "\n")
    size = (folder / "metrics.jsonl").stat().st_size
    tracemalloc.start()
    try:
        read = journal_of(folder)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 3 * size + 1_000_000, f"{kept:,} bytes for {size:,}"
    generation, total = read.read()
    rows = read.exactly(["m7", "m8"], 0, total, generation)
    assert rows is not None
    assert len(read.names()) == journal.MAX_NAMES
    assert rows.columns["m7"].tolist() == [0.5, *map(float, range(2, 5000)), 0.5]
    assert np.flatnonzero(np.isfinite(rows.columns["m8"])).tolist() == [0, total - 1]


def test_metrics_of_some_records_stand_in_their_rows_in_whichever_order_they_come(
    tmp_path: Path,
) -> None:
    folder = make_run(tmp_path, "run", 0)
    names = (("a",), ("a", "b"), ("b",), (), ("b", "a"))
    records = [
        Record(agent_steps=n, updates=n, values={name: float(n) for name in names[n % 5]})
        for n in range(1, 1500)
    ]
    write_records(folder, records[:600])
    read = journal_of(folder)
    write_records(folder, records[600:], append=True)
    write_records(folder, [Record(agent_steps=1000, updates=1, values={"b": -1.0})], append=True)
    generation, total = read.read()  # the run has gone back, and what came after is dropped
    assert total == 1000
    for begin, end in ((0, 1000), (3, 9), (995, 1000), (700, 700)):
        rows = read.exactly(["a", "b", "none"], begin, end, generation)
        assert rows is not None
        for name in ("a", "b", "none"):
            expected = [r.values.get(name) for r in records[begin:end]]
            if end == 1000:
                expected[-1] = {"b": -1.0}.get(name)
            assert [None if v != v else v for v in rows.columns[name].tolist()] == expected, name


@given(
    st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), min_size=1, max_size=300),
    st.integers(2, 40),
)
def test_a_thinned_curve_keeps_its_extremes_and_its_end(values: list[float], points: int) -> None:
    steps = np.arange(len(values), dtype=np.float64)
    rows = thinned(Rows(0, len(values), steps, steps / 60, {"a": np.array(values)}), points)
    assert len(rows.steps) <= points
    assert len(rows.steps) == len(rows.minutes) == len(rows.columns["a"])
    assert (np.diff(rows.steps) >= 0).all()
    assert rows.steps[-1] == steps[-1]
    known = [value for value in values if value == value]
    kept = [value for value in rows.columns["a"].tolist() if value == value]
    assert set(kept) <= set(known)
    if known:
        assert (min(kept), max(kept)) == (min(known), max(known))


def test_a_long_run_is_shown_by_a_sample_until_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "LARGE_BYTES", 1000)
    make_run(tmp_path, "run", [record(n, more=20) for n in range(1, 2000)])
    journals = Journals(ResultsFolder(tmp_path))
    assert journals.at_once("run") is None
    preview = journals.preview("run", [LOSS, "no/such"])
    assert preview.generation == journal.PREVIEW
    assert 300 < len(preview.steps) <= journal.PREVIEW_POINTS + 1
    assert (np.diff(preview.steps) > 0).all()
    assert preview.steps[-1] == 1999 * 100
    assert list(preview.columns) == [LOSS]
    assert preview.columns[LOSS][-1] == record(1999).values[LOSS]
    eventually(lambda: journals.at_once("run") is not None)
    read = journals.at_once("run")
    assert read is not None
    assert read.read()[1] == 1999


def test_few_journals_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_JOURNALS", 2)
    for name in "abc":
        make_run(tmp_path, name, 2)
    journals = Journals(ResultsFolder(tmp_path))
    first = journals.of("a")
    journals.of("b")
    journals.of("c")
    assert journals.of("a") is not first
    assert journals.of("c") is journals.of("c")


def test_a_sample_of_a_damaged_file_holds_what_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"\xff" * 100_000 + b"\n" + record(1).to_json().encode() + b"\n" + b"{" * 99)
    with path.open("rb") as file:
        assert [each["agent_steps"] for each in sampled(file, 10)][-1:] == [100]
