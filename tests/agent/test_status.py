import csv
import json
import os
from contextlib import closing
from datetime import datetime

import pytest

from ritornello.agent.run.run import Run
from ritornello.agent.run.status import FORMAT, Status
from ritornello.agent.run.trainer import Trainer
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.metrics.health import Finding
from ritornello.metrics.output_thread import OutputThread
from ritornello.metrics.record import Record, check_declared
from ritornello.metrics.rewind import Point, rewind
from tests.agent.runs import Noted, make_blueprint
from tests.agent.test_trainer import in_turn
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


def trained(folder, thread, **flags):
    """Return summary, states one after the other, and records of a run."""
    values = {"environment_max_steps": 300, "log_interval_s": 0.001, **flags}
    status = Status(folder.path, thread, session=3)
    states, show = [], status.show
    status.show = lambda news: (states.append(status.state), show(news))
    make = None if flags.get("reproducible") else in_turn
    with closing(Noted()) as sink:
        run = Run(make_blueprint(**values), folder, experience=make, status=status)
        summary = Trainer(run, sink, flush=lambda: True).run()
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
    cuts = {cut.name: cut for cut in rewind(tmp_path, Point(7, 700), datetime.now())}
    assert (cuts["findings.jsonl"].lines, cuts["evaluations.csv"].lines) == (5, 1)
    for name, text in before.items():
        kept = (tmp_path / name).read_text()
        assert sorted(kept + cuts[name].aside.read_text()) == sorted(text)
    kept = [json.loads(line) for line in (tmp_path / "findings.jsonl").read_text().splitlines()]
    assert [line["updates"] for line in kept] == [5, 7]
    with (tmp_path / "evaluations.csv").open(newline="") as file:
        assert [row["updates"] for row in csv.DictReader(file)] == ["5", "7"]
    assert not rewind(tmp_path, Point(7, 700), datetime.now())
