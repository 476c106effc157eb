from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from ritornello.replay.buffer import Buffer
from ritornello.replay.distance import Distance
from ritornello.replay.removers import Reservoir
from ritornello.replay.sampler import Uniform
from ritornello.replay.scored import FarthestFeatures
from tests.replay.builders import check_valid, fill, make_item


def test_a_reservoir_keeps_each_past_unroll_equally_likely():
    rng = np.random.default_rng(5)
    kept = Counter()
    for _ in range(1500):
        buffer = Buffer("standard", 6, Uniform(), Reservoir())
        for i in range(20):
            buffer.insert(make_item(i), rng)
        kept.update(item.id for item in buffer.items)
    counts = [kept[i] for i in range(20)]
    assert sum(counts) == 1500 * 6
    assert chisquare(counts).pvalue > 0.001


ROUNDS, ROOM, LOST_AT, LOST, COUNT = 1200, 6, 12, 4, 36


def kept_by_buffer(rng, room_before=ROOM):
    """Of all that was offered to a reservoir that lost some, or got more room at that time."""
    buffer = Buffer("standard", room_before, Uniform(), Reservoir())
    items = [make_item(n) for n in range(COUNT)]
    for item in items[:LOST_AT]:
        buffer.insert(item, rng)
    if room_before == ROOM:
        lost = rng.choice(ROOM, LOST, replace=False)
        buffer.discard([buffer.items[place].id for place in lost])
        assert len(buffer) == ROOM - LOST
    else:
        state = buffer.state_dict()
        buffer = Buffer("standard", ROOM, Uniform(), Reservoir())
        buffer.load_state_dict(state, {item.id: item for item in items})
    for item in items[LOST_AT:]:
        size = len(buffer)
        dropped = buffer.insert(item, rng)
        assert len(buffer) == size + (dropped is None)
        check_valid(buffer)
    return [item.id for item in buffer.items]


@pytest.mark.parametrize(
    ("kept_by", "share_of_old"),
    [
        (kept_by_buffer, 1 - LOST / ROOM),
        (lambda rng: kept_by_buffer(rng, room_before=2), 2 / ROOM),
    ],
    ids=["lost", "enlarged"],
)
def test_after_a_loss_or_with_more_room_a_reservoir_keeps_newcomers_equally_likely(
    kept_by, share_of_old
):
    """With ROOM / COUNT each, and those before as many fewer as there were at that time."""
    rng, kept = np.random.default_rng(8), Counter()
    for _ in range(ROUNDS):
        kept.update(kept_by(rng))
    expected = np.full(COUNT, ROUNDS * ROOM / COUNT)
    expected[:LOST_AT] *= share_of_old
    shares = expected / ROUNDS
    found = np.array([kept[n] for n in range(COUNT)])
    scores = (found - expected) / np.sqrt(ROUNDS * shares * (1 - shares))
    assert abs(scores).max() < 4
    for group in (slice(0, LOST_AT), slice(LOST_AT, COUNT)):
        assert found[group].sum() == pytest.approx(expected[group].sum(), rel=0.06)


def test_a_reservoir_takes_what_comes_as_long_as_nothing_may_be_drawn():
    rng = np.random.default_rng(0)
    buffer = Buffer("standard", 3, Uniform(), Reservoir())
    items = [make_item(n) for n in range(1000)]
    for item in items[:900]:
        buffer.insert(item, rng)
    state = buffer.state_dict()
    buffer = Buffer("standard", 50, Uniform(), Reservoir(), min_size=40)
    buffer.load_state_dict(state, {item.id: item for item in items})
    for item in items[900:]:
        if buffer.can_sample():
            break
        buffer.insert(item, rng)
    assert 37 <= item.id - 900 <= 45


def test_elite_insertion_drops_the_farthest_of_those_it_compares():
    rng = np.random.default_rng(0)
    buffer = Buffer("elite", 5, Uniform(), FarthestFeatures(elite_batch_size=5))
    items = fill(buffer, 5)
    buffer.remember(items, np.array([0.1, 0.5, 0.9, 0.3, 0.2]))
    dropped = [buffer.insert(make_item(i), rng).id for i in (5, 6)]
    assert dropped == [2, 1]


class Lost(Distance):
    """Finds drifts that are not a number, as those of an observation that holds NaN."""

    def drift(self, evidence):
        return np.array([0.1, np.nan, 0.9])


def test_elite_insertion_drops_what_cannot_be_measured_first():
    rng = np.random.default_rng(0)
    buffer = Buffer("elite", 3, Uniform(), FarthestFeatures(Lost(), elite_batch_size=3))
    items = fill(buffer, 3)
    buffer.remember(items, buffer.measure(None))
    assert [buffer.insert(make_item(i), rng).id for i in (3, 4)] == [1, 2]


def test_elite_insertion_drops_the_oldest_while_nothing_is_measured():
    rng = np.random.default_rng(0)
    buffer = Buffer("elite", 4, Uniform(), FarthestFeatures(elite_batch_size=4))
    dropped = [buffer.insert(make_item(i), rng) for i in range(6)]
    assert [item.id for item in dropped if item] == [0, 1]


def test_examinations_come_at_their_period_with_different_items():
    rng = np.random.default_rng(0)
    remover = FarthestFeatures(Distance("cos_dist"), elite_batch_size=3, score_period=4)
    buffer = Buffer("elite", 10, Uniform(), remover)
    fill(buffer, 10)
    asked = [buffer.propose_examination(rng) for _ in range(9)]
    assert [len(items) for items in asked] == [0, 0, 0, 3, 0, 0, 0, 3, 0]
    assert len({item.id for item in asked[3]}) == 3
