"""What was learned comes back to the buffers, through the manager."""

import numpy as np
import pytest

from ritornello.replay.sampler import Outcome
from tests.replay.builders import (
    context,
    make_manager,
    make_record,
    priorities_of,
    prioritised,
    queue,
)


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
