"""Shared memory without names.

Several processes map a piece of memory at once. It is backed by a file that never has a name:
`memfd` on Linux, a temporary file deleted at birth elsewhere. A child process gets it by inheriting
the open file when it is spawned. The kernel frees it when the last process closes it, so nothing is
left behind, even if every process is killed.

`multiprocessing.shared_memory` has three disadvantages. Its blocks have names, so some process must
unlink them. Before Python 3.13, the resource tracker of a child also deletes blocks to which the
child is only attached. And the blocks live in /dev/shm, of which a Docker container has 64 MB.

Next to read: transport/ring.py, transport/weights.py and transport/mailbox.py, which use it.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import sys
import tempfile
import threading
from multiprocessing import context, reduction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ritornello.core.errors import ConfigError, TransportError
from ritornello.transport.cgroups import container_free_bytes, lines_of

PAGE_BYTES = 4096  # blocks begin on a page of their own, so two of them never share a cache line


class InSharedMemory:
    """What several processes see in one block of zeroed memory.

    Hand it to a child as an argument of its `Process`; it can be pickled only while one is spawned.
    It travels without the views of the memory (`_VIEWS`), which `_map` makes again over the child's
    own mapping. Not synchronised: subclasses say who may write where and when.
    """

    _VIEWS: ClassVar[tuple[str, ...]]

    def __init__(self, nbytes: int, purpose: str) -> None:
        """Reserve `nbytes` now, so that a lack of memory is an error here and not a crash later.

        `purpose` is one word, shown in messages and in /proc/<pid>/maps.

        Raises:
          TransportError: if there is not enough memory.
        """
        self._purpose = purpose
        try:
            # Asking the kernel for more than there is would not fail: it would begin to kill.
            if nbytes > free_shared_memory_bytes():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._file = _open_nameless_file(nbytes, purpose)
            memory = self._memory()
        except OSError as error:
            raise TransportError(
                f"cannot allocate {nbytes / 1e6:.1f} MB of shared memory ({purpose}): "
                f"{error.strerror}. Use fewer workers, environments or slots."
            ) from error
        self._map(memory)

    def _memory(self) -> NDArray[np.uint8]:
        """Return all bytes `[nbytes]` uint8, writable. They stay mapped while a view lives."""
        return np.frombuffer(mmap.mmap(self._file, 0), np.uint8)

    def _map(self, memory: NDArray[np.uint8]) -> None:
        """Make the views of the memory."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        context.assert_spawning(self)
        if self._file < 0:
            raise TransportError(
                f"shared memory ({self._purpose}) cannot be handed to a child: it was closed, or "
                "this process is itself a child. Only the process that made it hands it out."
            )
        state = {name: value for name, value in vars(self).items() if name not in self._VIEWS}
        return {**state, "_file": reduction.DupFd(self._file)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._file = state["_file"].detach()
        self._map(self._memory())
        self.close()  # the mapping keeps its own reference

    def close(self) -> None:
        """Give up the memory: no further process may get it, and it is freed with the last view."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        if isinstance(getattr(self, "_file", None), int):
            self.close()


def _open_nameless_file(nbytes: int, purpose: str) -> int:
    """Return a descriptor of a file of `nbytes` zeros that no directory lists."""
    if sys.platform == "linux":
        file = os.memfd_create(f"vtrace_{purpose}")
    else:
        with tempfile.TemporaryFile(prefix="vtrace_") as temporary:
            file = os.dup(temporary.fileno())
    try:
        os.ftruncate(file, nbytes)
        if sys.platform == "linux":
            # A file with holes would be killed by SIGBUS when memory runs out while we write.
            os.posix_fallocate(file, 0, nbytes)
    except OSError:
        os.close(file)
        raise
    return file


def free_shared_memory_bytes() -> int:
    """Return how many bytes can still be shared: free memory within this container's limit."""
    if sys.platform != "linux":
        return shutil.disk_usage(tempfile.gettempdir()).free
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in lines_of(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    container = container_free_bytes()
    return free if container is None else min(free, container)


def check_shared_memory(nbytes: int) -> None:
    """Raise ConfigError if `nbytes` of shared memory, the sum of all blocks, cannot be had."""
    free = free_shared_memory_bytes()
    if nbytes <= free:
        return
    raise ConfigError(
        f"rings and weights = {nbytes / 1e6:.0f} MB of shared memory do not fit: "
        f"{free / 1e6:.0f} MB are free. Use fewer workers, environments or slots."
    )


def whole_pages(nbytes: int) -> int:
    """Round a size up to whole pages."""
    return -(-nbytes // PAGE_BYTES) * PAGE_BYTES


def memory_fence() -> None:
    """Make all earlier writes of this thread visible to other processes before all later ones.

    x86 keeps that order by itself, Apple silicon does not. Python has no fence, but a lock must be
    one: nothing moves out of the first pair upwards or out of the second pair downwards.
    """
    for _ in range(2):
        with threading.Lock():
            pass
