import errno
import gc
import os

import pytest

from ritornello.core.errors import ConfigError, TransportError
from ritornello.transport import shared
from ritornello.transport.shared import (
    InSharedMemory,
    check_shared_memory,
    free_shared_memory_bytes,
)


class Bytes(InSharedMemory):
    _VIEWS = ("array",)

    def _map(self, memory):
        self.array = memory


@pytest.fixture(params=["here", "elsewhere"])
def place(request, monkeypatch, tmp_path):
    """Both kinds of nameless memory; the second is what macOS has."""
    if request.param == "elsewhere":
        monkeypatch.setattr(shared, "sys", type("Sys", (), {"platform": "darwin"}))
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_block_is_zeroed_writable_and_nameless_and_its_views_outlive_it(place):
    block = Bytes(10_000, "test")
    view = block.array[100:200]
    assert block.array.shape == (10_000,)
    assert not block.array.any()
    assert list(place.iterdir()) == []
    block.close()
    block.close()
    del block
    view[...] = 3
    assert (view == 3).all()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_memory_and_descriptors_are_given_back_without_close(place):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        Bytes(10_000, "test").array[...] = 1
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before  # a thread of an earlier test may end now


def test_too_much_memory_is_an_error_that_names_the_amount(monkeypatch):
    monkeypatch.setattr(shared, "free_shared_memory_bytes", lambda: 999)
    monkeypatch.setattr(shared, "_open_nameless_file", None)  # must not even be tried
    with pytest.raises(TransportError, match=r"cannot allocate 5\.0 MB of shared memory \(ring\)"):
        Bytes(5_000_000, "ring")


def test_memory_that_cannot_be_mapped_is_the_same_error(monkeypatch):
    """As within a limit of address space (ulimit -v)."""

    def refuse(*_):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(shared.mmap, "mmap", refuse)
    with pytest.raises(TransportError, match=r"0\.0 MB .*: Cannot allocate memory\. Use fewer"):
        Bytes(5000, "ring")


def test_the_check_before_allocation_names_sizes_and_remedy(place):
    check_shared_memory(1000)
    assert free_shared_memory_bytes() > 1000
    with pytest.raises(ConfigError, match=r"= 1000000000 MB .* MB are free\. Use fewer workers"):
        check_shared_memory(10**15)
