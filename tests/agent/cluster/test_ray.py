"""Real Ray: a private one, and a cluster whose machines are raylets of this machine."""

import os
import secrets
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from ritornello.agent.cluster.ray_cluster import workers_that_fit
from ritornello.agent.pools.serial_pool import SerialPool
from ritornello.agent.stored.checkpoint import load
from ritornello.core.errors import ConfigError, WorkerDied
from tests.agent.cluster.fake_cluster import digest
from tests.agent.cluster.ray_helpers import (
    WITH_RAY,
    RayCluster,
    Streams,
    actors_of_ray,
    processes_of_ray,
)
from tests.agent.runs import make_blueprint
from tests.agent.test_rollout import make_board
from tests.deadlines import HANGS_S, wait_until
from tests.integration.commands import SMALL, records, started, wait_for_records

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
    actors = actors_of_ray()
    assert {psutil.Process(pid).environ()["OPENBLAS_NUM_THREADS"] for pid in actors} == {"1"}
    pool.stop(3.0)
    wait_until(lambda: processes_of_ray() == before)


def test_a_worker_that_is_killed_or_hangs_is_replaced(make_pool, caplog):
    before = actors_of_ray()
    blueprint = make_blueprint("CartPole-v1", worker_count=1)
    pool = make_pool(blueprint)
    streams = Streams(pool, blueprint.schema)
    streams.progress(0)
    for lives, act in ((2, psutil.Process.kill), (3, psutil.Process.suspend)):
        (actor,) = actors_of_ray() - before
        act(psutil.Process(actor))
        streams.until(lambda lives=lives: len(streams.lives[0]) == lives)
        streams.progress(0)
    streams.until(lambda: pool.stats()["workers/hung"] == 1)
    assert pool.stats()["workers/restarts"] == 2
    assert "(--worker_timeout)" in caplog.text


def test_machines_of_a_cluster_die_and_join(cluster, make_pool):
    with pytest.raises(ConfigError, match="0 CPUs"):
        workers_that_fit(cluster.address, is_insecure=False)
    cluster("add 1")
    cluster("add 2")
    assert workers_that_fit(cluster.address, is_insecure=False) == 3
    assert "ray" not in sys.modules
    blueprint = make_blueprint("CartPole-v1", worker_count=4)
    pool = make_pool(blueprint, cluster.address)
    streams = Streams(pool, blueprint.schema)
    streams.until(lambda: sum(streams.made(worker) > 5 for worker in range(4)) == 3)  # no room
    assert cluster("add 1") == "node 2"  # joins
    streams.progress(0, 1, 2, 3)
    assert [len(streams.lives[worker]) for worker in range(4)] == [1, 1, 1, 1]

    cluster("kill 0")
    streams.until(lambda: pool.stats()["cluster/workers_without_room"] == 1)
    assert cluster("add 1") == "node 3"
    streams.progress(*range(4))
    assert sorted(len(streams.lives[worker]) for worker in range(4)) == [1, 1, 1, 2]
    assert pool.stats()["workers/restarts"] == 0


def test_a_cluster_with_another_token_lets_nobody_in(cluster, make_pool, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    blueprint = make_blueprint("CartPole-v1", worker_count=1)
    streams = Streams(make_pool(blueprint, cluster.address), blueprint.schema)
    with pytest.raises(WorkerDied, match="has another token than this machine"):
        streams.until(lambda: False)
    with pytest.raises(ConfigError, match="or for one in spite of that word"):
        workers_that_fit(cluster.address, is_insecure=True)


def test_a_cluster_that_asks_for_no_token_is_refused_unless_that_is_wanted(folder, make_pool):
    cluster = RayCluster(folder, RAY_AUTH_MODE="disabled")
    try:
        cluster("add 1")
        with pytest.raises(ConfigError, match="asks for no token"):
            workers_that_fit(cluster.address, is_insecure=False)
        assert workers_that_fit(cluster.address, is_insecure=True) == 1
        blueprint = make_blueprint("CartPole-v1", worker_count=1)
        pool = make_pool(blueprint, cluster.address, is_insecure=True)
        Streams(pool, blueprint.schema).progress(0)
        pool.stop(3.0)
    finally:
        cluster.close()


def test_a_run_leaves_nothing_of_a_private_ray_that_is_coming_up(tmp_path, folder, monkeypatch):
    monkeypatch.setenv("TMPDIR", folder)
    before, own_terminal = processes_of_ray(), {"start_new_session": True}
    with started(tmp_path, *SMALL, "--multiprocessing_backend=ray", **own_terminal) as process:
        wait_until(lambda: processes_of_ray() != before, process=process)
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=HANGS_S)
    assert process.returncode == 130, output
    assert "as it left" not in output
    wait_until(lambda: processes_of_ray() == before)
    assert not list(Path(folder).glob("vtray-*"))


@pytest.mark.parametrize("stop", ["SIGTERM", "Ctrl-C"])
def test_a_run_with_a_private_ray_saves_when_it_is_told_to_stop(tmp_path, stop):
    before, own_terminal = processes_of_ray(), {"start_new_session": True}
    with started(tmp_path, *SMALL, "--multiprocessing_backend=ray", **own_terminal) as process:
        folder = wait_for_records(tmp_path, 1)
        if stop == "SIGTERM":
            process.terminate()
        else:  # the terminal sends it to all processes of the group, those of Ray included
            os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=HANGS_S)
    assert process.returncode == 130, output
    assert output.count("stopping: saving a checkpoint") == 1
    assert "Traceback" not in output
    assert load(folder).state["tally"]["updates"] == records(folder)[-1]["updates"] > 0
    assert "cluster/machines" in (folder / "metrics.jsonl").read_text("utf-8")
    wait_until(lambda: processes_of_ray() == before)
