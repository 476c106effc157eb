"""What a run leaves for who looks from outside: status.json, findings.jsonl, evaluations.csv."""

from __future__ import annotations

import csv
import errno
import json
import os
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from ritornello.agent.run import recorder
from ritornello.agent.run.recorder import Recorder
from ritornello.agent.run.status import FORMAT, Status
from ritornello.agent.run.trainer import Trainer
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.metrics.health import Finding
from ritornello.metrics.output_thread import OutputThread
from ritornello.metrics.record import Record, check_declared
from ritornello.metrics.rewind import Point, rewind
from ritornello.metrics.sinks import Tee
from tests.agent.runs import make_blueprint
from tests.agent.test_trainer import EveryRecord, Noted, in_turn
from tests.deadlines import HANGS_S

FINDING = Finding(300, "policy/entropy_fraction", 0.01234, "0.05 to 0.98", "lower --lr")
ROW = {
    "agent_steps": 300, "updates": 7, "game": "tests/Game,with comma", "policy": "greedy",
    "games": 5, "mean": 1.5, "standard_error": 0.25, "min": 1.0, "max": 2.0, "mean_length": 40.0,
    "distinct_games": 4, "film": "",
}  # fmt: skip


@pytest.fixture
def thread():
    output = OutputThread("the files of the run")
    yield output
    assert output.close(HANGS_S)


def said(folder):
    return json.loads((folder / "status.json").read_text("utf-8"))


def trained(folder: RunFolder, thread: OutputThread, **flags):
    """Return summary, states one after the other, and records of a run."""
    values = {"environment_max_steps": 300, "log_interval_s": 0.001, **flags}
    status = Status(folder.path, thread, session=3)
    states, show = [], status.show
    status.show = lambda news: (states.append(status.state), show(news))  # type: ignore[method-assign]
    make = None if flags.get("reproducible") else in_turn
    with closing(Noted()) as sink:
        summary = Trainer(
            make_blueprint(**values), folder, sink, experience=make, status=status,
            flush=lambda: True,
        ).run()  # fmt: skip
    assert thread.flush(HANGS_S)
    return summary, states, sink.records


def test_a_run_says_how_it_is_with_each_record(tmp_path, thread):
    folder = RunFolder.create(tmp_path, "Test-v0")
    summary, states, records = trained(folder, thread)
    now = said(folder.path)
    assert now["format"] == FORMAT
    assert (now["pid"], now["session"], now["state"]) == (os.getpid(), 3, "saving")
    assert (now["agent_steps"], now["updates"]) == (summary.agent_steps, summary.updates)
    assert (now["target_steps"], now["games"]) == (300, summary.episodes)
    assert now["steps_per_second"] > 0
    assert (now["seconds_left"], now["findings"], now["workers"]) == (0, 0, [])
    queue, standard = now["buffers"]
    assert (queue["name"], queue["capacity"]) == ("queue", 4)
    assert standard["items"] == 40
    assert now["hardware"]["system/memory_mb"] > 1
    for name in now["hardware"]:
        check_declared(name)
    assert any("system/disk_free_mb" in record.values for record in records)
    assert list(dict.fromkeys(states)) == ["filling", "training", "saving"]


def test_findings_are_a_line_each_and_counted(tmp_path, thread, monkeypatch):
    monkeypatch.setattr(recorder, "Diagnosis", EveryRecord)
    folder = RunFolder.create(tmp_path, "Test-v0")
    summary, _, records = trained(folder, thread)
    lines = [json.loads(line) for line in (folder.path / "findings.jsonl").read_text().splitlines()]
    assert len(lines) == len(summary.findings) == len(records) == said(folder.path)["findings"]
    assert lines[0].pop("time") > 1e9
    assert lines[0] == {
        "agent_steps": records[0].agent_steps, "updates": records[0].updates,
        "name": "loss/total", "message": "is 9 (healthy: below 1)", "advice": "it is too large",
    }  # fmt: skip


def test_a_reproducible_run_with_a_record_for_each_update_says_so_now_and_then(tmp_path, thread):
    folder = RunFolder.create(tmp_path, "Test-v0")
    _, states, records = trained(folder, thread, reproducible=True, log_interval_s=1000.0)
    assert len(records) > 10
    assert list(dict.fromkeys(states)) == ["filling", "training", "saving"]
    assert len(states) < 6  # of more than ten records only the first is shown


def test_a_pause_changes_neither_the_speed_nor_the_time_left(tmp_path, monkeypatch):
    clock_s = 0.0
    folder = RunFolder.create(tmp_path, "Test-v0")
    blueprint = make_blueprint(environment_max_steps=10**6, training_seconds=7200.0)
    run = Trainer(blueprint, folder, Tee([]), experience=in_turn)._run
    # Resumed: what was done before, and the time that it took, are not of this session.
    run.tally.counters = lambda: Record(agent_steps=50_000, wall_s=900.0)
    told = []
    run.status.show = told.append
    shows = Recorder(run, Tee([]), None)
    monkeypatch.setattr(recorder, "time", SimpleNamespace(monotonic=lambda: clock_s))
    for seconds, pause_s in ((5, 0.0), (10, 0.0), (15, 3600.0), (20, 0.0)):
        clock_s += 5.0 + pause_s  # records leave it out
        shows._show(Record(agent_steps=50_000 + 100 * seconds, wall_s=900.0 + seconds), [])
    assert [now["steps_per_second"] for now in told] == [100.0] * 4
    assert [now["seconds_left"] for now in told] == [7195.0, 7190.0, 7185.0, 7180.0]


def test_on_a_full_disk_the_old_file_stays_whole_and_it_is_said_once(
    tmp_path, thread, monkeypatch, caplog
):
    status = Status(tmp_path, thread)
    status.enter("filling")
    assert thread.flush(HANGS_S)
    before = said(tmp_path)
    write_text = Path.write_text

    def full(path, text, **options):
        write_text(path, text[:10], **options)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        for number in range(3):
            status.show({"updates": number})
            assert thread.flush(HANGS_S)
    assert said(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]
    (line,) = [m for m in caplog.messages if "status.json" in m]
    assert "status.json cannot be written (No space left on device)" in line
    status.show({"updates": 4})
    assert thread.flush(HANGS_S)
    assert said(tmp_path)["updates"] == 4


def test_journals_are_taken_back_with_the_run(tmp_path, thread):
    status = Status(tmp_path, thread)
    for updates in (5, 7, 8):
        status.finding(FINDING, Record(agent_steps=100 * updates, updates=updates))
        status.evaluation({**ROW, "updates": updates})
    status.finding(FINDING, Record(agent_steps=701, updates=7))  # steps go on without an update
    assert thread.flush(HANGS_S)
    with (tmp_path / "findings.jsonl").open("a") as file:
        file.write('{"updates": "many"}\n[]\n{"upda')
    before = {path: (tmp_path / path).read_text() for path in ("findings.jsonl", "evaluations.csv")}
    cuts = {cut.name: cut for cut in rewind(tmp_path, Point(7, 700))}
    assert (cuts["findings.jsonl"].lines, cuts["evaluations.csv"].lines) == (5, 1)
    for name, text in before.items():
        kept = (tmp_path / name).read_text()
        assert sorted(kept + cuts[name].aside.read_text()) == sorted(text)
    kept = [json.loads(line) for line in (tmp_path / "findings.jsonl").read_text().splitlines()]
    assert [line["updates"] for line in kept] == [5, 7]
    with (tmp_path / "evaluations.csv").open(newline="") as file:
        assert [row["updates"] for row in csv.DictReader(file)] == ["5", "7"]
    assert not rewind(tmp_path, Point(7, 700))
