"""What a run leaves for who looks from outside: status.json, findings.jsonl, evaluations.csv."""

from __future__ import annotations

import csv
import errno
import json
import os
import shutil
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

import ritornello.agent.run.recorder
from ritornello.agent.run import status
from ritornello.agent.run.status_files import EVALUATION_COLUMNS, StatusFiles
from ritornello.agent.run.trainer import Trainer
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core.process_death import start_of
from ritornello.metrics import status_file
from ritornello.metrics.health import Finding
from ritornello.metrics.output_thread import OutputThread
from ritornello.metrics.record import Record, check_declared
from ritornello.metrics.rewind import Point, rewind
from ritornello.metrics.status_file import DIED, FORMAT, identity, read_status
from tests.agent.runs import BOTH_GAMES, make_blueprint
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
    blueprint = make_blueprint(environment_max_steps=300, log_interval_s=0.001, **flags)
    files = StatusFiles(folder.path, thread, session=3)
    shown = []
    show = files.show
    files.show = lambda news: (shown.append(news), show(news))  # type: ignore[method-assign]
    with closing(Noted()) as sink:
        trainer = Trainer(
            blueprint, folder, sink, experience=in_turn, status=files, flush=lambda: True
        )
        trainer._status.control = lambda: {"settings": {"lr": 0.1}, "acknowledged": []}
        summary = trainer.run()
    files.close()
    assert thread.flush(HANGS_S)
    return summary, shown, sink.records


# --- what it says --------------------------------------------------------------------------------


def test_a_run_says_how_it_is_with_each_record(tmp_path, thread):
    folder = RunFolder.create(tmp_path, "Test-v0")
    summary, shown, records = trained(folder, thread)
    now = said(folder.path)
    assert now["format"] == FORMAT
    assert (now["pid"], now["session"], now["state"]) == (os.getpid(), 3, "saving")
    assert (now["agent_steps"], now["updates"]) == (summary.agent_steps, summary.updates)
    assert (now["target_steps"], now["games"]) == (300, summary.episodes)
    assert now["mean_return"] == {"tests.fakes:tests/Counting-v0": summary.mean_return}
    assert now["steps_per_second"] > 0
    assert now["seconds_left"] == 0
    assert now["control"] == {"settings": {"lr": 0.1}, "acknowledged": []}
    assert now["findings"] == 0
    (worker,) = now["workers"]
    assert worker["agent_steps"] == summary.agent_steps
    assert worker["lag"] >= 0
    assert now["server"] is None
    queue, standard = now["buffers"]
    assert (queue["kind"], queue["capacity"], queue["task"]) == ("queue", 4, None)
    assert standard["items"] == 40
    assert sum(standard["ages"]["counts"]) == 40
    assert len(standard["ages"]["edges"]) == len(standard["ages"]["counts"]) + 1
    assert now["hardware"]["system/memory_mb"] > 1
    for name in now["hardware"]:
        check_declared(name)
    assert any("system/disk_free_mb" in record.values for record in records)
    states = [news["state"] for news in shown if "state" in news]
    changes = [
        state for state, before in zip(states, ["", *states], strict=False) if state != before
    ]
    assert changes == ["filling", "training", "saving"]


def test_of_several_games_each_has_its_mean_and_its_parts_of_the_buffers(tmp_path, thread):
    folder = RunFolder.create(tmp_path, "Test-v0")
    trained(folder, thread, env=BOTH_GAMES, envs_per_worker=4)
    now = said(folder.path)
    games = set(BOTH_GAMES.split(","))
    assert set(now["mean_return"]) == games
    assert {buffer["task"] for buffer in now["buffers"]} - {None} == games  # one queue is for all


