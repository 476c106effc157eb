"""What was learned comes back to the buffers, through the manager."""

import threading

import numpy as np
import pytest

from ritornello.core.errors import Closed
from ritornello.replay.priorities import Outcome
from tests.replay.builders import (
    check_valid,
    context,
    make_manager,
    make_record,
    priorities_of,
    prioritised,
    queue,
)
from tests.replay.test_manager_threads import run_all


def outcome_of(errors, steps=4):
    """Each unroll has one error, at each of its steps."""
    errors = np.array(errors, np.float32)
    return Outcome(np.repeat(errors[:, None], steps, axis=1), np.ones((len(errors), steps), bool))


def manager_of(*kinds, unrolls, batch_size=4, **options):
    manager = make_manager(kinds, batch_size, **options)
    for seq in range(unrolls):
        assert manager.insert(make_record(seq), seq, timeout_s=0)
    return manager


def test_errors_become_priorities_by_id_and_decide_what_is_drawn_next():
    manager = manager_of(
        queue(4, 0.5), prioritised(8, 0.5, alpha=1.0), unrolls=4, discarding_strategy="keep_latest"
    )
    manager.feed_back([2, 0, 1, 3], outcome_of([9.999, 0.0, 0.0, 0.0]))
    _, buffer = manager.buffers
    assert priorities_of(buffer) == pytest.approx({0: 1e-3, 1: 1e-3, 2: 10.0, 3: 1e-3}, rel=1e-4)
    draws = manager.sample(context(), timeout_s=0)
    assert [draw.item.id for draw in draws if not draw.is_online] == [2, 2]
    assert [draw.weight for draw in draws] == [1.0] * 4


def test_an_unroll_that_came_by_the_queue_is_known_too():
    manager = manager_of(queue(4, 0.5), prioritised(8, 0.5, alpha=1.0), unrolls=4)
    draws = manager.sample(context(), timeout_s=0)
    online = [draw.item.id for draw in draws if draw.is_online]
    manager.feed_back(online, outcome_of([5.0] * len(online)))
    known = priorities_of(manager.buffers[1])
    assert online
    assert {i for i, p in known.items() if p > 4} == set(online)


def test_weights_travel_with_the_draws_of_their_buffer_alone():
    manager = manager_of(queue(4, 0.5), prioritised(8, 0.5, alpha=1.0), unrolls=4, batch_size=8)
    manager.feed_back(range(4), outcome_of([1.0, 1.0, 1.0, 5.0]))
    draws = manager.sample(context(progress=1.0), timeout_s=0)
    weights = {draw.item.id: draw.weight for draw in draws if not draw.is_online}
    assert all(draw.weight == 1 for draw in draws if draw.is_online)
    assert weights[3] == pytest.approx(1 / 5, rel=1e-2)
    assert {weight for item, weight in weights.items() if item != 3} == {1.0}


def test_each_game_has_priorities_of_its_own():
    manager = make_manager(
        [queue(8, 0.5), prioritised(8, 0.5, alpha=1.0)], 4, task_shares=(1, 1),
        discarding_strategy="keep_latest",
    )  # fmt: skip
    for seq in range(6):
        manager.insert(make_record(seq, task_id=seq % 2), seq, timeout_s=0)
    manager.feed_back(range(6), outcome_of([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
    _, even, odd = manager.buffers
    assert priorities_of(even) == pytest.approx({0: 1, 2: 3, 4: 5}, rel=1e-2)
    assert priorities_of(odd) == pytest.approx({1: 2, 3: 4, 5: 6}, rel=1e-2)


def test_threads_that_insert_draw_and_feed_back_leave_the_buffers_whole():
    """Small buffers, so that most of what is fed back has been evicted by then."""
    manager = make_manager(
        [queue(6, 0.5), prioritised(7, 0.25), prioritised(12, 0.25, alpha=1.0)], 8,
        discarding_strategy="keep_latest",
    )  # fmt: skip
    learned, enough = [], 150
    done = threading.Event()

    def ingest():
        for seq in range(100_000):
            if done.is_set():
                return
            manager.insert(make_record(seq % 500), seq, timeout_s=0.01)

    def learn(seed):
        chance = np.random.default_rng(seed)
        while len(learned) < enough:
            draws = manager.sample(context(), timeout_s=0.01)
            if draws is None:
                continue
            ids = [draw.item.id for draw in draws]
            manager.feed_back(ids, outcome_of(chance.exponential(size=len(ids))))
            learned.append(ids)
        done.set()

    try:
        run_all(ingest, lambda: learn(1), lambda: learn(2), lambda: learn(3))
    except Closed:  # pragma: no cover
        pytest.fail("nobody has closed it")
    assert len(learned) >= enough
    for buffer in manager.buffers:
        check_valid(buffer)
    held = priorities_of(manager.buffers[2])
    assert len(held) == 12
    assert len(set(held.values())) > 1  # some of them were fed back
