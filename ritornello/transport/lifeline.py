"""Lifeline: how a process shows that it lives, and what it leaves when it does not.

    learner                                  worker or inference server
    end = lifeline.open(); Process(.., end)  end.hold()   first of all
    lifeline.pulse.read()                    end.pulse.beat(Phase.STEPPING)   all the time
    lifeline.ask_for_stack(pid)              (Python's fault handler writes it, not our code)
    lifeline.stack()

At each change of its activity a process writes three numbers into shared memory, its pulse: less
than a microsecond, no system call, no lock. They stop changing if it is stopped, hangs or has died.

The stack comes through a pipe of its own. It is written by a signal handler in C, so it also comes
from a process that hangs in C code and never runs another line of Python; the same handler writes
it when a process dies of a segmentation fault. A process that was stopped (SIGSTOP) writes nothing.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import time
from dataclasses import dataclass
from enum import IntEnum
from multiprocessing.connection import Connection

import numpy as np
from numpy.typing import NDArray

from ritornello.core.process_death import Family
from ritornello.transport.shared import InSharedMemory

STACK_SIGNAL = signal.SIGUSR1
MAX_STACK_BYTES = 16_000  # of several threads; enough to see where each stands


CELLS = 3  # phase, time at which it began, beats since the start of the process
PHASE, SINCE, BEATS = range(CELLS)


class Phase(IntEnum):
    """Activity of a process beside the learner, with its words."""

    words: str

    def __new__(cls, number: int, words: str = "") -> Phase:
        """Make a member; Phase(number) finds one."""
        phase = int.__new__(cls, number)
        phase._value_, phase.words = number, words
        return phase

    STARTING = 0, "starting its interpreter"  # nothing has been heard of it
    BUILDING = 1, "building environments and model"
    WAITING = 2, "waiting for a free slot"
    ACTING = 3, "choosing actions"
    ASKING = 4, "waiting for the inference server"
    STEPPING = 5, "stepping environments"
    SENDING = 6, "handing over a block"
    CLOSING = 7, "closing environments"
    IDLE = 8, "waiting for questions"
    ANSWERING = 9, "answering questions"
    RESTING = 10, "waiting for the next evaluation"
    PLAYING = 11, "playing games that evaluate the agent"
    JOINING = 12, "starting or joining a cluster"
    GATHERING = 13, "waiting for its workers"


@dataclass(frozen=True)
class Beat:
    """What was read at one moment."""

    phase: Phase
    since: float  # time.monotonic, which all processes of a machine share
    count: int  # grows with every sign of life


class Pulse(InSharedMemory):
    """The numbers of one process. Written by that process, read by the one that made it.

    Each number is written at once, but not the three together: a reader may see the new phase with
    the time of the one before.
    """

    _VIEWS = ("_cells",)

    def __init__(self) -> None:
        """Allocate it; the phase is STARTING."""
        super().__init__(CELLS * 8, "pulse")
        self.restart()

    def _map(self, memory: NDArray[np.uint8]) -> None:
        # Numbers of a memoryview are written several times as fast as those of an array.
        self._cells = memory.data.cast("d")

    def beat(self, phase: Phase) -> None:
        """Write that this process lives, and its activity from now on."""
        cells = self._cells
        if cells[PHASE] != phase:
            cells[SINCE] = time.monotonic()
            cells[PHASE] = phase
        cells[BEATS] += 1

    def read(self) -> Beat:
        """Return the present activity."""
        cells = self._cells
        return Beat(Phase(int(cells[PHASE])), cells[SINCE], int(cells[BEATS]))

    def restart(self) -> None:
        """Be ready for the next process; the one before is dead. For the process that made it."""
        self._cells[BEATS] = 0
        self._cells[SINCE] = time.monotonic()
        self._cells[PHASE] = Phase.STARTING


def no_beat(phase: Phase) -> None:
    """Stand in for `Pulse.beat` where nobody watches."""


@dataclass(frozen=True)
class LifelineEnd:
    """The side of the process that is watched. Travels as an argument of its `Process`."""

    pulse: Pulse
    family: Family
    mouth: Connection  # through which its stack comes

    def hold(self) -> None:
        """Set up this process: the first thing that it does.

        It becomes the head of a family (core/process_death.py), which the learner's warden ends
        with the learner, and gets the handlers that write its stack.
        """
        self.family.found()
        file = self.mouth.fileno()
        os.set_blocking(file, False)  # rather lose the end of a stack than wait for a reader
        os.set_inheritable(file, False)
        faulthandler.enable(file)
        faulthandler.register(STACK_SIGNAL, file, all_threads=True, chain=False)
        self.pulse.beat(Phase.BUILDING)  # from now on it can be asked

    def close(self) -> None:
        """Close this process's copy. The parent does it right after `process.start()`."""
        self.mouth.close()


class Lifeline:
    """The learner's side: one pulse, kept for good, and one pipe and family for each process.

    Not thread-safe, but for `pulse.read`.
    """

    def __init__(self) -> None:
        """Allocate the pulse; `open` makes the first pipe."""
        self.pulse = Pulse()
        self.family = Family()
        self._ear: Connection | None = None
        self._heard = b""

    def open(self) -> LifelineEnd:
        """Make pulse, pipe and family ready for a new process; the one before is dead."""
        self.close()
        self.family, self._heard = Family(), b""
        self.pulse.restart()
        self._ear, mouth = multiprocessing.Pipe(duplex=False)
        os.set_blocking(self._ear.fileno(), False)
        return LifelineEnd(self.pulse, self.family, mouth)

    def ask_for_stack(self, pid: int) -> bool:
        """Ask the process for its stack; return whether one may come. It takes a moment."""
        if self.pulse.read().phase == Phase.STARTING:
            return False  # it has no handler yet: the signal would end it without a word
        with contextlib.suppress(OSError):
            os.kill(pid, STACK_SIGNAL)
            return True
        return False

    def stack(self) -> str:
        """Return what the process's fault handler has written so far; empty if nothing."""
        if self._ear is not None:
            with contextlib.suppress(OSError):
                while chunk := os.read(self._ear.fileno(), 65536):
                    self._heard = (self._heard + chunk)[:MAX_STACK_BYTES]
        return self._heard.decode(errors="replace").strip()

    def forget_stack(self) -> None:
        """Drop what was written: the process goes on."""
        self.stack()
        self._heard = b""

    def close(self) -> None:
        """Close the pipe. Idempotent."""
        if self._ear is not None:
            self._ear.close()
            self._ear = None
