from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from ritornello.agent.cluster import node_host
from ritornello.agent.cluster.hosts import Launch
from ritornello.agent.cluster.node_host import QUEUE_BLOCKS, NodeHost
from ritornello.agent.cluster.wire import open_block
from ritornello.core.errors import TransportError
from tests.agent.cluster.players import (
    ENVS,
    SCHEMA,
    WEIGHTS_NBYTES,
    Clock,
    PlayerPool,
    config,
    machines,
    play,
)
from tests.deadlines import HANGS_S

WEIGHTS = np.zeros(WEIGHTS_NBYTES, np.uint8)


def task(seats=(0, 1), epoch=0, **values):
    (node,) = machines(9)
    return replace(config().task(Launch(epoch, node, seats)), **values)


@pytest.fixture
def make_host():
    hosts = []

    def make(*arguments, **values):
        hosts.append(NodeHost(*arguments, **values))
        return hosts[-1]

    yield make
    for host in hosts:
        host.stop()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("host-")]


def until(condition):
    deadline = time.monotonic() + HANGS_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return found


def started(host, version=0):
    assert host.start() == ""
    assert host.set_weights(version, WEIGHTS) == version
    return host


def full(host, number=0):
    """Wait until the queue can take no more."""
    limit = QUEUE_BLOCKS * 2
    until(lambda: host.take(number, 0, 0.0).report.queued == limit)
    return host.take(number, 99, 0.0).blocks


def test_blocks_come_in_order_with_all_that_belongs_to_them(make_host):
    host, number, seqs = started(make_host(task(epoch=7), PlayerPool)), 0, {0: 0, 1: 0}
    while number < 20:
        delivery = host.take(number, 3, HANGS_S)
        assert delivery.epoch == 7
        assert 1 <= len(delivery.blocks) <= 3
        for block in delivery.blocks:
            assert (block.epoch, block.number) == (7, number)
            records = SCHEMA.allocate(ENVS)
            open_block(block, SCHEMA, records, newest=0)
            seq = seqs[block.worker_id]
            launch = config().task(Launch(7, None, (0,))).workers[0].launch
            expected = play(block.worker_id, 0, seq, 0, launch=launch)
            np.testing.assert_array_equal(records, expected)
            assert [end.return_raw for end in block.episodes] == [float(seq)] * (seq % 2)
            assert block.stats.steps == ENVS * 3
            seqs[block.worker_id] += 1
            number += 1


def test_what_was_not_acknowledged_comes_again_and_what_was_never_does(make_host):
    host = started(make_host(task(), PlayerPool))
    first = full(host)
    assert [block.number for block in first] == [0, 1, 2, 3]
    assert host.take(0, 99, 0.0).blocks == first
    assert host.take(2, 1, 0.0).blocks == first[2:3]
    assert [block.number for block in full(host, 2)] == [2, 3, 4, 5]
    assert host.take(1, 1, 0.0).blocks == first[2:3]  # 0 and 1 are forgotten


def test_nobody_plays_on_while_nobody_takes(make_host):
    pools = []

    def make_pool(*arguments):
        pools.append(PlayerPool(*arguments))
        return pools[-1]

    host = started(make_host(task(), make_pool))
    full(host)
    threading.Event().wait(0.5)
    assert host.take(0, 0, 0.0).report.queued == QUEUE_BLOCKS * 2
    assert sum(pools[0].seqs.values()) <= QUEUE_BLOCKS * 2 + 2  # one poll more


def test_workers_begin_only_when_there_are_weights(make_host):
    host = make_host(task(), PlayerPool)
    host.start()
    assert host.take(0, 9, 0.5).blocks == ()
    assert host.take(0, 0, 0.0).report.alive == 0
    host.set_weights(5, WEIGHTS)
    assert host.take(0, 1, HANGS_S).blocks


def test_older_weights_never_take_the_place_of_newer_ones(make_host):
    host = started(make_host(task(), PlayerPool), version=5)
    assert host.set_weights(4, WEIGHTS + 1) == 5
    assert host.set_weights(5, WEIGHTS + 1) == 5
    into = WEIGHTS.copy()
    host._board.read_if_newer(-1, into)
    np.testing.assert_array_equal(into, WEIGHTS)
    assert host.set_weights(6, (WEIGHTS + 9).tobytes()) == 6
    host._board.read_if_newer(5, into)
    np.testing.assert_array_equal(into, WEIGHTS + 9)
    with pytest.raises(TransportError, match="another model"):
        host.set_weights(7, WEIGHTS[1:])


