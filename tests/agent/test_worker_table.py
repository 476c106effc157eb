import os

import numpy as np

from ritornello.agent.pools.worker_pool import HasProcesses, ProcessRow
from ritornello.agent.run.experience import Experience, Serial, WorkerReport
from ritornello.agent.run.recorder import WorkerTable, processes_of
from ritornello.metrics.machine_share import ProcessUse
from ritornello.transport.channel import WorkerStats
from ritornello.transport.weights import WeightBoard
from tests.agent.runs import make_blueprint
from tests.agent.test_trainer import in_turn

ROWS = [
    ProcessRow("server", 0, 0, 11, "answering questions", 0.04, 0),
    ProcessRow("workers", 0, 2, 12, "stepping environments", 1.26, 6),
    ProcessRow("workers", 1, 0, None, "not there", 0.0, 0),
]


def test_each_process_is_shown_with_what_came_from_it_and_what_it_takes():
    table = WorkerTable()
    for version in (7, 5):
        table.book(WorkerReport(WorkerStats(steps=20), (), worker_id=0, unrolls=4, version=version))
    shown = table.show(ROWS, 10, {12: ProcessUse(0.51239, 123.44)})
    assert shown["workers"] == [
        {
            "number": 0, "life": 2, "pid": 12, "doing": "stepping environments", "silent_s": 1.3,
            "cores": 0.512, "memory_mb": 123.4, "agent_steps": 40, "unrolls": 8, "lag": 3,
        },
        {
            "number": 1, "life": 0, "pid": None, "doing": "not there", "silent_s": 0.0,
            "cores": None, "memory_mb": None, "agent_steps": 0, "unrolls": 0, "lag": None,
        },
    ]  # fmt: skip
    assert shown["server"]["doing"] == "answering questions"
    assert table.parts(ROWS) == {os.getpid(): "learner", 11: "server", 12: "workers"}


def test_workers_that_take_turns_in_this_process_are_shown_by_what_came_from_them():
    blueprint = make_blueprint(reproducible=True, worker_count=2)
    board = WeightBoard(blueprint.acting_weights.nbytes)
    with board.write(3) as block:
        blueprint.acting_weights.pack(blueprint.learner().model, block)
    experience = in_turn(blueprint, board, 0)
    assert isinstance(experience, Serial)
    assert processes_of(experience) == []
    experience.start()
    table = WorkerTable()
    while len(table.show([], 5, {})["workers"]) < 2:
        experience.next_batch()
        for report in experience.reports():
            table.book(report)
    experience.quiesce()
    experience.close()
    first, second = table.show([], 5, {os.getpid(): ProcessUse(1.0, 1.0)})["workers"]
    assert (first["number"], second["number"]) == (0, 1)
    assert first["unrolls"] >= 3
    assert first["agent_steps"] > 0
    assert first["lag"] == 2
    assert first["pid"] == os.getpid()
    assert first["cores"] is None  # it is the learner's process that takes them


def test_a_pool_that_says_nothing_of_processes_is_no_mistake():
    assert not isinstance(np.zeros(1), HasProcesses)
    assert processes_of(Experience(object(), None, None)) == []
