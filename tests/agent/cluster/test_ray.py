"""Real Ray: a private one, and a cluster whose machines are raylets of this machine.

Each test takes half a minute and half a gigabyte, so they run one at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from functools import partial
from importlib import util
from pathlib import Path

import psutil
import pytest

from agent.cluster.gateway import GatewayConfig
from agent.cluster.gateway_pool import GatewayPool
from agent.cluster.ray_engine import RaySettings, connect, python_paths
from agent.pools.pool import SerialPool
from core.errors import WorkerDied
from tests.agent.cluster.players import digest
from tests.agent.runs import make_blueprint
from tests.agent.test_rollout import make_board
from tests.deadlines import HANGS_S
from tests.house import ROOT

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.process,
    pytest.mark.timeout(1_800),  # it waits for the others first
    pytest.mark.skipif(
        util.find_spec("ray") is None, reason="Ray is not installed: requirements-ray.txt"
    ),
]


@pytest.fixture(autouse=True)
def _one_at_a_time():
    with open(Path(tempfile.gettempdir()) / "vtrace-cluster-tests.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture
def folder():
    """Short, because Ray has sockets in it."""
    with tempfile.TemporaryDirectory(prefix="vt", ignore_cleanup_errors=True) as path:
        yield path


@pytest.fixture(autouse=True)
def token(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))


class RayCluster:
    def __init__(self, folder):
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("ray_cluster.py")), folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self.address = self.read().removeprefix("address ")

    def read(self):
        while True:
            line = self.process.stdout.readline()
            assert line, "the cluster did not come up"
            if line.startswith(("address ", "node ", "done")):
                return line.strip()

    def __call__(self, command):
        print(command, file=self.process.stdin, flush=True)
        return self.read()

    def close(self):
        children = psutil.Process(self.process.pid).children(recursive=True)
        for child in children:  # also those that are frozen
            with contextlib.suppress(psutil.Error):
                child.kill()
        self.process.kill()
        self.process.wait(HANGS_S)
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def cluster(folder):
    started = RayCluster(folder)
    yield started
    started.close()


@pytest.fixture
def make_pool():
    pools = []

    def make(blueprint, address=""):
        settings = RaySettings(
            address, blueprint.choices.worker_count, blueprint.acting_weights.nbytes,
            paths=python_paths(),
        )  # fmt: skip
        config = GatewayConfig(
            workers=tuple(blueprint.workers()),
            make_engine=partial(connect, settings),
            slots=2,
            max_restarts=3,
            worker_timeout_s=3600.0,
            weights_nbytes=blueprint.acting_weights.nbytes,
        )
        pools.append(GatewayPool(config, make_board(blueprint)))
        pools[-1].start()
        return pools[-1]

    yield make
    for pool in pools:
        pool.stop(3.0)


class Streams:
    """seq of the blocks of each worker, cut where a new life begins."""

    def __init__(self, pool, schema):
        self.pool, self.schema = pool, schema
        self.lives = defaultdict(list)

    def take(self):
        for block in self.pool.poll(0.5):
            seqs = self.schema.view(block.records, "seq")
            seq = int(seqs[0])
            lives = self.lives[block.worker_id]
            if seq == 0:
                lives.append([])
            lives[-1].append(seq)
            assert lives[-1] == list(range(seq + 1)), f"worker {block.worker_id}"
            block.release()

    def until(self, condition):
        deadline = time.monotonic() + HANGS_S
        while not condition():
            assert time.monotonic() < deadline, self.pool.describe()
            self.take()

    def progress(self, *workers, blocks=5):
        goals = {worker: self.made(worker) + blocks for worker in workers}
        self.until(lambda: all(self.made(worker) >= goal for worker, goal in goals.items()))

    def made(self, worker):
        return sum(map(len, self.lives[worker]))


def processes_of_ray():
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or ())
        if "vtray-" in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append((process.pid, line[:80]))
    return found


def hosts_of_ray():
    """Actors, also of clusters that fell apart."""
    return {
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if (process.info["cmdline"] or [""])[0].startswith("ray::Host")
    }


def test_a_private_ray_plays_the_games_of_the_serial_pool_and_leaves_nothing(make_pool):
    blueprint = make_blueprint("CartPole-v1", worker_count=2)
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


def test_a_cluster_with_another_token_lets_nobody_in(cluster, make_pool, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    blueprint = make_blueprint("CartPole-v1", worker_count=1)
    pool = make_pool(blueprint, cluster.address)
    deadline = time.monotonic() + HANGS_S

    def until_it_gives_up():
        while time.monotonic() < deadline:
            pool.poll(0.5)

    with pytest.raises(WorkerDied, match="(?s)cannot be joined.*token"):
        until_it_gives_up()


def has_learned(metrics):
    return metrics.exists() and any(
        '"updates": 0,' not in line for line in metrics.read_text().splitlines()
    )


def test_a_run_with_a_private_ray_learns_and_saves_when_it_is_told_to_stop(tmp_path):
    run = subprocess.Popen(
        [
            *(sys.executable, "main.py", "--env=CartPole-v1", "--multiprocessing_backend=ray"),
            *("--worker_count=2", "--envs_per_worker=2", f"--results_dir={tmp_path}"),
            *("--run_name=with_ray", "--log_interval_s=0.5", "--charts=False"),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    metrics = tmp_path / "with_ray" / "metrics.jsonl"
    deadline = time.monotonic() + HANGS_S
    try:
        while not has_learned(metrics):
            assert time.monotonic() < deadline
            assert run.poll() is None, run.stdout.read()
            time.sleep(0.5)
        os.kill(run.pid, signal.SIGTERM)
        output, _ = run.communicate(timeout=HANGS_S)
    finally:
        run.kill()
    assert run.returncode == 130, output
    assert list((tmp_path / "with_ray").glob("*.pt")) or list(
        (tmp_path / "with_ray").rglob("checkpoint*")
    ), output
    assert "cluster/hosts" in metrics.read_text()
