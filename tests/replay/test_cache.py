import itertools
import threading

import pytest

from ritornello.core.errors import Closed
from ritornello.replay.cache import BatchCache, next_depth
from tests.deadlines import HANGS_S, wait_until


@pytest.fixture
def build():
    """Builds caches that are closed after the test."""
    built = []

    def build(*args, **kwargs):
        built.append(BatchCache(*args, **kwargs))
        return built[-1]

    yield build
    for cache in built:
        cache.close()


@pytest.mark.parametrize("threads", [1, 3])
def test_never_more_than_depth_batches_are_ready_or_in_the_making(build, threads):
    lock = threading.Lock()
    made, taken, most = [0], [0], [0]
    may_go_on = threading.Semaphore(0)

    def produce():
        with lock:
            made[0] += 1
            most[0] = max(most[0], made[0] - taken[0])
        assert may_go_on.acquire(timeout=HANGS_S)
        return made[0]

    cache = build(produce, 2, threads=threads)
    wait_until(lambda: made[0] == min(2, threads))
    for _ in range(10):
        may_go_on.release()
        with lock:
            taken[0] += 1  # before get(): its thread may be told of the room at once
        assert cache.get(HANGS_S) is not None
    for _ in range(50):
        may_go_on.release()
    wait_until(lambda: made[0] == 12)
    assert most[0] <= 3  # 2, and the one that is counted as taken a moment too early


@pytest.mark.parametrize("depth", [0, 2])
def test_an_error_of_produce_is_raised_by_get_with_its_origin(build, depth):
    def produce_badly():
        raise ZeroDivisionError("in the making")

    cache = build(produce_badly, depth)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="in the making") as raised:
            cache.get(HANGS_S)
        assert "produce_badly" in [entry.name for entry in raised.traceback]


@pytest.mark.parametrize("depth", [0, 3])
def test_after_close_there_are_no_threads_and_get_raises_closed(build, depth):
    before = threading.active_count()
    cache = build(lambda: 1, depth, threads=2)
    assert cache.get(HANGS_S) == 1
    cache.close()
    cache.close()
    assert threading.active_count() == before
    with pytest.raises(Closed):
        cache.get(0)


def test_the_depth_can_be_changed_while_running(build):
    made = itertools.count(1)
    latest = [0]

    def produce():
        latest[0] = next(made)
        return latest[0]

    cache = build(produce, 1)
    wait_until(lambda: latest[0] == 1)
    cache.set_depth(5)
    wait_until(lambda: latest[0] == 5)
    cache.set_depth(2)
    assert cache.depth == 2
    assert [cache.get(HANGS_S) for _ in range(4)] == [1, 2, 3, 4]


def test_stats_tell_whether_the_learner_starves(build):
    slow = threading.Event()
    cache = build(lambda: slow.wait(0.01) or "batch", 1)
    cache.get(HANGS_S)
    starving = cache.stats()
    assert starving["cache/waits"] == 1
    assert starving["cache/wait_s"] > 0
    assert 0 < starving["cache/wait_fraction"] <= 1
    assert starving["cache/fill"] == 0
    assert starving["cache/depth"] == 1

    late = threading.Event()
    patient = build(lambda: late.wait(0.3) or "batch", 1)
    while patient.get(0.02) is None:
        pass
    assert patient.stats()["cache/waits"] == 1, "one wait in several steps"

    fast = build(itertools.count().__next__, 3)
    wait_until(lambda: len(fast._ready) == 3)
    fast.get(HANGS_S)
    assert fast.stats()["cache/fill"] == 3
    assert "cache/fill" not in fast.stats()
    assert fast.stats()["cache/waits"] == 0


@pytest.mark.parametrize(
    ("depth", "wait_fraction", "fill", "age", "expected"),
    [
        (2, 0.10, 1.0, 3, 3),  # waits now and then, though batches are made: deeper
        (2, 0.10, 0.0, 3, 2),  # always empty: production is too slow, depth is no help
        (3, 0.001, 2.9, 3, 2),  # always full: fresher data for nothing
        (3, 0.01, 2.9, 3, 3),  # just right
        (3, 0.001, 1.5, 3, 3),  # not full: do not take away what evens things out
        (3, 0.10, 1.5, 99, 2),  # too old comes first
    ],
)
def test_the_depth_is_as_small_as_keeps_the_learner_busy(depth, wait_fraction, fill, age, expected):
    assert next_depth(depth, wait_fraction, fill, age) == expected
