import os
import signal
import time

import numpy as np
import pytest

from ritornello.agent.pools.pool import ProcessPool
from ritornello.agent.pools.serial_pool import SerialPool
from ritornello.transport.lifeline import Phase
from tests.agent.runs import make_blueprint
from tests.agent.test_rollout import make_board
from tests.deadlines import HANGS_S

# Workers import torch, which takes a minute where ten programs want the same core.
pytestmark = pytest.mark.process


def gather(pool, blocks):
    """(worker, seq, records) of the next `blocks` blocks, released at once."""
    taken, deadline = [], time.monotonic() + HANGS_S
    while len(taken) < blocks:
        assert time.monotonic() < deadline, f"only {len(taken)} of {blocks} blocks came"
        for block in pool.poll(0.5):
            taken.append((block.worker_id, block.records.copy()))
            block.release()
    return taken


@pytest.fixture
def make_pool():
    pools = []

    def make(blueprint, max_restarts=2, slots=2):
        pool = ProcessPool(
            blueprint.workers(), make_board(blueprint), slots=slots, max_restarts=max_restarts
        )
        pools.append(pool)
        pool.start()
        return pool

    yield make
    for pool in pools:
        pool.stop(3.0)


def sequences(blueprint, taken):
    by_env = {}
    for worker, records in taken:
        unroll = blueprint.schema.unroll(records)
        for env, seq in zip(unroll.env_id.tolist(), unroll.seq.tolist(), strict=True):
            by_env.setdefault((worker, env), []).append(seq)
    return by_env


def starts_anew(blueprint, taken, worker):
    """Whether the first block of a worker's life is among these."""
    return any(
        who == worker and blueprint.schema.unroll(records).seq[0] == 0 for who, records in taken
    )


@pytest.mark.parametrize("slots", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_process_pool_with_one_worker_yields_the_unrolls_of_the_serial_pool(make_pool, slots):
    blueprint = make_blueprint()
    pool = make_pool(blueprint, slots=slots)
    serial = SerialPool(blueprint.workers(), make_board(blueprint))
    serial.start()
    for _, records in gather(pool, 6):
        expected = serial.poll(0.0)[0].records
        for name in blueprint.schema.fields:
            of_pool = blueprint.schema.view(records, name)
            np.testing.assert_array_equal(of_pool, blueprint.schema.view(expected, name), name)
    serial.stop(0.0)


@pytest.mark.parametrize("slots", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_per_environment_seq_arrives_without_gap_or_repetition_unless_a_worker_died(
    make_pool, caplog, slots
):
    blueprint = make_blueprint(worker_count=2)
    pool = make_pool(blueprint, slots=slots)
    taken = gather(pool, 12)
    while {worker for worker, _ in taken} != {0, 1}:
        taken += gather(pool, 1)
    for seqs in sequences(blueprint, taken).values():
        assert seqs == list(range(len(seqs)))

    rows = pool.processes()
    assert [(row.part, row.number, row.life) for row in rows] == [
        ("workers", 0, 0), ("workers", 1, 0),
    ]  # fmt: skip
    assert sum(row.unrolls for row in rows) == 3 * len(taken)
    assert [row.pid for row in rows] == [member.life.process.pid for member in pool._members]
    assert {row.doing for row in rows} <= {phase.words for phase in Phase}

    victim = pool._members[0].life.process
    os.kill(victim.pid, signal.SIGKILL)
    after = []
    while not starts_anew(blueprint, after, worker=0):
        after += gather(pool, 1)
    assert "worker 0" in caplog.text
    assert "killed by signal 9" in caplog.text
    assert [row.life for row in pool.processes()] == [1, 0]
    both = sequences(blueprint, taken + after)
    for env in range(3):
        undisturbed = both[1, env]
        assert undisturbed == list(range(len(undisturbed)))
        lives = both[0, env]
        restart = lives.index(0, 1)  # the second life counts from 0 again
        assert lives == [*range(restart), *range(len(lives) - restart)]

    processes = [member.life.process for member in pool._members]
    pool.stop(3.0)
    assert [process.is_alive() for process in processes] == [False, False]
    pool.stop(3.0)  # a second time does no harm
