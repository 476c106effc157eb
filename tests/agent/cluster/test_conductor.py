"""Every stream of unrolls over hosts that are killed, frozen, thawed, added and broken.

A stream is what one worker makes in one launch of a host. Its blocks must arrive as 0, 1, 2, ...
whatever happens, and end nowhere but where their host was lost.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from ritornello.agent.cluster.conductor import MAX_BLOCKS, MAX_WEIGHTS_S, RETRY_S, Conductor
from ritornello.agent.cluster.engine import EngineLost, HostUnavailable, Node
from ritornello.agent.cluster.hosts import GONE_S, SILENT_S
from ritornello.agent.cluster.node_host import QUEUE_BLOCKS, NodeHost
from ritornello.agent.cluster.thread_engine import ThreadEngine
from ritornello.agent.cluster.wire import open_block
from ritornello.agent.pools.restarts import GIVING_UP
from ritornello.core.errors import TransportError, WorkerDied
from ritornello.transport.weights import WeightBoard
from tests.agent.cluster.players import (
    ENVS,
    SCHEMA,
    WEIGHTS_NBYTES,
    Clock,
    PlayerPool,
    config,
    digest,
    free_seats,
    machines,
    play,
    player_host,
    threads_of_hosts,
)
from tests.deadlines import HANGS_S


class Stage:
    """A conductor with its hosts, a clock that stands still, and the books of what came."""

    def __init__(self, *limits, workers=4, make_host=player_host, max_restarts=3):
        self.clock = Clock()
        self.engine = ThreadEngine(machines(*limits), make_host)
        self.board = WeightBoard(WEIGHTS_NBYTES)
        self.config = config(workers)
        self.conductor = Conductor(
            self.engine, self.board, self.config.task, workers,
            max_restarts=max_restarts, clock=self.clock,
        )  # fmt: skip
        self.streams = defaultdict(list)  # (epoch, worker) -> seq of each block
        self.digests = {}
        self.publish(0)

    def publish(self, version):
        with self.board.write(version) as half:
            half[...] = version % 256

    def step(self):
        """One step; everything that came is handed on."""
        self.conductor.step(0.05)
        while (block := self.conductor.next_block()) is not None:
            records = SCHEMA.allocate(ENVS)
            open_block(block, SCHEMA, records, self.conductor.newest_version)
            seq = int(SCHEMA.view(records, "seq")[0])
            launch = (0, block.epoch) if block.epoch else ()
            version = int(SCHEMA.view(records, "version")[0])
            expected = play(block.worker_id, 0, seq, version, launch=launch)
            np.testing.assert_array_equal(records, expected)
            self.streams[block.epoch, block.worker_id].append(seq)
            self.digests[block.epoch, block.worker_id, seq] = digest(records)
            self.conductor.hand_on()
        self.check_streams()

    def check_streams(self):
        for stream, seqs in self.streams.items():
            assert seqs == list(range(len(seqs))), f"{stream}: {seqs}"
        self.conductor.ledger.check_valid()

    def until(self, condition):
        deadline = time.monotonic() + HANGS_S
        while not condition():
            assert time.monotonic() < deadline, self.conductor.describe()
            self.step()

    def progress(self, *workers, blocks=5):
        """Go on until each of these workers has made some blocks more in its newest life."""
        before = {worker: self.made(worker) for worker in workers}
        self.until(lambda: all(self.made(w) >= before[w] + blocks for w in workers))

    def made(self, worker):
        return sum(len(seqs) for (_, who), seqs in self.streams.items() if who == worker)

    def epochs(self, worker):
        return sorted(epoch for epoch, who in self.streams if who == worker)

    def pass_time(self, seconds, *healthy):
        """Let time go by in small parts, in each of which these workers are heard of."""
        for _ in range(int(seconds)):
            self.clock.now += 1.0
            self.progress(*healthy, blocks=1)

    def watch(self, seconds):
        """Let time go by in which the conductor runs, but hears of nobody."""
        for _ in range(round(10 * seconds)):
            self.clock.now += 0.1
            self.conductor._clock()

    def close(self):
        self.engine.close()


@pytest.fixture
def stage():
    stages = []

    def make(*arguments, **values):
        stages.append(Stage(*arguments, **values))
        return stages[-1]

    yield make
    for one in stages:
        one.close()
    assert not threads_of_hosts()


def test_hosts_are_not_given_up_for_the_time_in_which_the_gateway_itself_did_not_run(stage):
    stopped = stage(1, 1, 1, workers=3)
    stopped.progress(0, 1, 2)
    for node in ("n0", "n1", "n2"):  # their answers take a moment
        stopped.engine.freeze(node)
    for _ in range(5):
        stopped.step()
    stopped.clock.now += 10 * GONE_S  # SIGSTOP, a paused container, a computer that slept
    for _ in range(3):
        stopped.step()
    for node in ("n0", "n1", "n2"):
        stopped.engine.thaw(node)
    stopped.progress(0, 1, 2)
    assert stopped.conductor.totals.hosts_lost == 0
    assert set(stopped.streams) == {(0, 0), (1, 1), (2, 2)}


def test_hosts_that_nobody_asked_for_long_are_launched_again_however_many_they_are(stage):
    left = stage(1, 1, 1, 1, 1, workers=5, max_restarts=1)
    task = left.config.task
    left.conductor._make_task = lambda launch: replace(task(launch), abandoned_s=0.5)
    left.progress(0, 1, 2, 3, 4)
    hosts = [launched.host for launched in left.engine._hosts]
    deadline = time.monotonic() + HANGS_S
    while not all(host._failure for host in hosts):  # each by its own thread
        assert time.monotonic() < deadline, "the hosts do not end"
        time.sleep(0.02)
    left.conductor._make_task = task
    left.until(lambda: left.conductor.totals.hosts_lost == 5)
    left.watch(10.0)
    left.progress(0, 1, 2, 3, 4)  # and none of them counts as a failure, of which one is allowed


def test_all_streams_come_whole_and_in_order_from_several_machines(stage):
    play_all = stage(1, 3)
    play_all.progress(0, 1, 2, 3, blocks=30)
    assert free_seats(play_all.conductor.ledger) == 0
    assert set(play_all.streams) == {(0, 0), (1, 1), (1, 2), (1, 3)}


def test_the_bytes_do_not_depend_on_how_workers_are_spread_over_machines(stage):
    """With the same life, that is: the epoch of a host decides which games are played."""
    spread = stage(1, 1, 1, 1)
    together = stage(4)
    for one in (spread, together):
        one.config = replace(one.config)
        one.progress(0, blocks=20)
    for seq in range(20):
        assert spread.digests[0, 0, seq] == together.digests[0, 0, seq]


def test_a_killed_machine_ends_its_streams_and_its_workers_play_on_elsewhere(stage):
    lost = stage(2, 4)
    lost.progress(0, 1, 2, 3)
    others = lost.made(2)
    lost.engine.kill("n0")
    lost.pass_time(3, 2, 3)
    lost.progress(0, 1, 2, 3)
    assert lost.epochs(0) == lost.epochs(1) == [0, 2]
    assert lost.epochs(2) == lost.epochs(3) == [1]  # nobody else was disturbed
    assert lost.made(2) > others
    assert lost.conductor.ledger.nodes_lost == 1
    assert lost.conductor.totals.blocks_refused == 0


def test_a_host_that_dies_on_a_machine_that_lives_comes_again_there(stage):
    died = stage(4)
    died.progress(0, 1, 2, 3)
    died.engine.kill("n0", shows=False)
    died.until(lambda: not died.conductor.ledger.hosts)
    assert died.conductor.ledger.due(died.clock.now) == []  # not at once
    died.watch(10.0)
    died.progress(0, 1, 2, 3)
    assert died.epochs(0) == [0, 1]
    assert died.conductor.ledger.nodes_lost == 0
    assert died.conductor.totals.hosts_lost == 1


def test_a_frozen_machine_is_told_and_if_it_thaws_in_time_nothing_is_lost(stage, caplog):
    frozen = stage(2, 2)
    frozen.progress(0, 1, 2, 3)
    frozen.engine.freeze("n0")
    frozen.pass_time(SILENT_S + 1, 2, 3)
    assert "host 0 on machine 0 has not answered for 15 s" in caplog.text
    frozen.engine.thaw("n0")
    frozen.progress(0, 1, 2, 3)
    assert "host 0 on machine 0 answers again" in caplog.text
    assert frozen.epochs(0) == [0]
    assert frozen.conductor.totals.blocks_refused == 0


def test_a_machine_that_thaws_too_late_delivers_to_nobody(stage, caplog, monkeypatch):
    frozen = stage(2, 4)
    frozen.progress(0, 1, 2, 3)
    frozen.engine.freeze("n0")
    # Told to end as it thaws, it may do so before it delivers: here the order to end is lost.
    for host in frozen.engine._machines["n0"].hosts:
        monkeypatch.setattr(host, "end", lambda: None)
    frozen.pass_time(GONE_S + 2, 2, 3)
    frozen.progress(0, 1, 2, 3)  # elsewhere
    assert frozen.epochs(0) == [0, 2]
    whole = {stream: list(seqs) for stream, seqs in frozen.streams.items() if stream[0] == 0}
    frozen.engine.thaw("n0")
    frozen.until(lambda: not frozen.conductor._zombie_calls)
    monkeypatch.undo()
    frozen.progress(0, 1, 2, 3)
    assert frozen.conductor.totals.blocks_refused >= 1
    assert "was given up and has thawed" in caplog.text
    assert whole == {stream: frozen.streams[stream] for stream in whole}


def test_a_machine_that_joins_gets_the_workers_that_had_no_room(stage):
    grows = stage(1)
    grows.progress(0)
    assert free_seats(grows.conductor.ledger) == 3
    grows.engine.add(Node("late", "a machine that came late", 9))
    grows.pass_time(10, 0)
    grows.progress(0, 1, 2, 3)
    assert grows.epochs(0) == [0]
    assert grows.epochs(3) == [1]


def test_a_cluster_that_does_not_answer_any_more_ends_the_gateway(stage):
    lost = stage(4)
    lost.progress(0)
    lost.engine.lost = "the head of the cluster is gone"
    lost.clock.now += 2.0
    with pytest.raises(EngineLost, match="the head of the cluster is gone"):
        lost.step()


# --- weights -------------------------------------------------------------------------------------


def test_each_version_goes_to_each_machine_once_however_many_workers_it_has(stage):
    one = stage(8, 8, workers=16)
    for version in range(1, 6):
        one.publish(version)
        one.clock.now += 1.0
        one.until(
            lambda newest=version: (
                [line.seen_version for line in one.conductor._lines.values()] == [newest] * 2
            )
        )
    totals = one.conductor.totals
    assert one.engine.shared in (5, 6)  # version 0 may have been overtaken
    assert totals.weights_sent == 2 * one.engine.shared
    assert totals.weights_bytes == totals.weights_sent * WEIGHTS_NBYTES
    assert one.conductor.weights_age_s() == 0.0


def test_a_slow_machine_gets_the_newest_weights_and_holds_up_nobody(stage):
    one = stage(2, 2)
    one.progress(0, 2)
    one.engine.freeze("n0")
    for version in range(1, 9):
        one.publish(version)
        one.clock.now += 1.0
        one.progress(2)
    one.until(lambda: one.conductor._lines[1].seen_version == 8)  # the other is not held up
    assert one.conductor.weights_age_s() >= 7.0  # not only since the last of them
    one.engine.thaw("n0")
    one.until(lambda: one.conductor._lines[0].weights is None)
    one.watch(MAX_WEIGHTS_S)
    one.until(lambda: one.conductor._lines[0].seen_version == 8)
    assert one.conductor.totals.weights_sent <= 9 + 1 + 3  # those in between were left out


@pytest.fixture
def gate():
    """The network is slow: weights arrive when this is released."""
    return threading.Semaphore(0)


def test_weights_do_not_fill_a_slow_network_although_newer_ones_never_stop_coming(stage, gate):
    class Slow(NodeHost):
        def set_weights(self, version, block):
            assert gate.acquire(timeout=HANGS_S)
            return super().set_weights(version, block)

    one = stage(1, workers=1, make_host=lambda task: Slow(task, PlayerPool))
    conductor, versions = one.conductor, iter(range(1, 1000))

    def let_pass(seconds):
        for _ in range(round(seconds / 0.1)):
            one.publish(next(versions))
            one.clock.now += 0.1
            conductor.step(0.0)

    try:
        one.until(lambda: conductor.totals.weights_sent == 1)
        let_pass(1.0)
        gate.release()
        one.until(lambda: conductor._lines[0].weights is None)  # it took a second
        assert conductor.weights_age_s() >= 0.9
        let_pass(5.0 - 1.0 - 0.2)
        assert conductor.totals.weights_sent == 1  # a fifth of the time, and no more
        let_pass(0.4)
        assert conductor.totals.weights_sent == 2
        assert conductor._lines[0].sent_version >= 40  # the newest, not the next
    finally:
        gate.release(100)


# --- the consumer stands still -------------------------------------------------------------------


def test_while_nobody_hands_on_everything_stands_still_and_nothing_is_lost(stage):
    pools = []

    def make_host(task):
        pools.append(None)
        return NodeHost(task, PlayerPool)

    still = stage(2, 2, make_host=make_host)
    still.progress(0, 1, 2, 3)
    conductor = still.conductor
    limit = 2 * MAX_BLOCKS
    deadline = time.monotonic() + HANGS_S

    def has_more_to_come() -> bool:
        # Nothing more is asked of a host whose blocks wait here, and then its own queues fill up.
        hosts_waiting = {line.launch.epoch for line, _ in conductor.blocks}
        queued = [report.queued for report in conductor.reports()]
        return len(hosts_waiting) < 2 or min(queued, default=0) < 2 * QUEUE_BLOCKS

    while has_more_to_come():
        conductor.step(0.01)
        still.clock.now += 0.1  # it is asked for reports now and then
        assert len(conductor.blocks) <= limit
        assert time.monotonic() < deadline
    waiting, messages = len(conductor.blocks), conductor.totals.messages
    for _ in range(300):
        conductor.step(0.001)
        still.clock.now += 1.0
        if _ % 20 == 0:
            threading.Event().wait(0.01)
    assert len(conductor.blocks) == waiting <= limit
    assert conductor.totals.messages > messages  # hosts know that somebody is there
    assert {report.queued for report in conductor.reports()} == {2 * QUEUE_BLOCKS}
    assert len(conductor.ledger.hosts) == 2
    still.progress(0, 1, 2, 3)  # and on it goes, without a gap
    assert still.epochs(0) == [0]


# --- hosts that do not do what they should -------------------------------------------------------


class Swaps(NodeHost):
    """Gives its third answer in the place of its fourth."""

    answers = ()

    def take(self, acknowledged, max_blocks, timeout_s):
        delivery = super().take(acknowledged, max_blocks, timeout_s)
        if delivery.blocks:
            self.answers = (*self.answers, delivery)
        return self.answers[2] if len(self.answers) == 4 else delivery


class SwapsBlocks(NodeHost):
    """Swaps two blocks of a delivery."""

    def take(self, acknowledged, max_blocks, timeout_s):
        delivery = super().take(acknowledged, max_blocks, timeout_s)
        return replace(delivery, blocks=delivery.blocks[::-1])


class Loses(NodeHost):
    """Leaves out the first block of a delivery."""

    def take(self, acknowledged, max_blocks, timeout_s):
        delivery = super().take(acknowledged, max_blocks, timeout_s)
        return replace(delivery, blocks=delivery.blocks[acknowledged > 4 :])


class OfAnother(NodeHost):
    def take(self, acknowledged, max_blocks, timeout_s):
        return replace(super().take(acknowledged, max_blocks, timeout_s), epoch=99)


class Nonsense(NodeHost):
    def take(self, acknowledged, max_blocks, timeout_s):
        return "hello"


class Raises(NodeHost):
    def take(self, acknowledged, max_blocks, timeout_s):
        raise RuntimeError("take is broken")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Swaps, "answers were swapped or lost"),
        (SwapsBlocks, "answers were swapped or lost"),
        (Loses, "answers were swapped or lost"),
        (OfAnother, "an answer of another host"),
        (Nonsense, "answered str, expected Delivery"),
        (Raises, "take is broken"),
    ],
)
def test_a_host_that_mixes_up_its_answers_is_noticed_and_replaced(stage, caplog, kind, words):
    def make_host(task):
        return (kind if task.epoch == 0 else NodeHost)(task, PlayerPool)

    broken = stage(4, make_host=make_host)
    broken.until(lambda: words in caplog.text)
    broken.watch(10.0)
    broken.progress(0, 1, 2, 3)
    assert broken.epochs(0)[-1] == 1


def test_a_block_that_cannot_be_opened_is_refused_with_all_that_came_with_it(stage):
    class Damages(NodeHost):
        def take(self, acknowledged, max_blocks, timeout_s):
            delivery = super().take(acknowledged, max_blocks, timeout_s)
            damaged = tuple(replace(block, crc32=block.crc32 ^ 1) for block in delivery.blocks)
            return replace(delivery, blocks=damaged)

    def make_host(task):
        return (Damages if task.epoch == 0 else NodeHost)(task, PlayerPool)

    one = stage(4, make_host=make_host)
    with pytest.raises(TransportError, match="checksum"):
        one.until(lambda: False)
    count = len(one.conductor.blocks)
    one.conductor.refuse_block("its checksum does not fit")
    assert one.conductor.totals.blocks_refused == count >= 1
    assert not one.conductor.ledger.hosts
    one.watch(MAX_WEIGHTS_S)
    one.progress(0, 1, 2, 3)


def test_a_host_that_does_not_answer_for_a_moment_loses_nothing(stage, monkeypatch):
    one = stage(2, 2)
    lost = []
    result = one.engine.result

    def loses_some(call):
        answer = result(call)
        if hasattr(answer, "blocks") and answer.blocks and len(lost) < 5:
            lost.append(answer)  # the answer was made, and never arrived
            raise HostUnavailable("try again")
        return answer

    monkeypatch.setattr(one.engine, "result", loses_some)
    while len(lost) < 5:
        one.step()
        one.clock.now += 1.0
    one.clock.now += 1.0
    one.progress(0, 1, 2, 3, blocks=20)
    assert set(one.streams) == {(0, 0), (0, 1), (1, 2), (1, 3)}


def test_a_host_whose_first_answer_is_lost_is_asked_again_and_plays(stage, monkeypatch):
    one = stage(2)
    lost = []
    result = one.engine.result

    def loses_the_first(call):
        answer = result(call)
        if answer == "" and not lost:
            lost.append(answer)
            raise HostUnavailable("try again")
        return answer

    monkeypatch.setattr(one.engine, "result", loses_the_first)
    while not lost:
        one.step()
    one.watch(2 * RETRY_S)
    one.progress(0, 1)
    assert one.conductor.totals.hosts_lost == 0
    assert set(one.streams) == {(0, 0), (0, 1)}


def test_what_fails_everywhere_and_always_ends_the_run_with_its_words(stage):
    class Broken(PlayerPool):
        def poll(self, timeout_s):
            raise WorkerDied("worker 0 failed: a mistake in step(); giving up.")

    broken = stage(4, make_host=lambda task: NodeHost(task, Broken), max_restarts=10)

    def until_it_gives_up():
        deadline = time.monotonic() + HANGS_S
        while time.monotonic() < deadline:
            broken.step()
            broken.clock.now += 1.0

    with pytest.raises(WorkerDied, match="(?s)a mistake in step.*came 3 times in a row"):
        until_it_gives_up()


CAUSES = (
    "worker 0 (pid 412) was killed by signal 9 (SIGKILL) after 0 unrolls",
    "worker 1 (pid 77) failed. Its last words:\nEnvironmentFault: no module named 'game'",
    "worker 2 could not be started: [Errno 28] No space left on device",
)


@pytest.mark.parametrize("are_alike", [False, True])
def test_machines_that_fail_once_each_do_not_end_the_run(stage, are_alike):
    """Neither of different things, nor all of the same, as at the start of a run they may."""
    failed = set()

    class FailsOnce(PlayerPool):
        def poll(self, timeout_s):
            seat = self.task.workers[0].worker_id
            if seat in failed or self.task.epoch > 2:
                return super().poll(timeout_s)
            failed.add(seat)
            cause = CAUSES[0 if are_alike else seat]
            raise WorkerDied(f"{cause}\nThe same failure came 3 times in a row{GIVING_UP}")

    three = stage(
        1, 1, 1, workers=3, make_host=lambda task: NodeHost(task, FailsOnce), max_restarts=10
    )
    deadline = time.monotonic() + HANGS_S
    while not all(three.made(worker) for worker in range(3)):
        assert time.monotonic() < deadline, three.conductor.describe()
        # Nothing comes of one machine before all have failed.
        if len(failed) < 3:
            three.conductor.step(0.05)
        else:
            three.step()
        three.clock.now += 1.0
    assert failed == {0, 1, 2}


def test_machines_with_another_program_are_left_out_and_if_all_have_one_it_is_said(stage, caplog):
    def make_host(task):
        other = replace(task.fingerprint, python="3.9.1")
        return NodeHost(
            replace(task, fingerprint=other)
            if 0 in [worker.worker_id for worker in task.workers]
            else task,
            PlayerPool,
        )

    mixed = stage(1, 3, 0, make_host=make_host)  # the head has no room, as is usual
    mixed.until(lambda: "is not used: it has Python" in caplog.text)
    mixed.progress(1, 2, 3)
    assert mixed.made(0) == 0
    assert mixed.conductor.ledger.node_count == 2
    mixed.engine.kill("n1")
    mixed.watch(3.0)
    with pytest.raises(WorkerDied, match="no machine of the cluster can take part.*Python"):
        mixed.until(lambda: False)


def test_the_reports_of_hosts_that_are_gone_stay_in_the_sums(stage):
    class Restarts(PlayerPool):
        def stats(self):
            return {**super().stats(), "workers/restarts": 2.0, "workers/lost_unrolls": 6.0}

    one = stage(2, 2, make_host=lambda task: NodeHost(task, Restarts))
    one.progress(0, 1, 2, 3, blocks=20)
    assert sum(report.restarts for report in one.conductor.reports()) == 4
    one.engine.kill("n0")
    one.clock.now += 2.0
    one.until(lambda: len(one.conductor.ledger.hosts) == 1)
    assert one.conductor.totals.restarts == 2
    assert one.conductor.totals.lost_unrolls == 6
