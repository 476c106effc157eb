import gc
import os
import sys

import pytest

from ritornello.core.errors import ConfigError, TransportError
from ritornello.transport import shared
from ritornello.transport.shared import (
    SharedBlock,
    check_shared_memory,
    free_shared_memory_bytes,
)

LINUX = sys.platform == "linux"


@pytest.fixture(params=["memfd", "temporary file"])
def place(request, monkeypatch, tmp_path):
    """Both kinds of nameless memory; the second is what macOS has."""
    if request.param == "memfd" and not LINUX:
        pytest.skip("memfd is a thing of Linux")
    if request.param == "temporary file":
        monkeypatch.setattr(shared, "_has_memfd", lambda: False)
        monkeypatch.setattr(shared, "_directory", lambda: str(tmp_path))
    return tmp_path


def test_a_block_is_zeroed_writable_and_nameless(place):
    block = SharedBlock(10_000, "test")
    assert block.array.shape == (10_000,)
    assert not block.array.any()
    block.array[5] = 7
    assert block.array[5] == 7
    assert list(place.iterdir()) == []


def test_views_stay_valid_after_close(place):
    block = SharedBlock(10_000, "test")
    view = block.array[100:200]
    view[...] = 3
    block.close()
    block.close()
    del block
    assert (view == 3).all()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_memory_and_descriptors_are_given_back_without_close(place):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        SharedBlock(10_000, "test").array[...] = 1
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before  # a thread of an earlier test may end now


def test_too_much_memory_is_an_error_that_names_the_amount(monkeypatch):
    monkeypatch.setattr(shared, "free_shared_memory_bytes", lambda: 999)
    monkeypatch.setattr(shared, "_open_nameless_file", None)  # must not even be tried
    with pytest.raises(TransportError, match=r"cannot allocate 5\.0 MB of shared memory \(ring\)"):
        SharedBlock(5_000_000, "ring")


def test_the_check_before_allocation_names_sizes_and_remedy(place):
    check_shared_memory(1000)
    assert free_shared_memory_bytes() > 1000
    with pytest.raises(ConfigError, match=r"= 1000000000 MB .* MB are free in .*Use fewer workers"):
        check_shared_memory(10**15)


def test_in_a_container_without_memfd_the_message_names_shm_size(monkeypatch):
    monkeypatch.setattr(shared, "_has_memfd", lambda: False)
    monkeypatch.setattr(shared, "_directory", lambda: "/dev/shm")
    monkeypatch.setattr(shared, "free_shared_memory_bytes", lambda: 64 << 20)
    with pytest.raises(ConfigError, match=r"67 MB are free in /dev/shm\. .*--shm-size=1193m"):
        check_shared_memory(1000 * 10**6)
