"""The gateway's process and the learner's side of it, over a cluster without Ray."""

import os
import re
import signal
import time
from collections import defaultdict
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from ritornello.agent.acting.worker import WorkerBody
from ritornello.agent.cluster.dispatcher import ClusterLost
from ritornello.agent.cluster.gateway_pool import GatewayPool, ring_slots
from ritornello.core.errors import WorkerDied
from ritornello.metrics.record import check_declared
from tests.agent.cluster.fake_cluster import (
    ENVS,
    SCHEMA,
    PlayerConfig,
    TerminatedAsItCloses,
    a_ray_that_fails_and_is_asked_to_end_as_it_leaves,
    board,
    config,
    one_that_comes_up_without_room,
    one_whose_workers_die,
    one_whose_workers_raise,
    play,
    publish,
)
from tests.agent.runs import COUNTING, make_blueprint
from tests.agent.test_rollout import make_board
from tests.deadlines import HANGS_S, wait_until

pytestmark = pytest.mark.process


def no_cluster():
    raise ClusterLost("there is no cluster at 192.0.2.1:6379")


@pytest.fixture
def make_pool(pools):
    def make(settings, weights=None):
        pools.append(GatewayPool(settings, weights or board()))
        pools[-1].start()
        return pools[-1]

    return make


class Stream:
    """Blocks of players: every block is compared with what it must be."""

    def __init__(self, pool):
        self.pool = pool
        self.seqs = defaultdict(list)  # (worker, life of the gateway) -> seqs
        self.versions = defaultdict(set)  # version -> workers

    def take(self, release=True):
        blocks = self.pool.poll(0.5)
        for block in blocks:
            seq, version = (int(SCHEMA.view(block.records, n)[0]) for n in ("seq", "version"))
            launches = {0: (), 1: (1, 0), 2: (2, 0)}
            player = PlayerConfig(block.worker_id)
            (life,) = [
                life
                for life, launch in launches.items()
                if np.array_equal(block.records, play(replace(player, launch=launch), seq, version))
            ]
            seqs = self.seqs[block.worker_id, life]
            seqs.append(seq)
            assert seqs == list(range(len(seqs)))
            assert block.stats.steps == ENVS * 3
            assert len(block.episodes) == 1 - seq % 2
            self.versions[version].add(block.worker_id)
            if release:
                block.release()
        return blocks

    def until(self, condition):
        deadline = time.monotonic() + HANGS_S
        while not condition():
            assert time.monotonic() < deadline, self.pool.describe()
            self.take()

    def progress(self, life=0, blocks=8):
        goals = {worker: len(self.seqs[worker, life]) + blocks for worker in range(4)}
        self.until(lambda: all(len(self.seqs[w, life]) >= goal for w, goal in goals.items()))


def poll_on(pool):
    deadline = time.monotonic() + HANGS_S
    while time.monotonic() < deadline:
        pool.poll(0.5)


def test_the_workers_of_all_machines_look_like_one_pool_that_gets_new_weights(make_pool):
    weights = board(3)
    pool = make_pool(config(), weights)
    stream = Stream(pool)
    stream.progress()
    stream.until(lambda: pool.alive() == 4 and pool.stats().get("cluster/bytes_in_per_s", 0) > 0)
    stats = pool.stats()
    assert stats["cluster/machines"] == 2
    assert stats["cluster/workers_without_room"] == stats["workers/restarts"] == 0
    for name in stats:
        check_declared(name)
    assert pool.describe()[0].startswith("gateway: ")
    assert pool.describe()[1] == "4 of 4 workers run, on 2 machines"
    publish(weights, 11)
    stream.until(lambda: stream.versions[11] == {0, 1, 2, 3})
    assert stream.versions.keys() == {3, 11}
    process = pool._place.life.process
    pool.stop(3.0)
    assert not process.is_alive()
    pool.stop(3.0)


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_gateway_that_dies_is_replaced_and_its_workers_play_other_games(
    make_pool, caplog, number
):
    pool = make_pool(config())
    stream = Stream(pool)
    stream.progress()
    os.kill(pool._place.life.process.pid, number)
    stream.progress(life=1)
    assert pool.stats()["workers/restarts"] == 1
    assert "gateway (pid" in caplog.text


