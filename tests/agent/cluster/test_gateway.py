"""The gateway's process and the learner's side of it, with hosts that are threads: no Ray."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from ritornello.agent.acting.worker import WorkerBody
from ritornello.agent.cluster import gateway_pool
from ritornello.agent.cluster.engine import EngineLost, Node
from ritornello.agent.cluster.gateway import GatewayConfig
from ritornello.agent.cluster.gateway_pool import GatewayPool, ring_slots
from ritornello.agent.cluster.hosts import Launch
from ritornello.agent.cluster.thread_engine import ThreadEngine
from ritornello.agent.pools.pool import ProcessPool
from ritornello.agent.pools.serial_pool import SerialPool
from ritornello.core.errors import ConfigError, WorkerDied
from ritornello.metrics.record import check_declared
from ritornello.transport.weights import WeightBoard
from tests.agent.cluster.players import (
    ENVS,
    SCHEMA,
    WEIGHTS_NBYTES,
    PlayerConfig,
    config,
    digest,
    play,
    two_machines,
)
from tests.agent.runs import COUNTING, make_blueprint
from tests.agent.test_rollout import make_board
from tests.deadlines import HANGS_S
from tests.house import ROOT

pytestmark = pytest.mark.process


def no_cluster():
    raise EngineLost("there is no cluster at 192.0.2.1:6379")


def one_machine():
    """With real workers in processes of their own."""
    return ThreadEngine([Node("here", "here", 8)])


@pytest.fixture
def make_pool():
    pools = []

    def make(settings, board=None):
        if board is None:
            board = WeightBoard(WEIGHTS_NBYTES)
            with board.write(0) as half:
                half[...] = 0
        pools.append(GatewayPool(settings, board))
        pools[-1].start()
        return pools[-1]

    yield make
    for pool in pools:
        pool.stop(3.0)


class Books:
    """What came of players: every block is compared with what it must be."""

    def __init__(self, pool):
        self.pool = pool
        self.streams = defaultdict(list)  # (worker, gateway's life, epoch) -> seqs

    def take(self, release=True):
        blocks = self.pool.poll(0.5)
        for block in blocks:
            version = int(SCHEMA.view(block.records, "version")[0])
            seq = int(SCHEMA.view(block.records, "seq")[0])
            stream = self._stream(block, seq, version)
            self.streams[stream].append(seq)
            assert self.streams[stream] == list(range(seq + 1))
            assert block.stats.steps == ENVS * 3
            assert len(block.episodes) == seq % 2
            if release:
                block.release()
        return blocks

    def _stream(self, block, seq, version):
        """Which launch has made it: blocks do not carry it, but follow from it."""
        for gateway in range(4):
            for epoch in range(4):
                launch = (gateway, epoch) if gateway or epoch else ()
                expected = play(block.worker_id, 0, seq, version, launch=launch)
                if np.array_equal(block.records, expected):
                    return block.worker_id, gateway, epoch
        raise AssertionError(f"worker {block.worker_id} seq {seq} is of no launch")

    def until(self, condition):
        deadline = time.monotonic() + HANGS_S
        while not condition():
            assert time.monotonic() < deadline, self.pool.describe()
            self.take()

    def progress(self, gateway=0, blocks=8):
        def counts():
            return [
                sum(len(s) for (who, life, _), s in self.streams.items() if (who, life) == seat)
                for seat in ((worker, gateway) for worker in range(4))
            ]

        goals = [count + blocks for count in counts()]
        self.until(lambda: all(c >= g for c, g in zip(counts(), goals, strict=True)))


def gateway_of(pool):
    return pool._place.process


def test_the_workers_of_all_machines_look_like_one_pool(make_pool):
    pool = make_pool(config(make_engine=two_machines))
    books = Books(pool)
    books.progress()
    books.until(lambda: pool.alive() == 4)
    stats = pool.stats()
    assert stats["cluster/nodes"] == stats["cluster/hosts"] == 2
    assert stats["cluster/bytes_in_per_s"] > 0
    assert stats["cluster/weights_bytes_per_s"] >= 0
    assert stats["workers/restarts"] == pool.restarts == 0
    for name in stats:
        check_declared(name)
    gateway, hosts = pool.describe()
    assert gateway.startswith("gateway: ")
    assert hosts == "4 of 4 workers run, in 2 hosts on 2 machines"
    process = gateway_of(pool)
    pool.stop(3.0)
    assert not process.is_alive()
    pool.stop(3.0)


def test_new_weights_reach_the_workers_of_all_machines(make_pool):
    board = WeightBoard(WEIGHTS_NBYTES)
    with board.write(3) as half:
        half[...] = 0
    pool = make_pool(config(make_engine=two_machines), board)
    books, seen = Books(pool), defaultdict(set)

    def all_have(version):
        for block in books.take():
            seen[int(SCHEMA.view(block.records, "version")[0])].add(block.worker_id)
        return seen[version] == {0, 1, 2, 3}

    books.until(lambda: all_have(3))
    with board.write(11) as half:
        half[...] = 1
    books.until(lambda: all_have(11))
    assert seen.keys() == {3, 11}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_gateway_that_dies_is_replaced_and_its_workers_play_other_games(
    make_pool, caplog, number
):
    pool = make_pool(config(make_engine=two_machines))
    books = Books(pool)
    books.progress()
    os.kill(gateway_of(pool).pid, number)
    books.progress(gateway=1)
    assert pool.restarts == 1
    assert "gateway (pid" in caplog.text
    assert {life for _, life, _ in books.streams} == {0, 1}


@pytest.mark.slow
def test_a_gateway_without_a_cluster_gives_up_with_one_sentence(make_pool):
    pool = make_pool(config(make_engine=no_cluster))
    deadline = time.monotonic() + HANGS_S

    def until_it_gives_up():
        while time.monotonic() < deadline:
            pool.poll(0.5)

    with pytest.raises(WorkerDied, match="(?s)there is no cluster at 192.0.2.1:6379.*giving up"):
        until_it_gives_up()


def test_what_fails_on_all_machines_ends_the_run_without_another_gateway(make_pool):
    workers = tuple(PlayerConfig(worker, trouble="a mistake in step()") for worker in range(2))
    pool = make_pool(config(workers=workers, make_engine=two_machines, max_restarts=0))
    deadline = time.monotonic() + HANGS_S

    def until_it_gives_up():
        while time.monotonic() < deadline:
            pool.poll(0.5)

    with pytest.raises(WorkerDied, match="(?s)on all machines: .*a mistake in step"):
        until_it_gives_up()
    assert pool.restarts == 0


@pytest.mark.slow
def test_while_the_learner_takes_nothing_it_waits_and_goes_on_without_a_gap(make_pool):
    pool = make_pool(config(make_engine=two_machines))
    books = Books(pool)
    books.progress()
    held, deadline = [], time.monotonic() + HANGS_S
    while len(held) < ring_slots(4):  # the whole ring
        held += books.take(release=False)
        assert time.monotonic() < deadline
    settled = 0
    while settled < 5:
        assert books.take() == []
        settled += pool.stats()["cluster/blocks_queued"] == 2 * 4
        assert time.monotonic() < deadline
    for block in held:
        block.release()
    books.progress()
    assert pool.restarts == 0


def test_what_the_gateway_logs_is_in_the_log_of_the_learner(make_pool, caplog):
    caplog.set_level("INFO", logger="ritornello.agent")
    books = Books(make_pool(config(make_engine=two_machines)))
    books.progress()
    assert "host 0 on machine 0 runs 2 workers" in caplog.text


def test_a_gateway_that_could_not_be_started_for_a_moment_can_be_started_again(monkeypatch):
    """The system may have no descriptors left."""
    pool, launched = GatewayPool(config(4, two_machines), WeightBoard(256)), []
    place = pool._place
    monkeypatch.setattr(place.life, "launch", lambda *_, **__: launched.append(1))
    reports_open = place.reports.open

    def has_none():
        monkeypatch.setattr(place.reports, "open", reports_open)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(place.reports, "open", has_none)
    before = psutil.Process().num_fds()
    with pytest.raises(OSError, match="Too many open files"):
        place.launch(WeightBoard(256))
    assert psutil.Process().num_fds() == before
    place.launch(WeightBoard(256))
    assert launched == [1]
    pool.stop(0.1)


def test_no_launch_plays_what_another_has_played_however_many_there_are():
    """The streams of a worker hang on its life within the host and on the launch of the host."""
    node, seen = Node("n", "machine", 1), set()
    for life in (0, 1_000_000):  # of a session, and of a later one
        workers = (PlayerConfig(0, life=life),)
        for gateway in range(3):
            for epoch in (0, 1, 999, 1000, 1001, 2000):
                task = config(workers=workers, life=gateway).task(Launch(epoch, node, (0,)))
                (worker,) = task.workers
                for restart in (0, 1, 1000):
                    seen.add((worker.life + restart, worker.launch))
    assert len(seen) == 2 * 3 * 6 * 3
    first = config(life=0).task(Launch(0, node, (0,)))
    assert first.workers[0].launch == ()  # as without a cluster


def test_the_launch_of_its_host_decides_what_a_worker_plays_and_none_changes_nothing():
    blueprint = make_blueprint(COUNTING, worker_count=1)

    def paths(**values):
        (worker,) = blueprint.workers()
        body = WorkerBody(replace(worker, **values), make_board(blueprint))
        body.close()
        return body._path

    assert paths() == ("worker", 0, "life", 0)
    assert paths(launch=(0, 1)) == ("worker", 0, "life", 0, "launch", 0, 1)
    assert paths(launch=(1, 0)) == ("worker", 0, "life", 0, "launch", 1, 0)


def test_workers_of_different_sizes_are_refused():
    board = WeightBoard(WEIGHTS_NBYTES)
    workers = (PlayerConfig(0), PlayerConfig(1, num_envs=3))
    with pytest.raises(ConfigError, match="same number of environments"):
        GatewayPool(config(workers=workers), board)


@pytest.mark.parametrize(
    "env", [COUNTING, pytest.param("tests.worlds:tests/Reach-v0", marks=pytest.mark.slow)]
)
def test_the_bytes_of_real_workers_are_those_of_the_serial_and_the_native_pool(make_pool, env):
    """With the same weights: sha256 for each worker, environment and number of the unroll."""
    blueprint = make_blueprint(env, worker_count=2)
    schema, count = blueprint.schema, 6

    def digests(pool, block):
        unroll = schema.unroll(block.records)
        keys = zip(unroll.env_id.tolist(), unroll.seq.tolist(), block.records, strict=True)
        return {(block.worker_id, env, seq): digest(record) for env, seq, record in keys}

    def gather(pool):
        found, deadline = {}, time.monotonic() + HANGS_S
        wanted = {(w, e, s) for w in range(2) for e in range(3) for s in range(count)}
        while not wanted <= found.keys():
            assert time.monotonic() < deadline, pool.describe()
            for block in pool.poll(0.5):
                found.update(digests(pool, block))
                block.release()
        return {key: found[key] for key in sorted(wanted)}

    serial = SerialPool(blueprint.workers(), make_board(blueprint))
    serial.start()
    expected = gather(serial)
    serial.stop(0.0)
    native = ProcessPool(blueprint.workers(), make_board(blueprint), slots=2, max_restarts=0)
    native.start()
    assert gather(native) == expected
    native.stop(3.0)
    cluster = make_pool(
        GatewayConfig(
            workers=tuple(blueprint.workers()),
            make_engine=one_machine,
            slots=2,
            max_restarts=0,
            worker_timeout_s=3600.0,
            weights_nbytes=blueprint.acting_weights.nbytes,
        ),
        make_board(blueprint),
    )
    assert gather(cluster) == expected


LEARNER = """
import sys
from ritornello.agent.cluster.gateway_pool import GatewayPool
from tests.agent.cluster.test_gateway import one_machine
from tests.agent.runs import make_blueprint
from tests.agent.test_rollout import make_board
from ritornello.agent.cluster.gateway import GatewayConfig

