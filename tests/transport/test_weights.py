import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ritornello.core.errors import TransportError
from ritornello.transport.weights import WeightBoard

NBYTES = 100


def buffer():
    return np.full(NBYTES, 255, np.uint8)


@given(st.lists(st.booleans(), max_size=30))
def test_a_reader_gets_the_newest_version_and_only_once(writes):
    board, into, has, newest = WeightBoard(NBYTES), buffer(), -1, -1
    for write in writes:
        if write:
            newest += 2
            with board.write(newest) as half:
                half[...] = newest
            assert board.version == newest
        else:
            expected = newest if newest > has else None
            assert board.read_if_newer(has, into) == expected
            has = max(has, newest)
            if has >= 0:
                assert (into == has).all()


class Overtaking(np.ndarray):
    """A reader's memory in which the writer publishes in the middle of each of the first copies."""

    def __setitem__(self, key, value):
        self.base[: NBYTES // 2] = value[: NBYTES // 2]
        while self.plan:
            version = self.plan.pop(0)
            if version is None:
                break
            with self.board.write(version) as half:
                half[...] = version % 256
        self.base[NBYTES // 2 :] = value[NBYTES // 2 :]


@pytest.mark.parametrize(
    ("plan", "got"),
    [
        ([2, None], 1),  # one flip: the other half was written, the copy is whole
        ([2, 3, None], 3),  # two flips: our half was overwritten, read again
        ([2, 3, 4, None, 5, 6, None], 6),  # and again
    ],
)
def test_a_reader_that_is_overtaken_reads_again(plan, got):
    board, into = WeightBoard(NBYTES), buffer()
    with board.write(1) as half:
        half[...] = 1
    slow = into.view(Overtaking)
    slow.board, slow.plan = board, list(plan)
    assert board.read_if_newer(-1, slow) == got
    assert (into == got).all()


def test_a_reader_that_is_always_overtaken_says_so():
    board, into = WeightBoard(NBYTES), buffer()
    with board.write(1) as half:
        half[...] = 1
    slow = into.view(Overtaking)
    slow.board, slow.plan = board, [v for n in range(2, 4002, 2) for v in (n, n + 1, None)]
    with pytest.raises(TransportError, match="weights changed during each of 1000 attempts"):
        board.read_if_newer(-1, slow)


def test_versions_only_grow_and_a_failed_write_publishes_nothing():
    board = WeightBoard(NBYTES)
    with board.write(3):
        pass
    for version in (3, 2):
        with (
            pytest.raises(TransportError, match=f"version {version} cannot follow version 3"),
            board.write(version),
        ):
            pass
    with pytest.raises(ZeroDivisionError), board.write(4):
        raise ZeroDivisionError
    assert board.version == 3