def test_a_gateway_that_is_asked_to_end_while_it_leaves_closes_the_cluster(make_pool, tmp_path):
    pool = make_pool(config(connect=partial(TerminatedAsItCloses, tmp_path / "note")))
    process = pool._place.life.process
    Stream(pool).progress(blocks=1)
    pool.stop(HANGS_S)
    assert process.exitcode == 0
    assert (tmp_path / "note").exists()


def test_it_is_said_what_a_gateway_waits_for(make_pool, tmp_path):
    is_up = tmp_path / "is up"
    pool = make_pool(config(connect=partial(one_that_comes_up_without_room, is_up)))

    def wait_for(words):
        wait_until(
            lambda: pool.poll(0.1) or words in pool.describe()[0], f"it did not say: {words}"
        )

    wait_for("gateway: starting or joining a cluster for ")
    is_up.touch()
    wait_for("gateway: waiting for its workers for ")


def test_a_gateway_whose_blocks_nobody_takes_waits_for_a_slot(make_pool):
    pool = make_pool(config(), board(3))
    held = []

    def is_full():
        held.extend(pool.poll(0.1))
        return "gateway: waiting for a free slot for " in pool.describe()[0]

    wait_until(is_full)
    assert len(held) == ring_slots(4)


def test_a_cluster_that_comes_up_is_not_waited_for_at_the_end(make_pool, tmp_path):
    pool = make_pool(config(connect=partial(one_that_comes_up_without_room, tmp_path / "never")))
    process = pool._place.life.process
    wait_until(lambda: pool.poll(0.1) or "joining" in pool.describe()[0])
    pool.stop(HANGS_S)
    assert process.exitcode == -signal.SIGTERM


def test_why_ray_did_not_come_up_is_said_although_it_is_asked_to_end(make_pool, caplog):
    pool = make_pool(config(connect=a_ray_that_fails_and_is_asked_to_end_as_it_leaves))
    wait_until(lambda: pool.poll(0.1) or "gateway (pid" in caplog.text)
    assert "a private Ray could not be started on this machine: timed out" in caplog.text
    assert "SystemExit" not in caplog.text


@pytest.mark.slow
def test_a_gateway_without_a_cluster_gives_up_with_one_sentence(make_pool):
    pool = make_pool(config(connect=no_cluster))
    with pytest.raises(WorkerDied, match="(?s)there is no cluster at 192.0.2.1:6379.*giving up"):
        poll_on(pool)


@pytest.mark.parametrize(
    ("connect", "words"),
    [
        (one_whose_workers_die, "segmentation fault"),
        pytest.param(one_whose_workers_raise, "ValueError: no 7", marks=pytest.mark.slow),
    ],
)
def test_what_fails_on_all_machines_ends_the_run_without_another_gateway(
    make_pool, caplog, connect, words
):
    pool = make_pool(config(connect=connect, max_restarts=1))
    with pytest.raises(WorkerDied, match=f"(?s)on all machines: worker .*{re.escape(words)}"):
        poll_on(pool)
    assert pool.stats()["workers/restarts"] == 0
    assert "worker 0 failed: " in caplog.text, "what the gateway logs is in the log of the learner"


def test_the_start_of_a_worker_decides_what_it_plays_and_the_first_changes_nothing():
    blueprint = make_blueprint(COUNTING, worker_count=1)

    def path(**values):
        (worker,) = blueprint.workers()
        body = WorkerBody(replace(worker, **values), make_board(blueprint))
        body.close()
        return body._path

    assert path() == ("worker", 0, "life", 0)
    assert path(launch=(1, 0)) == ("worker", 0, "life", 0, "launch", 1, 0)
