"""Pulse: the present activity of a process and its start, for another process to read.

At each change of its activity, the process writes three numbers into shared memory. This costs less
than a microsecond, because it makes no system call and takes no lock. The watching process reads
the numbers. They stop changing if the process is stopped, hangs, or has died, for whatever reason.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ritornello.transport.shared import SharedBlock

CELLS = 3  # phase, time at which it began, beats since the start of the process
PHASE, SINCE, BEATS = range(CELLS)


class Phase(IntEnum):
    """What a worker, an inference server or the process that evaluates does."""

    STARTING = 0  # nothing has been heard of it
    BUILDING = 1
    WAITING = 2
    ACTING = 3
    ASKING = 4
    STEPPING = 5
    SENDING = 6
    CLOSING = 7
    IDLE = 8
    ANSWERING = 9
    RESTING = 10
    PLAYING = 11


WORDS = {
    Phase.STARTING: "starting its interpreter",
    Phase.BUILDING: "building environments and model",
    Phase.WAITING: "waiting for a free slot",
    Phase.ACTING: "choosing actions",
    Phase.ASKING: "waiting for the inference server",
    Phase.STEPPING: "stepping environments",
    Phase.SENDING: "handing over a block",
    Phase.CLOSING: "closing environments",
    Phase.IDLE: "waiting for questions",
    Phase.ANSWERING: "answering questions",
    Phase.RESTING: "waiting for the next evaluation",
    Phase.PLAYING: "playing games that evaluate the agent",
}


@dataclass(frozen=True)
class Beat:
    """What was read at one moment."""

    phase: Phase
    since: float  # time.monotonic, which all processes of a machine share
    count: int  # grows with every sign of life


class Pulse:
    """The numbers of one process. Written by that process, read by the one that made it.

    Each number is written at once, the three of them are not: a reader may see the phase of this
    moment with the time of the one before.
    """

    def __init__(self) -> None:
        """Allocate it; the phase is STARTING."""
        self._shared = SharedBlock(CELLS * 8, "pulse")
        self._map()
        self.restart()

    def _map(self) -> None:
        # Numbers of a memoryview are written several times as fast as those of an array.
        self._cells = self._shared.array.data.cast("d")

    def __getstate__(self) -> dict[str, Any]:
        """Travel to a child without the view: it is made again over its own mapping."""
        return {"_shared": self._shared}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._map()

    def beat(self, phase: Phase) -> None:
        """Say that this process lives, and what it does from now on."""
        cells = self._cells
        if cells[PHASE] != phase:
            cells[SINCE] = time.monotonic()
            cells[PHASE] = phase
        cells[BEATS] += 1

    def read(self) -> Beat:
        """Return what it does now."""
        cells = self._cells
        return Beat(Phase(int(cells[PHASE])), cells[SINCE], int(cells[BEATS]))

    def restart(self) -> None:
        """Be ready for the next process; the one before is dead. For the process that made it."""
        self._cells[BEATS] = 0
        self._cells[SINCE] = time.monotonic()
        self._cells[PHASE] = Phase.STARTING

    def close(self) -> None:
        """Hand it to no further process. The memory goes with the last view of it."""
        self._shared.close()


def no_beat(phase: Phase) -> None:
    """Stand in for `Pulse.beat` where nobody watches."""
