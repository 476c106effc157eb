import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ritornello.core.errors import TransportError
from ritornello.transport.ring import SlotState, UnrollRing

ENVS, NBYTES = 3, 70  # deliberately no multiple of anything


class OneRingAndItsNaiveTwin(RuleBasedStateMachine):
    """The worker's and the learner's moves in any order, also illegal ones, also a death."""

    @initialize(slots=st.integers(1, 5))
    def make(self, slots):
        self.ring = UnrollRing(slots, ENVS, NBYTES)
        self.states = [SlotState.FREE] * slots
        self.bytes: dict[int, np.ndarray] = {}
        self.seq = 0

    def attempt(self, slot, needed, move):
        if self.states[slot] == needed:
            return True
        with pytest.raises(TransportError, match=f"is {self.states[slot].name}, expected"):
            move(slot)
        return False

    @rule()
    def acquire(self):
        slot = self.ring.acquire()
        if SlotState.FREE not in self.states:
            assert slot is None
        else:
            assert self.states[slot] == SlotState.FREE
            self.states[slot] = SlotState.WRITING

    @rule(slot=st.integers(0, 4), data=st.data())
    def write_and_commit(self, slot, data):
        slot %= len(self.states)
        if not self.attempt(slot, SlotState.WRITING, self.ring.block):
            assert not self.attempt(slot, SlotState.WRITING, self.ring.commit)
            return
        self.seq += 1
        content = np.random.default_rng(self.seq).integers(0, 256, (ENVS, NBYTES), np.uint8)
        self.ring.block(slot)[...] = content
        self.bytes[slot] = content
        if data.draw(st.booleans()):
            self.ring.commit(slot)
            self.states[slot] = SlotState.READY

    @rule(slot=st.integers(0, 4))
    def take(self, slot):
        slot %= len(self.states)
        if self.attempt(slot, SlotState.READY, self.ring.take):
            block = self.ring.take(slot)
            self.states[slot] = SlotState.READING
            np.testing.assert_array_equal(block, self.bytes[slot])
            with pytest.raises(ValueError, match="read-only"):
                block[0, 0] = 1

    @rule(slot=st.integers(0, 4))
    def release(self, slot):
        slot %= len(self.states)
        if self.attempt(slot, SlotState.READING, self.ring.release):
            self.ring.release(slot)
            self.states[slot] = SlotState.FREE

    @rule()
    def the_worker_dies(self):
        lost = {SlotState.WRITING, SlotState.READY}
        assert self.ring.reclaim() == sum(state in lost for state in self.states)
        self.states = [SlotState.FREE if s in lost else s for s in self.states]

    @invariant()
    def agrees(self):
        if not hasattr(self, "ring"):
            return
        assert [self.ring.state(slot) for slot in range(len(self.states))] == self.states
        for state in SlotState:
            assert self.ring.count(state) == self.states.count(state)
        for slot, state in enumerate(self.states):
            if state in (SlotState.READY, SlotState.READING):  # nobody disturbs a waiting block
                np.testing.assert_array_equal(self.ring._blocks[slot], self.bytes[slot])


TestEachSlotIsInExactlyOneStateAlsoAfterAKill = OneRingAndItsNaiveTwin.TestCase
TestEachSlotIsInExactlyOneStateAlsoAfterAKill.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None
)