def test_findings_are_a_line_each_and_counted(tmp_path, thread, monkeypatch):
    monkeypatch.setattr(ritornello.agent.run.recorder, "Diagnosis", EveryRecord)
    folder = RunFolder.create(tmp_path, "Test-v0")
    summary, _, records = trained(folder, thread)
    lines = [json.loads(line) for line in (folder.path / "findings.jsonl").read_text().splitlines()]
    assert len(lines) == len(summary.findings) == len(records)
    assert said(folder.path)["findings"] == len(lines)
    time_s = lines[0].pop("time")
    assert time_s > 1e9
    assert lines[0] == {
        "agent_steps": records[0].agent_steps, "updates": records[0].updates,
        "name": "loss/total", "message": "is 9 (healthy: below 1)", "advice": "it is too large",
    }  # fmt: skip


def test_a_reproducible_run_with_a_record_for_each_update_says_so_now_and_then(tmp_path, thread):
    folder = RunFolder.create(tmp_path, "Test-v0")
    blueprint = make_blueprint(reproducible=True, environment_max_steps=300, log_interval_s=1000.0)
    files = StatusFiles(folder.path, thread)
    shown = []
    files.show = shown.append  # type: ignore[method-assign]
    sink = Noted()
    Trainer(blueprint, folder, sink, status=files, flush=lambda: True).run()
    assert len(sink.records) > 10
    assert [news["state"] for news in shown] == ["filling", "training", "saving"]


def test_a_pause_changes_neither_the_speed_nor_the_time_left(monkeypatch):
    clock_s = 0.0
    monkeypatch.setattr(status, "time", SimpleNamespace(monotonic=lambda: clock_s))
    monkeypatch.setattr(status, "buffer_configs", lambda *_: [])
    blueprint = make_blueprint(environment_max_steps=10**6, training_seconds=7200.0)
    experience = SimpleNamespace(replay=SimpleNamespace(buffers=[], insertions=list))
    said = []
    files = SimpleNamespace(show=said.append)
    # Resumed: what was done before, and the time that it took, are not of this session.
    shows = status.RunStatus(files, blueprint, Record(agent_steps=50_000, wall_s=900.0))
    for seconds, pause_s in ((5, 0.0), (10, 0.0), (15, 3600.0), (20, 0.0)):
        clock_s += 5.0 + pause_s  # records leave it out
        record = Record(agent_steps=50_000 + 100 * seconds, wall_s=900.0 + seconds)
        shows.record(record, 0, {}, experience)
    assert [now["steps_per_second"] for now in said] == [100.0] * 4
    assert [now["seconds_left"] for now in said] == [7195.0, 7190.0, 7185.0, 7180.0]


def test_evaluations_are_rows_under_one_heading_also_after_a_resume(tmp_path, thread):
    for session in (1, 2):
        files = StatusFiles(tmp_path, thread, session)
        files.evaluation({**ROW, "updates": session})
        files.flush()
        files.close()
    assert thread.flush(HANGS_S)
    with (tmp_path / "evaluations.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(EVALUATION_COLUMNS)
    assert [row["updates"] for row in rows] == ["1", "2"]
    assert rows[0]["game"] == "tests/Game,with comma"


# --- what goes wrong -----------------------------------------------------------------------------


def test_on_a_full_disk_the_old_file_stays_whole_and_it_is_said_once(
    tmp_path, thread, monkeypatch, caplog
):
    files = StatusFiles(tmp_path, thread)
    files.show({"state": "filling"})
    assert thread.flush(HANGS_S)
    before = said(tmp_path)
    write_text, is_full = Path.write_text, True

    def full(path, text, **options):
        if not is_full:
            return write_text(path, text, **options)
        write_text(path, text[:10], **options)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Path, "write_text", full)
    for number in range(3):
        files.show({"updates": number})
        assert thread.flush(HANGS_S)
    assert said(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]
    assert [m for m in caplog.messages if "status.json" in m] == [
        "status.json cannot be written (No space left on device): training goes on, it is tried "
        "again"
    ]
    is_full = False
    with caplog.at_level("INFO"):
        files.show({"updates": 4})
        assert thread.flush(HANGS_S)
    assert said(tmp_path)["updates"] == 4
    assert caplog.messages[-1] == "status.json is written again"


