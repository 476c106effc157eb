import json
import os
import sys

import psutil
import pytest

from ritornello.analysis.places import ResultsFolder
from ritornello.live.overview import SPARK_POINTS, Overview
from tests.live.builders import hold, let_go, make_run, record, write_records, write_status


def only(results):
    (found,) = Overview(ResultsFolder(results)).runs()
    return found


# 700 more metrics in a record are those of a run of all games of Atari.
@pytest.mark.parametrize(("count", "more"), [(1, 0), (2000, 0), (80, 700)])
def test_a_run_is_told_by_its_last_record_and_a_small_curve(tmp_path, count, more):
    records = [record(n, score=float(n), more=more) for n in range(1, count + 1)]
    make_run(tmp_path, "seq/001_a_seed1/run", records)
    about = only(tmp_path)
    assert (about["name"], about["group"]) == ("run", "seq/001_a_seed1")
    assert (about["agent_steps"], about["score"], about["games"]) == (count * 100, count, "Pong")
    assert about["target_steps"] == 10_000
    curve = about["curve"]
    assert isinstance(curve, list)
    assert min(count, SPARK_POINTS) / 2 <= len(curve) <= SPARK_POINTS + 1
    assert curve[-1] == [count * 100, count]
    assert all(step == 100 * score for step, score in curve)


def test_the_state_is_what_the_files_and_the_process_say(tmp_path):
    folder = make_run(tmp_path, "run")
    assert only(tmp_path)["state"] == "stopped"
    hold(folder)
    assert only(tmp_path)["state"] == "training"
    write_status(folder, state="paused", agent_steps=777, seconds_left=5)
    assert {k: only(tmp_path)[k] for k in ("state", "agent_steps", "seconds_left")} == {
        "state": "paused", "agent_steps": 777, "seconds_left": 5,
    }  # fmt: skip
    write_status(folder, state="ended", reason="interrupted")
    assert [only(tmp_path)[name] for name in ("state", "reason")] == ["ended", "interrupted"]
    write_status(folder, state="failed")
    assert only(tmp_path)["state"] == "failed"
    (folder / "status.json").unlink()
    (folder / "summary.json").write_text("{}", encoding="utf-8")
    (folder / "lock").unlink()
    assert only(tmp_path)["state"] == "ended"


def test_a_process_that_is_gone_is_not_believed_to_train(tmp_path):
    folder = make_run(tmp_path, "run")
    hold(folder)
    let_go()
    write_status(folder, state="training")
    assert only(tmp_path)["state"] == "stopped"
    lock = json.loads((folder / "lock").read_text())
    lock["host"] = "elsewhere"  # where nothing can be asked
    (folder / "lock").write_text(json.dumps(lock))
    assert only(tmp_path)["state"] == "training"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux counts what is read")
def test_of_long_runs_only_the_edges_are_read_and_only_when_something_changes(
    tmp_path, monkeypatch
):
    runs, records, results = 20, 4000, tmp_path / "results"
    for number in range(runs):
        folder = make_run(results, f"group{number % 7}/run{number:03d}", 1, seed=number)
        (folder / "metrics.jsonl").unlink(missing_ok=True)
        if number == 0:
            write_records(folder, [record(n, more=12) for n in range(1, records + 1)])
            day = folder / "metrics.jsonl"
        else:
            os.link(day, folder / "metrics.jsonl")  # many long runs in the room of one
    opened: list[str] = []
    opens = ResultsFolder.open
    monkeypatch.setattr(
        ResultsFolder, "open", lambda *given: (opened.append(given[1]), opens(*given))[1]
    )
    overview = Overview(ResultsFolder(results))
    before = psutil.Process().io_counters().read_chars
    found = overview.runs()
    read = psutil.Process().io_counters().read_chars - before
    assert [run["agent_steps"] for run in found] == [100 * records] * runs
    assert read < runs * day.stat().st_size / 2
    opened.clear()
    assert len(overview.runs()) == runs
    assert opened == [], "nothing has changed, so nothing is read"
    flags = results / "group0" / "run007" / "flags.json"
    flags.write_text(json.dumps({**json.loads(flags.read_text()), "seed": 99}), encoding="utf-8")
    (changed,) = [run for run in overview.runs() if run["name"] == "run007"]
    assert changed["flags"]["seed"] == 99
    assert set(opened) == {"group0/run007"}