def test_a_pool_that_gives_up_is_told_after_all_its_blocks(make_host):
    class Breaks(PlayerPool):
        def poll(self, timeout_s):
            if self.seqs[0] == 1:
                logging.getLogger("ritornello.agent.pools.pool").warning("worker 0 was killed")
                logging.getLogger("ritornello.agent.pools.pool").info("not for the user")
                raise ValueError("a mistake in step()")
            return super().poll(timeout_s)

    host = started(make_host(task(), Breaks))
    until(lambda: host.take(0, 99, 0.0).report.queued == 2)
    until(lambda: host._failure)
    delivery = host.take(0, 1, HANGS_S)
    assert len(delivery.blocks) == 1
    assert delivery.report.failure == ""
    report = host.take(2, 3, HANGS_S).report
    assert "a mistake in step()" in report.failure
    assert not report.was_abandoned
    assert report.alive == 0


def test_what_a_pool_logs_is_told_and_what_others_log_is_not(make_host):
    class Warns(PlayerPool):
        def start(self):
            super().start()
            logging.getLogger("ritornello.agent.pools.pool").warning("worker %d was killed", 0)
            logging.getLogger("ritornello.agent.pools.pool").warning("x" * 100_000)

    host = started(make_host(task(), Warns))
    logging.getLogger("ritornello.agent.pools.pool").warning("of somebody else")
    said = list(host.take(0, 1, HANGS_S).report.said)
    assert said[0] == "worker 0 was killed"
    assert len(said) == 2
    assert len(said[1]) < 10_000
    assert host.take(1, 1, 0.0).report.said == ()


def test_a_host_that_nobody_asks_ends_by_itself(make_host):
    host = started(make_host(task(abandoned_s=0.3), PlayerPool))
    until(lambda: host._failure)
    assert "nobody has asked this host for anything" in host._failure
    number = len(host.take(0, 99, 0.0).blocks)  # what it has made comes first
    assert host.take(number, 0, 0.0).report.was_abandoned
    until(lambda: not host._thread.is_alive())


class Counted(Clock):
    """Says how often it was read."""

    reads = 0

    def __call__(self):
        now = super().__call__()
        self.reads += 1
        return now


def test_a_host_that_was_stopped_itself_does_not_take_that_for_the_end_of_its_gateway(
    make_host, monkeypatch
):
    monkeypatch.setattr(node_host, "POLL_S", 0.001)
    clock = Counted()
    host = make_host(task(abandoned_s=20.0), PlayerPool, clock)
    assert host.start() == ""

    def pass_time(seconds):
        before, clock.now = clock.reads, clock.now + seconds
        # The second one began after that. A host that has ended reads no more.
        until(lambda: clock.reads >= before + 2 or host._failure)

    for _ in range(3):
        pass_time(3600.0)
    assert host.take(0, 0, 0.0).report.failure == ""
    for _ in range(4):
        pass_time(5.0)
    assert not host._failure
    pass_time(5.0)
    until(lambda: host._failure)


def test_another_program_is_refused_before_anything_starts(make_host):
    own = task().fingerprint
    host = make_host(task(fingerprint=replace(own, files=own.files[1:])), PlayerPool)
    assert host.start().startswith("it has another version of ")
    assert host._thread.ident is None


def test_on_one_machine_a_file_that_was_edited_meanwhile_is_no_other_program(make_host):
    assert config(compares_programs=False).task(Launch(0, None, (0,))).fingerprint is None
    started(make_host(task(fingerprint=None), PlayerPool))


def test_a_host_may_be_started_again_when_its_answer_was_lost(make_host):
    host = make_host(task(), PlayerPool)
    assert host.start() == ""
    thread = host._thread
    assert host.start() == ""
    assert host._thread is thread
    assert thread.is_alive()


def test_stop_ends_a_host_that_waits_and_may_be_called_twice(make_host):
    for host in (
        make_host(task(), PlayerPool),  # not started
        started(make_host(task(), PlayerPool)),
    ):
        host.stop()
        host.stop()
    waiting = make_host(task(), PlayerPool)
    waiting.start()
    waiting.stop()
