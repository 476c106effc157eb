"""Shared memory without names.

A `SharedBlock` is a piece of memory that several processes map at once. It is backed by a file that
never has a name: `memfd` on Linux, a temporary file deleted at birth elsewhere. A child process
gets it by inheriting the open file when it is spawned. The kernel frees it when the last process
closes it, so nothing is left behind, even if every process is killed.

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
from collections.abc import Callable
from multiprocessing import context, reduction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ritornello.core.errors import ConfigError, TransportError
from ritornello.transport.cgroups import container_free_bytes, lines_of

PAGE_BYTES = 4096  # blocks begin on a page of their own, so two of them never share a cache line


class SharedBlock:
    """`nbytes` of zeroed memory, mapped by every process that received this object.

    It can be pickled only while a child process is being spawned (as an argument of `Process`).
    Not synchronised: the ring and the weight board say who may write where and when.
    """

    def __init__(self, nbytes: int, purpose: str) -> None:
        """Reserve the memory now, so that a lack of it is an error here and not a crash later.

        Args:
          nbytes: size in bytes, at least 1.
          purpose: what it is for, one word; shown in messages and in /proc/<pid>/maps.

        Raises:
          TransportError: if the memory cannot be had.
        """
        self.nbytes = nbytes
        self.purpose = purpose
        try:
            # Asking the kernel for more than there is would not fail: it would begin to kill.
            if nbytes > free_shared_memory_bytes():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._file = _open_nameless_file(nbytes, purpose)
            self._mapping = mmap.mmap(self._file, nbytes)
        except OSError as error:
            raise TransportError(
                f"cannot allocate {nbytes / 1e6:.1f} MB of shared memory ({purpose}) in "
                f"{_place()}: {error.strerror}. Use fewer workers, environments or slots."
            ) from error

    @property
    def array(self) -> NDArray[np.uint8]:
        """All bytes `[nbytes]` uint8, writable. The memory stays mapped while a view lives."""
        return np.frombuffer(self._mapping, np.uint8)

    def close(self) -> None:
        """Give up the right to hand the block to further children. Idempotent; views stay valid."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        if getattr(self, "_file", -1) >= 0:
            self.close()

    def __reduce__(self) -> tuple[Callable[..., SharedBlock], tuple[Any, ...]]:
        context.assert_spawning(self)
        if self._file < 0:
            raise TransportError(
                f"shared memory ({self.purpose}) cannot be handed to a child: it was closed, or "
                "this process is itself a child. Only the process that made it hands it out."
            )
        return _attach, (reduction.DupFd(self._file), self.nbytes, self.purpose)


class InSharedMemory:
    """What several processes see in one `SharedBlock`.

    Hand it to a child as an argument of its `Process`. It travels without the views of the memory
    (`_VIEWS`), which `_map` makes again over the child's own mapping. Nothing needs unlinking.
    """

    _VIEWS: ClassVar[tuple[str, ...]]

    def __init__(self, nbytes: int, purpose: str) -> None:
        """Allocate the memory and map it."""
        self._shared = SharedBlock(nbytes, purpose)
        self._map()

    def _map(self) -> None:
        """Make the views of `self._shared`."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in self._VIEWS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._map()

    def close(self) -> None:
        """Hand it to no further process. The memory goes with the last view of it."""
        self._shared.close()


def _attach(inherited: Any, nbytes: int, purpose: str) -> SharedBlock:
    """Map in a child what the parent made (unpickling)."""
    block = SharedBlock.__new__(SharedBlock)
    block.nbytes, block.purpose, block._file = nbytes, purpose, -1
    file = inherited.detach()
    block._mapping = mmap.mmap(file, nbytes)
    os.close(file)  # the mapping keeps its own reference
    return block


def _has_memfd() -> bool:
    """Whether the kernel (and the sandbox around us) allows anonymous files."""
    if sys.platform != "linux":
        return False
    try:
        os.close(os.memfd_create("vtrace_probe"))
    except OSError:
        return False
    return True


def _directory() -> str:
    """Where nameless temporary files go when there is no memfd: memory before disk."""
    return "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()


def _place() -> str:
    return "memory" if _has_memfd() else _directory()


def _open_nameless_file(nbytes: int, purpose: str) -> int:
    """Return a descriptor of a file of `nbytes` zeros that no directory lists."""
    if sys.platform == "linux" and _has_memfd():
        file = os.memfd_create(f"vtrace_{purpose}")
    else:
        with tempfile.TemporaryFile(prefix="vtrace_", dir=_directory()) as temporary:
            file = os.dup(temporary.fileno())
    try:
        os.ftruncate(file, nbytes)
        if sys.platform == "linux":
            # A file with holes would be killed by SIGBUS when the mount fills up while we write.
            os.posix_fallocate(file, 0, nbytes)
    except OSError:
        os.close(file)
        raise
    return file


def free_shared_memory_bytes() -> int:
    """Return how many bytes can still be shared: free memory within this container's limit."""
    if not _has_memfd():
        return shutil.disk_usage(_directory()).free
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in lines_of(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    container = container_free_bytes()
    if container is not None:
        free = min(free, container)
    return max(0, free)


def check_shared_memory(nbytes: int) -> None:
    """Raise ConfigError if `nbytes` of shared memory cannot be had; call before allocating.

    Args:
      nbytes: the sum of all blocks that are going to be made.
    """
    free = free_shared_memory_bytes()
    if nbytes <= free:
        return
    message = (
        f"rings and weights = {nbytes / 1e6:.0f} MB of shared memory do not fit: "
        f"{free / 1e6:.0f} MB are free in {_place()}."
    )
    if not _has_memfd() and _directory() == "/dev/shm":
        message += f" In Docker start with --shm-size={nbytes * 5 // 4 // 2**20 + 1}m."
    raise ConfigError(f"{message} Use fewer workers, environments or slots.")


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
