"""Mailbox: the memory through which a worker asks the inference server for actions.

Observations and answers lie in shared memory. Only one byte travels through a pipe, to wake the
process that waits. A worker asks for one group of its environments at a time, so that it can step
the others meanwhile:

    worker                                      server
    box.post(0, stacks, ...)   -- doorbell -->  doorbell.wait(timeout_s)
    ... steps group 1 ...                       box.asked() -> [0]; letter = box.letter(0)
                                                ... reads the question, writes the answer ...
    box.wait(0, timeout_s)     <--- bell -----  box.answer(0)
    letter = box.letter(0)

Processes share no lock, and the memory alone says what is to be done. A process that dies, at
whatever byte, can therefore be replaced by one that gets the same mailbox. The successor of a
server finds the open questions there, and the successor of a worker waits for the last answer.

The readers are `RemoteActor` and `InferenceServer` of agent/acting/inference_server.py.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import time
from collections.abc import Sequence
from enum import IntEnum
from multiprocessing import context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ritornello.core.errors import Closed, ShapeError, TransportError
from ritornello.core.layout import ALIGNMENT_BYTES, Field, lay_out
from ritornello.core.spec import EnvSpec
from ritornello.transport.shared import InSharedMemory, memory_fence, whole_pages


class Bell:
    """A pipe that wakes one listener; any number of processes may ring. Its bytes say nothing.

    A full pipe is a bell that rings already, so ringing never blocks, and one byte is never half
    written. Hand it to children as an argument of their `Process`.
    """

    def __init__(self) -> None:
        """Make the pipe."""
        self._ear, self._button = multiprocessing.Pipe(duplex=False)
        for end in (self._ear, self._button):
            os.set_blocking(end.fileno(), False)
        self._listen()

    def _listen(self) -> None:
        self._poll = select.poll()
        self._poll.register(self._ear.fileno(), select.POLLIN)

    def __getstate__(self) -> dict[str, Any]:
        """Travel to a child without the poll object, which belongs to one process."""
        context.assert_spawning(self)
        return {"_ear": self._ear, "_button": self._button}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._listen()

    def hang_up_with(self, file: int) -> None:
        """Let `wait` raise Closed, from now on, once this descriptor has an end of file."""
        self._poll.register(file, select.POLLIN)

    def ring(self) -> None:
        """Wake the listener, now or when it waits next."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._button.fileno(), b"\0")

    def wait(self, timeout_s: float) -> bool:
        """Wait until it rings; return whether it did. Look at the shared memory in any case.

        Raises:
          Closed: if the process whose end `hang_up_with` watches for is gone.
        """
        ear, rang = self._ear.fileno(), False
        for file, _ in self._poll.poll(timeout_s * 1000):
            if file != ear:
                raise Closed("the process that started this one is gone, or wants it to stop.")
            os.read(ear, 4096)
            rang = True
        return rang


class Turn(IntEnum):
    """Who owns a group's letter: who may read and write it."""

    WORKER = 0  # the answer has come (or nothing was ever asked)
    SERVER = 1  # a question is open


# Views of the shared memory for a group of n environments: the fields of QUESTION, which are those
# of `Observation` (agent/acting/actor.py), and of the answer: action [n, *action_shape], params
# [n, P] float32, value [n] float32 (unnormalised), version [1] int64 (learner updates in the
# weights that acted), and, if there are any, features [n, F] float16 and state [n, state_count]
# float32 (memory before it acted).
Letter = dict[str, np.ndarray]
QUESTION = ("stacks", "first", "last_action", "last_reward", "task_id", "action_mask")


