"""UnrollRing: slots of shared memory through which one worker hands over its unrolls.

One ring per worker: a single producer (the worker) and a single consumer (the learner's ingest
thread). Workers share nothing they can write, so the death of one cannot hurt another. A slot is a
*block* of E records, one unroll of each of the worker's environments: they begin and end together.

Only the number of a slot travels, over the pipe of transport/channel.py.

Next to read: replay/buffer.py, which keeps the unrolls.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from ritornello.core.errors import TransportError
from ritornello.transport.shared import InSharedMemory, memory_fence, whole_pages

Block = NDArray[np.uint8]


class SlotState(IntEnum):
    """Who owns a slot now, and for what."""

    FREE = 0  # the worker may take it
    WRITING = 1  # the worker fills it
    READY = 2  # complete, waits for the learner
    READING = 3  # the learner copies it out


class UnrollRing(InSharedMemory):
    """S slots in shared memory, each a block of E unroll records.

    A slot is FREE, WRITING, READY or READING, never two at once: its state is one byte, and a byte
    is never half written, not even by a process that is killed. FREE -> WRITING -> READY are moves
    of the worker, READY -> READING -> FREE of the learner, so each move has exactly one process
    that may make it and no lock is needed. An illegal move raises TransportError.

    Hand the ring to the worker as an argument of its `Process`; both then see the same memory.
    """

    _VIEWS = ("_states", "_blocks")

    def __init__(self, slots: int, envs: int, record_nbytes: int) -> None:
        """Allocate the ring.

        Args:
          slots: S; with 1 the worker waits until its last block is released.
          envs: E, number of records per slot.
          record_nbytes: size of one record (`UnrollSchema.nbytes`).
        """
        self.slots = slots
        self.envs = envs
        self.record_nbytes = record_nbytes
        super().__init__(self.nbytes_needed(slots, envs, record_nbytes), "ring")

    @staticmethod
    def nbytes_needed(slots: int, envs: int, record_nbytes: int) -> int:
        """Return the shared memory that such a ring takes, for `check_shared_memory`."""
        return whole_pages(slots) + slots * whole_pages(envs * record_nbytes)

    def _map(self, memory: NDArray[np.uint8]) -> None:
        size = self.envs * self.record_nbytes
        start, stride = whole_pages(self.slots), whole_pages(size)
        self._states = memory[: self.slots]
        padded = memory[start : start + self.slots * stride].reshape(self.slots, stride)
        self._blocks: list[Block] = [
            row[:size].reshape(self.envs, self.record_nbytes) for row in padded
        ]

    # Moves of the worker.

    def acquire(self) -> int | None:
        """Take a FREE slot for writing, or return None if the learner has not freed one yet."""
        slot = self._states.tobytes().find(SlotState.FREE)
        if slot < 0:
            return None
        self._move(slot, SlotState.FREE, SlotState.WRITING)
        return slot

    def block(self, slot: int) -> Block:
        """Return the writable block `[E, record_nbytes]` uint8 of a slot that is WRITING."""
        self._expect(slot, SlotState.WRITING)
        return self._blocks[slot]

    def commit(self, slot: int) -> None:
        """Declare a block complete: WRITING -> READY. The worker must not touch it again."""
        self._move(slot, SlotState.WRITING, SlotState.READY)

    # Moves of the learner.

    def take(self, slot: int) -> Block:
        """READY -> READING. Return the block `[E, record_nbytes]` uint8, read-only, not a copy."""
        self._move(slot, SlotState.READY, SlotState.READING)
        view: Block = self._blocks[slot].view()
        view.flags.writeable = False
        return view

    def release(self, slot: int) -> None:
        """READING -> FREE. Views of the block will change under their holder from now on."""
        self._move(slot, SlotState.READING, SlotState.FREE)

    def reclaim(self) -> int:
        """Free what a dead worker left: WRITING or READY -> FREE.

        Call it when its pipe has been read to the end, so that every announced block has been
        taken. Slots that are READING belong to the learner, who releases them as always.

        Returns:
          The number of blocks lost.
        """
        left = (self._states == SlotState.WRITING) | (self._states == SlotState.READY)
        self._states[left] = SlotState.FREE
        return int(left.sum())

    # For everybody.

    def state(self, slot: int) -> SlotState:
        """Return the state of a slot."""
        return SlotState(int(self._states[slot]))

    def count(self, *states: SlotState) -> int:
        """Return how many slots are in one of these states, at one instant."""
        snapshot = self._states.tobytes()
        return sum(map(snapshot.count, states))

    def _expect(self, slot: int, expected: SlotState) -> None:
        state = self.state(slot)
        if state != expected:
            raise TransportError(f"slot {slot} is {state.name}, expected {expected.name}.")

    def _move(self, slot: int, expected: SlotState, new: SlotState) -> None:
        self._expect(slot, expected)
        memory_fence()  # the block's bytes change hands with its state
        self._states[slot] = new
