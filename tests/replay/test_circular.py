"""The circular buffer: N batches take turns, and each is used K times and then replaced."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ritornello.core.errors import ConfigError
from ritornello.flags.options import Flags
from ritornello.replay.parameters import (
    make_buffers,
    most_unrolls_held,
    new_unrolls_per_update,
    parse_replay_parameters,
)
from ritornello.replay.several_games import split_by_task
from tests.reference.naive_circular import NaiveCircular
from tests.replay.builders import (
    check_valid,
    circular,
    context,
    make_item,
    make_manager,
    make_record,
    queue,
    standard,
)


def buffer_of(capacity, uses):
    return make_buffers(parse_replay_parameters([circular(capacity, uses=uses)]), 0.0)[0]


class CircularMachine(RuleBasedStateMachine):
    """Insert, draw, discard and reload in any order; a plain list does the same beside it."""

    @initialize(data=st.data(), capacity=st.integers(1, 9), uses=st.integers(1, 4))
    def build(self, data, capacity, uses):
        self.count = data.draw(st.integers(1, capacity))
        self.make = lambda: buffer_of(capacity, uses)
        self.buffer = self.make()
        self.naive = NaiveCircular(capacity, uses)
        self.items = {}
        self.draws = Counter()
        self.rng = np.random.default_rng(0)

    @rule(count=st.integers(1, 9))
    def insert(self, count):
        for _ in range(count):
            item = make_item(len(self.items), inserted_at_update=7 * len(self.items))
            if len(self.buffer) == self.buffer.capacity:
                assert not self.buffer.can_insert()
                with pytest.raises(ValueError, match="may not evict"):
                    self.buffer.insert(item, self.rng)
                return
            self.items[item.id] = item
            assert self.buffer.insert(item, self.rng) is None
            self.naive.insert(item.id)

    @rule(times=st.integers(1, 3))
    def draw(self, times):
        for _ in range(times):
            if len(self.buffer) < self.buffer.capacity:
                assert not self.buffer.can_sample()
                with pytest.raises(ValueError, match="holds|is empty"):
                    self.buffer.propose(self.count, 0.0, self.rng)
                return
            assert self.buffer.can_sample()
            proposal = self.buffer.propose(self.count, 0.0, self.rng)
            self.buffer.commit(proposal.items)
            drawn = [item.id for item in proposal.items]
            assert (drawn, proposal.draws.tolist()) == self.naive.draw(self.count)
            assert len(set(drawn)) == self.count
            first_time = [i for i in drawn if not self.draws[i]]
            online = zip(drawn, self.buffer.online(proposal), strict=True)
            assert {i for i, is_online in online if is_online} <= set(first_time)
            self.draws.update(drawn)

    @precondition(lambda self: len(self.buffer))
    @rule(data=st.data())
    def discard(self, data):
        held = [item.id for item in self.buffer.items]
        for i in data.draw(st.lists(st.sampled_from(held), max_size=3, unique=True)):
            self.buffer.discard([i])
            self.naive.drop(i)

    @precondition(lambda self: len(self.buffer) == self.buffer.capacity)
    @rule()
    def make_room(self):
        """As the strategies do that let no worker wait: who has waited longest goes."""
        dropped = self.buffer.make_room()
        assert dropped.id == self.naive.waiting[0][0]
        self.naive.drop(dropped.id)

    @rule()
    def reload(self):
        before, self.buffer = self.buffer, self.make()
        self.buffer.load_state_dict(before.state_dict(), self.items)

    @invariant()
    def it_holds_what_the_list_holds_and_nothing_was_drawn_too_often(self):
        check_valid(self.buffer)
        assert [item.id for item in self.buffer.items] == [i for i, _ in self.naive.waiting]
        assert all(draws <= self.naive.uses for draws in self.draws.values())


class TestACircularBufferIsAListThatTurns(CircularMachine.TestCase):
    settings = settings(max_examples=150, stateful_step_count=20, deadline=None)


def test_it_sets_the_pace_and_stays_one_for_all_games():
    assert Flags(replay_parameters=[circular(8)], batch_size=4).max_draws_per_unroll is None
    configs = parse_replay_parameters([circular(8)])
    assert split_by_task(configs, (1, 2)) == configs
    (buffer,) = make_buffers(configs, fill_in_factor=0.1)
    assert buffer.min_size == 8
    assert most_unrolls_held(configs, "block", 4) == 8 + 2 * 4


def test_a_buffer_without_room_for_a_batch_is_refused():
    with pytest.raises(ConfigError, match="circular has capacity 3, expected at least 4, its"):
        make_manager([circular(3)], 4)
    with pytest.raises(ConfigError, match="expected at least 2"):
        make_manager([circular(1, 0.5), queue(1, 0.5)], 4)
    make_manager([circular(4)], 4)


def test_a_buffer_of_one_batch_gives_no_more_than_it_holds():
    parameters = [queue(4, 5 / 15), circular(1, 6 / 15), standard(20, 4 / 15)]
    manager = make_manager(parameters, 2)
    for made in range(60):  # by the shares alone, the eighth batch would take two of the circular
        manager.insert(make_record(made), 0, timeout_s=0)
        assert len(manager.sample(context(), timeout_s=0) or (1, 2)) == 2


def test_its_share_stays_while_a_run_goes_on():
    assert make_manager([queue(16, 0.5), circular(16, 0.5)], 32).own_share is None
    assert make_manager([queue(16, 0.5), standard(16, 0.5)], 32).own_share == 0.5


@pytest.mark.parametrize(
    ("parameters", "batch_size", "expected"),
    [
        ([circular(32, uses=2)], 8, 4),
        ([circular(32, 0.5, uses=3), standard(20, 0.5)], 8, 4 / 3),
        # The one that takes more sets the pace; the other drops what it had no turn for.
        ([circular(32, 0.5, uses=2), queue(4, 0.5)], 8, 4),
        ([circular(32, 0.5, uses=2), circular(32, 0.5, uses=8)], 8, 2),
        ([queue(4, 0.25), queue(4, 0.75)], 8, 6),
    ],
)
def test_as_many_unrolls_are_new_at_each_update_as_the_configs_say(
    parameters, batch_size, expected
):
    configs = parse_replay_parameters(parameters)
    assert new_unrolls_per_update(configs, batch_size) == pytest.approx(expected)
    manager = make_manager(parameters, batch_size)
    made = 0
    counts = []
    while len(counts) < 300:  # workers are quick: the learner comes only when they have to wait
        while manager.insert(make_record(made), 0, timeout_s=0):
            made += 1
        counts += [made] * (manager.sample(context(), timeout_s=0) is not None)
    assert counts[299] - counts[99] == pytest.approx(200 * expected, abs=2 * batch_size)