class Mailbox(InSharedMemory):
    """The letters of one worker, one for each group of its environments.

    The turn of a group is one byte, never half written. WORKER -> SERVER is a move of the worker,
    SERVER -> WORKER of the server; an illegal move raises TransportError.
    """

    _VIEWS = ("_turns", "_letters")

    def __init__(
        self,
        env_spec: EnvSpec,
        group_sizes: Sequence[int],
        feature_count: int,
        doorbell: Bell,
        state_count: int = 0,
    ) -> None:
        """Allocate the memory; every group is the worker's turn.

        Args:
          env_spec: gives the shapes of observations and actions.
          group_sizes: number of environments of each group.
          feature_count: F, or 0 to leave features out.
          doorbell: the server's bell; all workers ring the same one.
          state_count: number of values in the model's memory, or 0 if it has none.
        """
        self.group_sizes = tuple(group_sizes)
        self._doorbell = doorbell
        self._bell = Bell()
        self._layouts = [
            _layout(env_spec, count, feature_count, state_count) for count in self.group_sizes
        ]
        self._starts = [whole_pages(len(self.group_sizes) * ALIGNMENT_BYTES)]
        for _, nbytes in self._layouts:
            self._starts.append(self._starts[-1] + whole_pages(nbytes))
        super().__init__(self._starts[-1], "mailbox")

    def _map(self, memory: NDArray[np.uint8]) -> None:
        # One cache line each.
        self._turns = memory[: len(self.group_sizes) * ALIGNMENT_BYTES : ALIGNMENT_BYTES]
        self._letters: list[Letter] = [
            {name: field.view(memory[start : start + nbytes]) for name, field in fields.items()}
            for start, (fields, nbytes) in zip(self._starts, self._layouts, strict=False)
        ]

    # Moves of the worker.

    def post(self, group: int, *question: np.ndarray | None) -> None:
        """Ask for the actions of a group: copy its observation, and WORKER -> SERVER.

        `group` is an index into `group_sizes`. `question` has the arrays in the order of QUESTION;
        the caller may reuse them at once. A mask of None allows everything.
        """
        letter = self._letters[group]
        asked = {n: given for n, given in zip(QUESTION, question, strict=True) if given is not None}
        for name, given in asked.items():
            if name not in letter or given.shape != letter[name].shape:
                expected = letter[name].shape if name in letter else None
                raise ShapeError(
                    f"{name} has shape {given.shape}, expected {expected}: group {group} "
                    "of this mailbox was made for other environments."
                )
        self._expect(group, Turn.WORKER)
        for name, given in asked.items():
            letter[name][...] = given
        self._give(group, Turn.SERVER)
        self._doorbell.ring()

    def wait(self, group: int, timeout_s: float) -> bool:
        """Wait for the answer of a group; return whether it is the worker's turn.

        Raises:
          Closed: see `hang_up_with`.
        """
        deadline = time.monotonic() + timeout_s
        while self.turn(group) != Turn.WORKER:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return False
            self._bell.wait(remaining_s)
        memory_fence()  # what is read from now on was written before the turn
        return True

    def hang_up_with(self, file: int) -> None:
        """Let `wait` raise Closed, from now on, once this descriptor has an end of file."""
        self._bell.hang_up_with(file)

    # Moves of the server.

    def asked(self) -> list[int]:
        """Return the groups that wait for actions."""
        groups = [g for g in range(len(self.group_sizes)) if self.turn(g) == Turn.SERVER]
        if groups:
            memory_fence()
        return groups

    def answer(self, group: int) -> None:
        """Hand the letter back, its answer written completely: SERVER -> WORKER."""
        self._expect(group, Turn.SERVER)
        self._give(group, Turn.WORKER)
        self._bell.ring()

    # For both.

    def letter(self, group: int) -> Letter:
        """Return a group's letter. Only the one whose turn it is may touch it."""
        return self._letters[group]

    def turn(self, group: int) -> Turn:
        """Return whose turn it is."""
        return Turn(int(self._turns[group]))

    def _expect(self, group: int, turn: Turn) -> None:
        if self.turn(group) != turn:
            raise TransportError(
                f"group {group} of the mailbox is the turn of the {self.turn(group).name.lower()}, "
                f"expected the {turn.name.lower()}: a letter is answered once for each question."
            )

    def _give(self, group: int, turn: Turn) -> None:
        memory_fence()  # the letter changes hands with its turn
        self._turns[group] = turn


def _layout(
    spec: EnvSpec, count: int, feature_count: int, state_count: int
) -> tuple[dict[str, Field], int]:
    """Return the fields and the bytes of the letter of `count` environments."""
    actions = spec.actions
    table: list[tuple[str, tuple[int, ...], str]] = [
        ("stacks", (count, spec.frames_stacked, *spec.frame_shape), spec.frame_dtype),
        ("first", (count,), "bool"),
        ("last_action", (count, *actions.shape), actions.dtype),
        ("last_reward", (count,), "float32"),
        ("task_id", (count,), "int64"),
        ("action", (count, *actions.shape), actions.dtype),
        ("params", (count, actions.param_count), "float32"),
        ("value", (count,), "float32"),
        ("version", (1,), "int64"),
    ]
    if spec.has_action_mask:
        table.append(("action_mask", (count, actions.param_count), "bool"))
    if feature_count:
        table.append(("features", (count, feature_count), "float16"))
    if state_count:
        table.append(("state", (count, state_count), "float32"))
    return lay_out(table)
