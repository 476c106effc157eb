"""The dispatcher over a cluster without Ray: order, bounds, weights, and all that can fail."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from ritornello.agent.cluster import remote_worker
from ritornello.agent.cluster.dispatcher import (
    CALLS,
    MIN_STARTUP_S,
    REFUSED_S,
    RETRY_S,
    Dispatcher,
    WorkerFailed,
    WorkerLost,
)
from ritornello.agent.cluster.remote_worker import RemoteWorker, differences, own_program
from ritornello.agent.pools.serial_pool import SerialPool
from ritornello.core.errors import WorkerDied
from ritornello.transport.weights import WeightBoard
from tests.agent.cluster.fake_cluster import (
    ENVS,
    SCHEMA,
    WEIGHTS_NBYTES,
    FakeCluster,
    PlayerConfig,
    board,
    play,
    publish,
)
from tests.agent.runs import make_blueprint
from tests.agent.test_rollout import make_board


class Run:
    """A dispatcher whose blocks are compared with what they must be, and handed on."""

    def __init__(self, cluster, workers=4, **values):
        self.cluster, self.board = cluster, board()
        settings = {"max_restarts": 3, "worker_timeout_s": 60.0, "clock": cluster.clock, **values}
        players = [PlayerConfig(worker) for worker in range(workers)]
        self.dispatcher = Dispatcher(cluster, self.board, players, **settings)
        self.seqs = defaultdict(list)  # (worker, launch) -> what came

    def steps(self, count, hands_on=True):
        for _ in range(count):
            self.dispatcher.step(0.2)
            while hands_on and self.dispatcher.blocks:
                self.take()

    def take(self):
        slot, block = self.dispatcher.blocks[0]
        records = np.empty((ENVS, SCHEMA.nbytes), np.uint8)
        block.unpack(records)
        seq, version = (int(SCHEMA.view(records, name)[0]) for name in ("seq", "version"))
        for launch in ((), *((life, start) for life in range(2) for start in range(9))):
            config = replace(slot.config, launch=launch)
            if np.array_equal(records, play(config, seq, version)):
                break
        else:
            raise AssertionError("nobody played that")
        stream = self.seqs[block.worker_id, launch]
        stream.append(seq)
        assert stream == list(range(len(stream)))
        self.dispatcher.hand_on()

    def lives(self, worker):
        return [launch for who, launch in self.seqs if who == worker]


def test_every_worker_plays_where_there_is_room_and_the_others_when_a_machine_joins():
    run = Run(FakeCluster(a=1, b=2))
    run.steps(5)
    assert {worker for worker, _ in run.seqs} == {0, 1, 2}
    assert run.dispatcher.machines == {"a", "b"}
    assert (run.dispatcher.alive(), run.dispatcher.waiting_for_room()) == (3, 1)
    run.cluster.now += 10_000.0  # for however long
    run.steps(5)
    run.cluster.room["c"] = 1
    run.steps(5)
    assert (run.dispatcher.alive(), run.dispatcher.waiting_for_room()) == (4, 0)
    assert run.dispatcher.counts["restarts"] == 0
    assert all(run.lives(worker) == [()] for worker in range(4))


def test_while_the_learner_stands_still_each_worker_has_two_blocks_and_plays_no_more():
    run = Run(FakeCluster(a=4))
    run.steps(50, hands_on=False)
    assert len(run.dispatcher.blocks) == 4 * CALLS
    run.cluster.now += 10_000.0  # nobody is silent who is not asked
    run.steps(5)
    assert run.dispatcher.counts["hung"] == run.dispatcher.counts["restarts"] == 0
    assert all(len(stream) > CALLS for stream in run.seqs.values())


def test_nobody_acts_before_there_are_weights_and_new_ones_are_shared_once():
    run = Run(FakeCluster(a=2), workers=2)
    run.dispatcher._board = run.board = WeightBoard(WEIGHTS_NBYTES)
    run.steps(5)
    assert not run.seqs
    publish(run.board, 3)
    run.steps(20)
    publish(run.board, 7)
    run.cluster.now += 1.0
    run.steps(20)
    assert run.dispatcher.counts["weights"] == 2


def test_workers_of_a_machine_that_died_move_and_that_is_no_failure():
    run = Run(FakeCluster(a=2, b=4), max_restarts=0)
    run.steps(5)
    run.cluster.lose("a")
    run.steps(5)
    run.cluster.now += RETRY_S
    run.steps(10)
    assert run.dispatcher.machines == {"b"}
    assert run.dispatcher.alive() == 4
    assert [len(run.lives(worker)) for worker in range(4)] == [2, 2, 1, 1]
    assert run.dispatcher.counts["restarts"] == 0
    assert run.dispatcher.counts["lost_unrolls"] > 0


def test_a_worker_that_is_lost_again_and_again_is_placed_ever_more_seldom():
    run = Run(FakeCluster(a=1), workers=1, max_restarts=0)
    waits = []
    for _ in range(8):
        run.steps(1)
        run.cluster.actors[-1].fate = WorkerLost("no answer")
        run.steps(1)
        waits.append(run.dispatcher.slots[0].start_at - run.cluster.now)
        run.cluster.now += waits[-1]
    assert waits == pytest.approx([RETRY_S * 2**n for n in (0, 1, 2, 3, 4, 5, 6, 6)])
    run.steps(5)  # it plays again
    run.cluster.actors[-1].fate = WorkerLost("no answer")
    run.steps(1)
    assert run.dispatcher.slots[0].start_at - run.cluster.now == pytest.approx(RETRY_S, abs=0.1)


@pytest.mark.parametrize("fate", [WorkerFailed("died: pid 5"), WorkerFailed("ValueError: no")])
def test_a_worker_that_fails_is_replaced_and_plays_other_games(fate, caplog):
    run = Run(FakeCluster(a=2), workers=2)
    run.steps(5)
    run.cluster.actor(1).fate = fate
    run.steps(10)
    assert run.lives(1) == [(), (0, 1)]
    assert run.lives(0) == [()]
    assert run.dispatcher.counts["restarts"] == 1
    assert str(fate) in caplog.text
    assert "worker 1 on a failed" in caplog.text


def fail_all(run, pause_s):
    for _ in range(100):
        run.steps(1)
        for actor in run.cluster.actors:
            actor.fate = WorkerFailed(f"died: pid {run.cluster.now}")
        run.steps(1)
        run.cluster.now += pause_s


def test_workers_that_fail_too_often_end_the_run_with_the_cause():
    run = Run(FakeCluster(a=1), workers=1, max_restarts=1)
    with pytest.raises(WorkerDied, match=r"(?s)worker 0 on a failed: died.*--max_worker_restarts"):
        fail_all(run, 61.0)


def test_a_silent_worker_is_replaced_after_the_timeout_and_one_that_starts_after_longer():
    run = Run(FakeCluster(a=2), workers=2)
    run.steps(5)
    run.cluster.actor(0).stalls = True
    run.steps(5)
    run.cluster.now += 10_000.0  # this process was stopped: not their silence
    run.steps(5)
    assert run.dispatcher.counts["hung"] == 0
    while run.dispatcher.counts["hung"] == 0:
        run.cluster.now += 1.0
        run.steps(1)
    assert run.dispatcher.counts["restarts"] == 1
    run.steps(1)
    run.cluster.actor(0).stalls = False
    run.dispatcher.slots[0].has_played = False
    run.steps(5)
    assert run.lives(0) == [(), (0, 1)]

    slow = Run(FakeCluster(a=1), workers=1)
    slow.steps(1)
    slow.cluster.actor(0).stalls = True
    began = slow.cluster.now
    while slow.dispatcher.counts["hung"] == 0:
        slow.cluster.now += 1.0
        slow.steps(1)
    assert slow.cluster.now - began >= MIN_STARTUP_S


def test_a_machine_with_another_program_is_left_out_and_tried_again(caplog):
    run = Run(FakeCluster(a=1), workers=2)
    run.steps(5)
    other = tuple((part, "0.1" if part == "torch" else got) for part, got in own_program())
    run.cluster.programs["b"] = other
    run.cluster.room["b"] = 1
    run.steps(5)
    assert run.dispatcher.machines == {"a"}
    assert "b cannot take part: it has torch 0.1 instead of" in caplog.text
    del run.cluster.programs["b"]
    run.cluster.now += REFUSED_S
    run.steps(5)
    assert run.dispatcher.machines == {"a", "b"}


def test_a_machine_with_another_program_that_answers_first_does_not_end_the_run():
    cluster = FakeCluster(a=1, b=1)
    cluster.programs["a"] = (("Python", "3.0.1"),)
    run = Run(cluster, workers=2)
    run.steps(5)
    assert run.dispatcher.machines == {"b"}


def test_a_machine_that_does_not_answer_is_not_waited_for_without_end():
    cluster = FakeCluster(a=1)
    cluster.programs["a"] = (("Python", "3.0.1"),)
    run = Run(cluster, workers=2)
    run.steps(1)
    cluster.actor(1).stalls = True
    run.steps(5)
    cluster.room["b"], cluster.programs["b"] = 1, cluster.programs["a"]
    cluster.now += REFUSED_S
    with pytest.raises(WorkerDied, match="no machine of the cluster"):
        run.steps(5)


def test_if_no_machine_has_the_program_the_run_ends():
    cluster = FakeCluster(a=1)
    cluster.programs["a"] = (("Python", "3.0.1"),)
    with pytest.raises(WorkerDied, match=r"no machine .*: a cannot take part: .*Python 3\.0\.1"):
        Run(cluster).steps(5)
    assert differences(own_program()) == ""


def test_a_remote_worker_plays_what_a_worker_of_this_machine_plays(monkeypatch):
    monkeypatch.setattr(remote_worker, "prepare_process", lambda config: None)
    blueprint = make_blueprint("CartPole-v1", worker_count=1)
    (config,) = blueprint.workers()
    weights = make_board(blueprint)
    serial = SerialPool([config], weights)
    serial.start()
    values = np.zeros(weights.nbytes, np.uint8)
    version = weights.read_if_newer(-1, values)
    remote = RemoteWorker(config, weights.nbytes)
    assert remote.greet().program == own_program()
    into = blueprint.schema.allocate(config.num_envs)
    for _ in range(3):
        (block,) = serial.poll(0.0)
        packed = remote.collect(version, values)
        packed.unpack(into)
        np.testing.assert_array_equal(into, block.records)
        assert packed.episodes == block.episodes
    remote.close()
    remote.close()
    serial.stop(0.0)
