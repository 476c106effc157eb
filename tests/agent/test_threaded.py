"""Worker pool, replay and cache side by side (agent/run/threaded.py), with a pool tests hold."""

import contextlib
import threading
import time

import numpy as np
import pytest
import torch

from ritornello.agent.learning.feed import Feed
from ritornello.agent.pools.serial_pool import SerialPool
from ritornello.agent.run.experience import Experience, Moment
from ritornello.agent.run.threaded import Threaded
from ritornello.core.errors import WorkerDied
from tests.agent.runs import make_blueprint
from tests.agent.test_rollout import make_board
from tests.deadlines import HANGS_S, wait_until


class HeldPool(SerialPool):
    """A pool that gives blocks only when told to, fails when told to, and notes who calls it."""

    def __init__(self, configs, board):
        super().__init__(configs, board)
        self.may_give = threading.Semaphore(0)
        self.failure = None
        self.pollers = set()
        self.stopped = 0

    def poll(self, timeout_s):
        self.pollers.add(threading.current_thread().name)
        if self.failure is not None:
            raise self.failure
        if not self.may_give.acquire(timeout=timeout_s):
            return []
        return super().poll(timeout_s)

    def stop(self, grace_s):
        self.stopped += 1
        super().stop(grace_s)


@pytest.fixture
def blueprint():
    return make_blueprint()


@pytest.fixture
def pool(blueprint):
    board = make_board(blueprint)
    yield HeldPool(blueprint.workers(), board)
    board.close()


@pytest.fixture
def experience(blueprint, pool):
    threaded = Threaded(
        pool, blueprint.replay(), Feed(blueprint.schema, torch.device("cpu")), cache_depth=None
    )
    threaded.start()
    yield threaded
    threaded.quiesce()
    threaded.close()


def batches(experience, count):
    deadline, found = time.monotonic() + HANGS_S, []
    while len(found) < count:
        assert time.monotonic() < deadline, experience.missing()
        batch = experience.next_batch()
        if batch is not None:
            found.append(batch)
    return found


def test_no_age_is_negative_where_updates_are_made_while_a_draw_waits(blueprint, pool, monkeypatch):
    replay, feed = blueprint.replay(), Feed(blueprint.schema, torch.device("cpu"))
    experience, sample = Experience(pool, replay, feed), replay.sample
    pool.start()

    def sample_late(context, timeout_s):
        experience.advance(Moment(update=7))  # with batches that were ready
        for _ in range(8):
            pool.may_give.release()
            for record in pool.poll(HANGS_S)[0].records:
                replay.insert(record, 7, 0.0)
        return sample(context, timeout_s)

    monkeypatch.setattr(replay, "sample", sample_late)
    assert experience.sample(0.0).age.tolist() == [0] * blueprint.flags.batch_size
    pool.stop(0.0)


def test_batches_come_from_the_pool_and_news_with_them(experience, pool):
    assert experience.next_batch() is None
    assert "queue has 0 of" in experience.missing()[0]
    for _ in range(8):
        pool.may_give.release()
    experience.advance(Moment(update=7, progress=0.5))
    (batch,) = batches(experience, 1)
    assert batch.first.shape[1] == 4
    assert sum(report.stats.steps for report in experience.reports()) > 0
    assert pool.pollers == {"ingest"}
    assert experience.stats()["workers/alive"] == 1


def test_the_age_of_what_is_learned_is_counted_from_the_newest_word(experience, pool):
    for _ in range(8):
        pool.may_give.release()
    experience.advance(Moment(update=3))
    batches(experience, 2)
    experience.advance(Moment(update=50))
    for _ in range(8):
        pool.may_give.release()
    ages = np.concatenate([batch.age.numpy() for batch in batches(experience, 3)])
    assert ages.max() >= 40


@pytest.mark.parametrize("failure", [WorkerDied("too often"), OSError("gone"), SystemExit(3)])
def test_what_ends_the_ingest_thread_is_raised_to_the_learner(experience, pool, failure):
    pool.failure = failure
    with pytest.raises(type(failure)):
        batches(experience, 1)
    experience.quiesce()
    with pytest.raises(type(failure)):
        experience.next_batch()


@pytest.mark.parametrize("thread", ["ingest", "cache"])
def test_what_ends_a_thread_is_known_to_who_asks_for_no_batch(
    experience, pool, monkeypatch, thread
):
    experience.check()
    if thread == "ingest":
        pool.failure = WorkerDied("too often")
    else:
        monkeypatch.setattr(experience, "sample", lambda timeout_s: 1 // 0)

    def has_raised():
        with contextlib.suppress(WorkerDied, ZeroDivisionError):
            experience.check()
            return False
        return True

    wait_until(has_raised)


def test_quiesced_it_makes_no_more_batches_and_replay_stands_still(experience, pool):
    for _ in range(40):
        pool.may_give.release()
    batches(experience, 1)
    experience.quiesce()
    state = experience.state_dict()
    for _ in range(3):
        pool.may_give.release()
        assert experience.next_batch() is None
    assert experience.state_dict()["replay"]["counters"] == state["replay"]["counters"]
    experience.quiesce()
    experience.close()
    experience.close()
    assert pool.stopped == 2


def test_a_pool_that_does_not_answer_cannot_hold_up_the_end(blueprint, pool, monkeypatch):
    monkeypatch.setattr("ritornello.agent.run.threaded.JOIN_S", 0.1)
    go = threading.Event()
    pool.poll = lambda timeout_s: go.wait(HANGS_S) and []
    threaded = Threaded(
        pool, blueprint.replay(), Feed(blueprint.schema, torch.device("cpu")), cache_depth=0
    )
    threaded.start()
    with pytest.raises(TimeoutError, match="the ingest thread did not end"):
        threaded.quiesce()
    go.set()
    threaded.close()
