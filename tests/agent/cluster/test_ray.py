"""Real Ray: a private one, and a cluster whose machines are raylets of this machine."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
import pytest

from ritornello.agent.pools.serial_pool import SerialPool
from ritornello.core.errors import WorkerDied
from tests.agent.cluster.players import digest
from tests.agent.cluster.ray_helpers import WITH_RAY, Streams, hosts_of_ray, processes_of_ray
from tests.agent.runs import make_blueprint
from tests.agent.test_rollout import make_board
from tests.deadlines import HANGS_S

pytestmark = WITH_RAY


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_a_private_ray_plays_the_games_of_the_serial_pool_and_leaves_nothing(make_pool, env):
    blueprint = make_blueprint(env, worker_count=2)
    serial = SerialPool(blueprint.workers(), make_board(blueprint))
    serial.start()
    wanted = {}

    def note(found, block):
        unroll = blueprint.schema.unroll(block.records)
        for env, seq, record in zip(unroll.env_id, unroll.seq, block.records, strict=True):
            found[block.worker_id, int(env), int(seq)] = digest(record)

    for _ in range(2 * 10):
        note(wanted, serial.poll(0.0)[0])
    serial.stop(0.0)
    before = processes_of_ray()
    pool, found = make_pool(blueprint), {}
    deadline = time.monotonic() + HANGS_S
    while not wanted.keys() <= found.keys():
        assert time.monotonic() < deadline, pool.describe()
        for block in pool.poll(0.5):
            note(found, block)
            block.release()
    assert {key: found[key] for key in wanted} == wanted
    assert "ray" not in sys.modules
    assert "/ray/" not in Path("/proc/self/maps").read_text()
    assert len(processes_of_ray()) > len(before)
    pool.stop(3.0)
    deadline = time.monotonic() + HANGS_S
    while processes_of_ray() != before:
        assert time.monotonic() < deadline, processes_of_ray()
        time.sleep(0.1)


def test_the_end_of_a_private_head_is_said_and_a_new_one_goes_on(make_pool, caplog):
    blueprint = make_blueprint("CartPole-v1", worker_count=1)
    pool = make_pool(blueprint)
    streams = Streams(pool, blueprint.schema)
    streams.progress(0)
    (head,) = [
        child
        for child in psutil.Process(pool._place.process.pid).children(recursive=True)
        if "gcs_server" in child.name()
    ]
    head.kill()
    streams.until(lambda: len(streams.lives[0]) > 1)
    streams.progress(0)
    assert pool.restarts == 1
    assert "the head of the Ray cluster on this machine has not answered" in caplog.text


def test_machines_of_a_cluster_die_freeze_and_join(cluster, make_pool, caplog):
    cluster("add 1")
    cluster("add 2")
    blueprint = make_blueprint("CartPole-v1", worker_count=4)
    pool = make_pool(blueprint, cluster.address)
    streams = Streams(pool, blueprint.schema)
    streams.progress(0, 1, 2)
    assert streams.made(3) == 0  # no room
    assert cluster("add 1") == "node 2"  # joins
    streams.progress(0, 1, 2, 3)
    assert [len(streams.lives[worker]) for worker in range(4)] == [1, 1, 1, 1]

    stats = pool.stats()
    cluster("kill 0")
    streams.until(lambda: pool.stats()["cluster/nodes_lost"] == stats["cluster/nodes_lost"] + 1)
    played = [streams.made(worker) for worker in range(4)]
    streams.until(lambda: sum(streams.made(w) > played[w] for w in range(4)) == 3)
    assert cluster("add 1") == "node 3"
    lost = [worker for worker in range(4) if streams.made(worker) == played[worker]]
    streams.progress(*range(4))
    assert sorted(len(streams.lives[worker]) for worker in range(4)) == [1, 1, 1, 2], lost

    cluster("freeze 1")
    streams.until(lambda: pool.stats()["cluster/hosts_silent"] == 1)
    assert "the others go on without it" in caplog.text
    cluster("thaw 1")
    streams.until(lambda: pool.stats()["cluster/hosts_silent"] == 0)
    streams.progress(*range(4))
    assert sorted(len(streams.lives[worker]) for worker in range(4)) == [1, 1, 1, 2]
    assert pool.restarts == 0


def test_the_end_of_the_head_of_a_cluster_ends_the_run_with_a_sentence(cluster, make_pool):
    before = hosts_of_ray()
    cluster("add 1")
    blueprint = make_blueprint("CartPole-v1", worker_count=1)
    pool = make_pool(blueprint, cluster.address)
    streams = Streams(pool, blueprint.schema)
    streams.progress(0)
    assert len(hosts_of_ray()) == len(before) + 1
    cluster("head")
    with pytest.raises(WorkerDied, match="Ray cluster at"):
        streams.until(lambda: False)
    pool.stop(3.0)
    deadline = time.monotonic() + HANGS_S
    while hosts := hosts_of_ray() - before:
        assert time.monotonic() < deadline, hosts
        time.sleep(0.5)