if __name__ == "__main__":
    blueprint = make_blueprint("CartPole-v1", worker_count=2)
    pool = GatewayPool(
        GatewayConfig(
            tuple(blueprint.workers()), one_machine, 2, 0, 3600.0, blueprint.acting_weights.nbytes
        ),
        make_board(blueprint),
    )
    pool.start()
    count = 0
    while True:
        for block in pool.poll(0.5):
            block.release()
            count += 1
        if count > 4:
            count = -10**9
            print("plays", flush=True)
"""


def test_nothing_outlives_a_learner_that_is_killed(tmp_path):
    program = tmp_path / "learner.py"
    program.write_text(LEARNER)
    mark = f"VTRACE_TEST_MARK={os.getpid()}-{tmp_path.name}"
    name, _, value = mark.partition("=")
    learner = subprocess.Popen(
        [sys.executable, str(program)],
        env={**os.environ, "PYTHONPATH": str(ROOT), name: value},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert learner.stdout.readline() == "plays\n"
        assert len(marked(mark)) >= 4  # the learner, the gateway and two workers
    finally:
        learner.kill()
        learner.wait(HANGS_S)
        learner.stdout.close()
    deadline = time.monotonic() + HANGS_S
    while left := marked(mark):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def marked(mark):
    """The processes that live and were started with this environment variable."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            is_dead = (folder / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
            if not is_dead and mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder.name, (folder / "cmdline").read_bytes().decode()))
        except OSError:
            continue
    return found


def test_the_ring_has_room_for_two_blocks_of_each_worker_within_a_limit():
    assert [ring_slots(count) for count in (1, 2, 8, 500)] == [4, 4, 16, gateway_pool.MAX_SLOTS]
