"""Unrolls of other agents: kept like any others, never new, never waited for, told apart."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ritornello.core.errors import Closed
from ritornello.replay.item import OWN
from ritornello.replay.manager import ReplayManager
from tests.replay.builders import (
    ALL_KINDS,
    SCHEMA_WITHOUT_FEATURES,
    attentive,
    circular,
    context,
    make_manager,
    make_record,
    queue,
    seq_of,
    standard,
)


def own(manager: ReplayManager, seq: int, **more: Any) -> bool:
    return manager.insert(make_record(seq, **more), seq, timeout_s=0)


def foreign(manager: ReplayManager, seq: int, agent: int = 3, **more: Any) -> bool:
    return manager.insert_foreign(make_record(seq, **more), agent, update=0)


class ForeignMachine(RuleBasedStateMachine):
    """Two managers get the same own unrolls, one of them foreign ones besides.

    What the queues give, and whether an insert or a batch has to wait, must be the same.
    """

    @initialize(
        kinds=st.sampled_from([[queue(3, 0.5), standard(6, 0.5)], [queue(3)]]),
        codec=st.sampled_from(["none", "lz4"]),
    )
    def build(self, kinds, codec):
        self.has_ring = any(kind["type"] != "queue" for kind in kinds)
        self.make = lambda: make_manager(kinds, 2, codec=codec)
        self.alone, self.sharing = self.make(), self.make()
        self.seq = 0
        self.makers = {}  # seq -> agent

    @rule(count=st.integers(1, 5))
    def insert_own(self, count):
        for _ in range(count):
            expected = own(self.alone, self.seq)
            assert own(self.sharing, self.seq) == expected
            if expected:
                self.makers[self.seq] = OWN
            self.seq += 1

    @rule(count=st.integers(1, 9), agent=st.integers(0, 5))
    def insert_foreign(self, count, agent):
        for _ in range(count):
            assert foreign(self.sharing, self.seq, agent) == self.has_ring
            self.makers[self.seq] = agent
            self.seq += 1

    @rule()
    def sample(self):
        online = []
        assert self.alone.can_sample() == self.sharing.can_sample()
        if not self.alone.can_sample():
            return
        for manager in (self.alone, self.sharing):
            draws = manager.sample(context(), timeout_s=0)
            assert draws is not None
            assert len(draws) == 2
            for draw in draws:
                assert draw.item.agent == self.makers[seq_of(draw.record)]
                assert draw.item.agent == OWN or not draw.is_online
            online.append([seq_of(draw.record) for draw in draws if draw.is_online])
        assert online[0] == online[1]

    @rule()
    def reload(self):
        state = self.sharing.state_dict(contents=True)
        self.sharing = self.make()
        self.sharing.load_state_dict(state)

    @invariant()
    def all_is_consistent(self):
        for buffer in self.sharing.buffers if hasattr(self, "sharing") else ():
            buffer.check_valid()
            assert all(item.agent == self.makers[seq_of(item.record())] for item in buffer.items)
            assert len(buffer) <= buffer.capacity
            assert not buffer.consumes or all(item.agent == OWN for item in buffer.items)


class TestForeignUnrollsChangeNothingOfWhatIsNew(ForeignMachine.TestCase):
    settings = settings(max_examples=80, stateful_step_count=15, deadline=None)


def test_every_kind_of_buffer_but_the_queue_takes_them_and_draws_them() -> None:
    manager = make_manager(ALL_KINDS, 20)
    for seq in range(3):
        assert own(manager, seq)
    for seq in range(3, 60):
        assert foreign(manager, seq, agent=seq % 2)
    assert manager.sample(context(), timeout_s=0) is None  # 4 are of the queue: one is missing
    assert own(manager, 60)
    draws = manager.sample(context(), timeout_s=0)
    assert draws is not None
    for source, buffer in enumerate(manager.buffers):
        agents = {draw.item.agent for draw in draws if draw.source == source}
        assert (agents == {OWN}) if buffer.consumes else (agents & {0, 1}), buffer.name


def test_attentive_replay_compares_with_what_this_agent_sees_and_waits_for_it() -> None:
    manager = make_manager([attentive(10)], 2, max_draws_per_unroll=1.0)
    for seq in range(10):
        foreign(manager, seq)
    assert not manager.can_sample()
    assert "0 of 1" in manager.missing()
    assert manager.sample(context(), timeout_s=0) is None
    assert own(manager, 10)
    assert manager.sample(context(), timeout_s=0) is not None
    state = manager.state_dict(contents=True)
    assert [item for _, _, item in state["contents"]["newest"]] == [10]


def test_only_the_buffers_of_their_game_take_them() -> None:
    manager = make_manager(
        [queue(4, 0.5), standard(10, 0.5)], 4, task_shares=(1, 1), max_draws_per_unroll=None
    )
    assert foreign(manager, 0, task_id=1)
    held = {buffer.name: len(buffer) for buffer in manager.buffers}
    assert held == {"queue": 0, "standard_0": 0, "standard_1": 1}


def test_a_buffer_that_hands_on_what_is_new_takes_none() -> None:
    manager = make_manager([circular(2, 0.5), standard(10, 0.5)], 2)
    for seq in range(20):
        assert foreign(manager, seq)
    assert {buffer.name: len(buffer) for buffer in manager.buffers} == {
        "circular": 0,
        "standard": 10,
    }
    assert not make_manager([circular(2)], 2).insert_foreign(make_record(0), 1, 0)


def test_they_never_wait_for_a_full_queue_nor_for_the_pace() -> None:
    manager = make_manager([queue(2, 0.5), standard(4, 0.5)], 2)
    assert own(manager, 0)
    assert own(manager, 1)
    assert not own(manager, 2)
    for seq in range(3, 30):
        assert foreign(manager, seq)
    paced = make_manager([standard(4)], 2, max_draws_per_unroll=1.0)
    for seq in range(100):
        assert foreign(paced, seq)
    # Without a single unroll of its own an agent gets no further than the slack of the pace.
    batches = 0
    while paced.sample(context(), timeout_s=0) is not None:
        batches += 1
    assert batches == 1


def test_who_made_an_unroll_is_known_after_a_resume_and_in_older_files() -> None:
    manager = make_manager([queue(4, 0.5), standard(10, 0.5)], 2)
    own(manager, 0)
    foreign(manager, 1, agent=7)
    state = manager.state_dict(contents=True)
    assert sorted(state["contents"]["items"]["agents"].tolist()) == [OWN, 7]
    twin = make_manager([queue(4, 0.5), standard(10, 0.5)], 2)
    twin.load_state_dict(state)
    assert {i.id: i.agent for i in twin.buffers[1].items} == {0: OWN, 1: 7}
    del state["contents"]["items"]["agents"]
    for name in ("foreign", "foreign_draws"):
        del state["counters"][name]
    twin.load_state_dict(state)
    assert {i.agent for i in twin.buffers[1].items} == {OWN}


def test_a_payload_that_is_at_hand_is_kept_as_it_came() -> None:
    manager = make_manager(
        [queue(4, 0.5), standard(10, 0.5)], 2, codec="lz4", schema=SCHEMA_WITHOUT_FEATURES
    )
    record = make_record(5, schema=SCHEMA_WITHOUT_FEATURES)
    payload = manager.codec.encode(record)
    assert manager.insert_foreign(record, 1, 0, payload)
    (item,) = manager.buffers[1].items
    assert item.payload is payload
    assert item.record().tobytes() == record.tobytes()


def test_a_closed_manager_takes_nothing() -> None:
    manager = make_manager([standard(10)], 2, max_draws_per_unroll=1.0)
    manager.close()
    with pytest.raises(Closed):
        foreign(manager, 0)
