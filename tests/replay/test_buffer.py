from collections import Counter

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from scipy.stats import chisquare

from ritornello.replay.buffer import Buffer
from ritornello.replay.evidence import Evidence
from ritornello.replay.prioritised import Prioritised
from ritornello.replay.removers import Oldest
from ritornello.replay.sampler import Fifo, Uniform
from ritornello.replay.samplers import LeastDrawn
from ritornello.replay.scored import Elite
from tests.reference.naive_buffer import NaiveBuffer
from tests.reference.prioritised_loops import importance_weights
from tests.replay.builders import check_valid, fill, make_item


class BufferMachine(RuleBasedStateMachine):
    """Insert, draw, evict and reload in any order; a plain list does the same beside it."""

    @initialize(
        capacity=st.integers(1, 6),
        sampler=st.sampled_from([Fifo, Uniform, LeastDrawn, Prioritised]),
    )
    def build(self, capacity, sampler):
        self.sampler = sampler
        self.make = lambda: Buffer("tested", capacity, sampler(), Oldest())
        self.buffer = self.make()
        self.naive = NaiveBuffer(capacity)
        self.items = {}
        self.rng = np.random.default_rng(0)

    def new_item(self):
        item = make_item(len(self.items), inserted_at_update=7 * len(self.items))
        self.items[item.id] = item
        return item

    @rule()
    def insert(self):
        item = self.new_item()
        if not self.buffer.can_insert():
            with pytest.raises(ValueError, match="may not evict"):
                self.buffer.insert(item, self.rng)
            return
        dropped = self.buffer.insert(item, self.rng)
        assert (dropped and dropped.id) == self.naive.insert(item.id)

    @rule()
    def make_room(self):
        is_full = len(self.naive.ids) == self.naive.capacity
        expected = self.naive.ids[0] if is_full else None
        dropped = self.buffer.make_room()
        assert (None if dropped is None else dropped.id) == expected
        if dropped is not None:
            self.naive.drop(dropped.id)

    @precondition(lambda self: len(self.buffer))
    @rule(data=st.data())
    def draw(self, data):
        most = len(self.buffer) if self.buffer.consumes else 8
        n = data.draw(st.integers(0, most))
        proposal = self.buffer.propose(n, 0.0, self.rng)
        chosen = self.buffer.choose(proposal, None)
        drawn = [item.id for item in chosen.items]
        assert len(drawn) == n
        if self.buffer.consumes:
            assert drawn == self.naive.ids[:n]
            del self.naive.ids[:n]
            self.naive.draws = dict.fromkeys(self.naive.ids, 0)
            self.naive.priorities = dict.fromkeys(self.naive.ids, 1.0)
        else:
            assert set(drawn) <= set(self.naive.ids)
            self.check_draws(drawn, chosen.weights)
            if data.draw(st.booleans()):
                self.insert()  # between a proposal and its commit, anything may be evicted
        self.buffer.commit([self.items[i] for i in drawn])
        if not self.buffer.consumes:
            self.naive.count_draws(drawn)

    def check_draws(self, drawn, weights):
        held = self.naive.ids
        if self.sampler is Prioritised and drawn:
            masses = [self.naive.priorities[i] for i in held]
            places = [held.index(i) for i in drawn]
            beta = Prioritised().beta(0.0)
            assert weights == pytest.approx(importance_weights(masses, places, beta))
            return
        assert weights is None
        assert len(drawn) > len(held) or len(set(drawn)) == len(drawn)
        if self.sampler is LeastDrawn and len(drawn) * 6 >= len(held) >= len(drawn):
            # All that it holds is looked at: nothing that is left out was drawn less often.
            left = [self.naive.draws[i] for i in held if i not in drawn]
            assert not left or max((self.naive.draws[i] for i in drawn), default=0) <= min(left)

    @precondition(lambda self: self.sampler is Prioritised)
    @rule(data=st.data())
    def reprioritise(self, data):
        """Of items that are held, that were, and that never were."""
        item = st.integers(-1, len(self.items))
        given = data.draw(st.lists(st.tuples(item, st.sampled_from([0.1, 1.0, 3.0])), max_size=6))
        self.buffer.reprioritise([i for i, _ in given], np.array([p for _, p in given]))
        self.naive.give_priorities(given)

    @precondition(lambda self: len(self.buffer))
    @rule(data=st.data())
    def discard(self, data):
        ids = data.draw(st.lists(st.sampled_from(self.naive.ids), max_size=3, unique=True))
        self.buffer.discard(ids)
        for i in ids:
            if self.buffer.consumes or len(self.naive.ids) > 1:
                self.naive.drop(i)

    @rule()
    def reload(self):
        before, self.buffer = self.buffer, self.make()
        self.buffer.load_state_dict(before.state_dict(), self.items)
        if self.naive.ids and not self.buffer.consumes:
            one, other = (
                b.propose(3, 0.5, np.random.default_rng(1)) for b in (before, self.buffer)
            )
            assert list(one.weighted()) == list(other.weighted())  # to the bit

    @invariant()
    def a_buffer_never_exceeds_capacity_and_check_valid_holds_after_each_operation(self):
        check_valid(self.buffer)
        assert [item.id for item in self.buffer.items] == self.naive.ids
        assert len(self.buffer) == len(self.naive.ids) <= self.buffer.capacity
        stats = self.buffer.stats(update=1000)
        assert stats["dropped"] == self.naive.unused
        if self.naive.ids:
            mean = np.mean([7 * i for i in self.naive.ids])
            assert stats["mean_age_updates"] == pytest.approx(1000 - mean)
        state = self.buffer.state_dict()
        draws = dict(zip(state["ids"].tolist(), state["draws"].tolist(), strict=True))
        assert draws == self.naive.draws
        if self.sampler is Prioritised:
            kept = dict(zip(state["ids"].tolist(), state["priorities"].tolist(), strict=True))
            assert kept == self.naive.priorities


TestABufferNeverExceedsCapacityAndCheckValidHoldsAfterEachOperation = BufferMachine.TestCase
TestABufferNeverExceedsCapacityAndCheckValidHoldsAfterEachOperation.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None
)


@pytest.mark.parametrize("n", [4, 30])
def test_uniform_draws_every_item_equally_likely(n):
    rng = np.random.default_rng(3)
    buffer = Buffer("standard", 12, Uniform(), Oldest())
    fill(buffer, 12)
    drawn = Counter()
    for _ in range(4000 // n):
        proposal = buffer.propose(n, 0.0, rng)
        drawn.update(item.id for item in buffer.choose(proposal, None).items)
    assert chisquare([drawn[i] for i in range(12)]).pvalue > 0.001


def elite_buffer(capacity, **options):
    return Buffer("elite", capacity, Elite(**options), Oldest())


def evidence_by_id(proposal):
    """Item i has drifted by i."""
    then = np.array([[[float(item.id)]] for item in proposal.items])
    zeros = np.zeros_like(then)
    return Evidence(zeros, zeros, then, zeros, None)


def test_elite_proposes_lambda_times_as_many_different_items_and_keeps_the_nearest():
    rng = np.random.default_rng(0)
    buffer = elite_buffer(100, initial_lambda=6, strategy=1)
    fill(buffer, 100)
    proposal = buffer.propose(5, 0.0, rng)
    ids = [item.id for item in proposal.items]
    assert len(ids) == len(set(ids)) == 30
    chosen = buffer.choose(proposal, evidence_by_id(proposal)).items
    assert [item.id for item in chosen] == sorted(ids)[:5]
