"""WeightBoard: the newest weights, in shared memory, for every worker to copy when it likes.

Two halves: the learner writes the idle one and flips, so a reader always finds a complete set and
never makes the learner wait. A reader copies at its next unroll boundary; if the learner comes
round to the same half during the copy, the reader notices and copies again.

Bytes only: agent/ decides how parameters are laid out in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from ritornello.core.errors import TransportError
from ritornello.transport.shared import PAGE_BYTES, InSharedMemory, memory_fence, whole_pages

NO_VERSION = -1  # what a board shows before the first version
MAX_ATTEMPTS = 1000  # a reader overtaken this often is far slower than the learner's updates

# Cells of the header, int64 each. Publication n (1, 2, ...) lies in half n % 2.
BEGUN, DONE, VERSIONS = 0, 1, slice(2, 4)


class WeightBoard(InSharedMemory):
    """One writer (the process that made it), any number of readers, no locks.

    Hand it to children as an argument of their `Process`, to be read there. A reader that dies
    disturbs nobody; if the writer dies while writing, the last complete set stays readable.
    """

    _VIEWS = ("_header", "_halves")

    def __init__(self, nbytes: int) -> None:
        """Allocate a board for weights of `nbytes`; nothing is published yet."""
        self.nbytes = nbytes
        super().__init__(self.nbytes_needed(nbytes), "weights")
        self._header[VERSIONS] = NO_VERSION

    @staticmethod
    def nbytes_needed(nbytes: int) -> int:
        """Return the shared memory that such a board takes, for `check_shared_memory`."""
        return PAGE_BYTES + 2 * whole_pages(nbytes)

    def _map(self, memory: NDArray[np.uint8]) -> None:
        half = whole_pages(self.nbytes)
        self._header = memory[:32].view(np.int64)
        first, second = PAGE_BYTES, PAGE_BYTES + half
        self._halves = (
            memory[first : first + self.nbytes],
            memory[second : second + self.nbytes],
        )

    @property
    def version(self) -> int:
        """The newest complete version, or -1 before the first."""
        return int(self._header[VERSIONS][self._header[DONE] % 2])

    @contextmanager
    def write(self, version: int) -> Iterator[NDArray[np.uint8]]:
        """Yield the idle half `[nbytes]` uint8, and publish it; an exception publishes nothing.

        Write all of it: its old content is not the last version but the one before. `version` is
        the number of updates in these weights, larger than the last published version.
        """
        if version <= self.version:
            raise TransportError(
                f"version {version} cannot follow version {self.version}: readers only look for "
                "newer ones."
            )
        begun = int(self._header[DONE]) + 1
        self._header[BEGUN] = begun  # from here on, readers of this half know they were overtaken
        memory_fence()
        yield self._halves[begun % 2]
        self._header[VERSIONS][begun % 2] = version
        memory_fence()
        self._header[DONE] = begun

    def read_if_newer(self, than: int, into: NDArray[np.uint8]) -> int | None:
        """Copy the newest weights to `into`, [nbytes] uint8, if their version is above `than`.

        A reader without weights gives -1. Return the version that was copied, or None.
        """
        for _ in range(MAX_ATTEMPTS):
            done = int(self._header[DONE])
            memory_fence()
            version = int(self._header[VERSIONS][done % 2])
            if version <= than:
                return None
            into[...] = self._halves[done % 2]
            memory_fence()
            # One write during the copy is harmless: it went to the other half. Publication
            # done + 2 comes back to ours, and its writing must not have begun.
            if int(self._header[BEGUN]) <= done + 1:
                return version
        raise TransportError(
            f"the weights changed during each of {MAX_ATTEMPTS} attempts to copy them: this "
            "process is starved, or weights are published too often."
        )