def test_a_reader_sees_that_the_process_is_gone_and_takes_no_other_for_it(tmp_path, monkeypatch):
    words = {"format": FORMAT, "state": "training", **identity()}
    path = tmp_path / "status.json"
    for change, state in (
        ({}, "training"),
        # Its number was given away again.
        ({"pid_start": "another", "pid_started": words["pid_started"] - 60}, DIED),
        ({"pid_start": None, "pid_started": words["pid_started"] - 60}, DIED),
        ({"pid_start": None}, "training"),  # a file of an earlier version
        ({"pid": 2**22 + 1}, DIED),
        ({"pid": 2**62}, DIED),
        ({"pid": "1"}, DIED),
        ({"pid": 2**22 + 1, "state": "ended"}, "ended"),
        ({"pid": 2**22 + 1, "host": "elsewhere"}, "training"),  # nobody can know it here
    ):
        path.write_text(json.dumps({**words, **change}))
        assert read_status(tmp_path)["state"] == state, change
    zombie = SimpleNamespace(status=lambda: status_file.psutil.STATUS_ZOMBIE)
    monkeypatch.setattr(status_file.psutil, "Process", lambda pid: zombie)
    path.write_text(json.dumps(words))
    assert read_status(tmp_path)["state"] == DIED


@pytest.mark.skipif(start_of(os.getpid()) is None, reason="this system tells no such start")
@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_a_clock_that_is_set_kills_no_run(tmp_path, monkeypatch, step_s):
    words = {"format": FORMAT, "state": "training", **identity()}
    (tmp_path / "status.json").write_text(json.dumps(words))
    began_s = words["pid_started"]
    monkeypatch.setattr(status_file.psutil.Process, "create_time", lambda _: began_s + step_s)
    assert read_status(tmp_path)["state"] == "training"
    # Nor does one give life to a run whose number was given away at the same time of day.
    later = {**words, "pid_start": "another", "pid_started": began_s + step_s}
    (tmp_path / "status.json").write_text(json.dumps(later))
    assert read_status(tmp_path)["state"] == DIED


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"format": 2}', "{}", "\0" * 100])
def test_a_file_that_is_none_of_ours_says_nothing(tmp_path, text):
    (tmp_path / "status.json").write_text(text)
    assert read_status(tmp_path) is None


# --- a resume ------------------------------------------------------------------------------------


def test_journals_are_taken_back_with_the_run(tmp_path, thread):
    files = StatusFiles(tmp_path, thread)
    for updates in (5, 7, 8):
        at = Record(agent_steps=100 * updates, updates=updates)
        files.finding(FINDING, at)
        files.evaluation({**ROW, "updates": updates})
    files.finding(FINDING, Record(agent_steps=701, updates=7))  # steps go on without an update
    files.close()
    assert thread.flush(HANGS_S)
    with (tmp_path / "findings.jsonl").open("a") as file:
        file.write('{"updates": "many"}\n[]\n{"upda')
    before = {path: (tmp_path / path).read_text() for path in ("findings.jsonl", "evaluations.csv")}
    cuts = {cut.name: cut for cut in rewind(tmp_path, Point(7, 700))}
    assert cuts["findings.jsonl"].lines == 5
    assert cuts["evaluations.csv"].lines == 1
    for name, text in before.items():
        kept = (tmp_path / name).read_text()
        assert sorted(kept + cuts[name].aside.read_text()) == sorted(text)
    kept = [json.loads(line) for line in (tmp_path / "findings.jsonl").read_text().splitlines()]
    assert [line["updates"] for line in kept] == [5, 7]
    with (tmp_path / "evaluations.csv").open(newline="") as file:
        assert [row["updates"] for row in csv.DictReader(file)] == ["5", "7"]
    assert not rewind(tmp_path, Point(7, 700))
    shutil.rmtree(tmp_path)
