import os
import signal

import numpy as np
import pytest

from ritornello.agent.pools.serial_pool import SerialPool
from ritornello.transport.lifeline import Phase
from tests.agent.pools import (
    all_of,
    check_no_unroll_is_missed,
    first_block_of,
    gather_until,
    more_than,
)
from tests.agent.runs import make_blueprint
from tests.agent.test_rollout import make_board

# Workers import torch, which takes a minute where ten programs want the same core.
pytestmark = pytest.mark.process


@pytest.mark.parametrize("slots", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_process_pool_with_one_worker_yields_the_unrolls_of_the_serial_pool(
    make_process_pool, slots
):
    blueprint = make_blueprint()
    pool = make_process_pool(blueprint, slots=slots)
    serial = SerialPool(blueprint.workers(), make_board(blueprint))
    serial.start()
    for _, records in gather_until(pool, more_than(5)):
        expected = serial.poll(0.0)[0].records
        for name in blueprint.schema.fields:
            of_pool = blueprint.schema.view(records, name)
            np.testing.assert_array_equal(of_pool, blueprint.schema.view(expected, name), name)
    serial.stop(0.0)


@pytest.mark.parametrize("slots", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_per_environment_seq_arrives_without_gap_or_repetition_unless_a_worker_died(
    make_process_pool, caplog, slots
):
    blueprint = make_blueprint(worker_count=2)
    pool = make_process_pool(blueprint, slots=slots)
    taken = gather_until(pool, more_than(11)) + gather_until(pool, all_of(0, 1))
    check_no_unroll_is_missed(blueprint.schema, taken)

    rows = pool.processes()
    assert [(row.part, row.number, row.life) for row in rows] == [
        ("workers", 0, 0), ("workers", 1, 0),
    ]  # fmt: skip
    assert sum(row.unrolls for row in rows) == 3 * len(taken)
    assert [row.pid for row in rows] == [member.life.process.pid for member in pool.members]
    assert {row.doing for row in rows} <= {phase.words for phase in Phase}

    victim = pool.members[0].life.process
    os.kill(victim.pid, signal.SIGKILL)
    taken += gather_until(pool, first_block_of(0, blueprint.schema))
    assert "worker 0" in caplog.text
    assert "killed by signal 9" in caplog.text
    assert [row.life for row in pool.processes()] == [1, 0]
    check_no_unroll_is_missed(blueprint.schema, taken, died=0)

    processes = [member.life.process for member in pool.members]
    pool.stop(3.0)
    assert [process.is_alive() for process in processes] == [False, False]
    pool.stop(3.0)  # a second time does no harm
