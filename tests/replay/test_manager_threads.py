"""The manager under real threads. Each test ends by counting, never by sleeping."""

import threading
import time

import pytest

from ritornello.core.errors import Closed
from tests.deadlines import HANGS_S
from tests.replay.builders import (
    check_valid,
    context,
    elite,
    evaluate_as_stored,
    make_manager,
    make_record,
    queue,
    seq_of,
    standard,
)


def run_all(*functions):
    """Run functions in threads to their end; raise what any of them raised."""
    errors = []

    def guarded(function):
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + HANGS_S
    for thread in threads:
        thread.join(max(0, deadline - time.monotonic()))
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if errors:
        raise errors[0]


@pytest.mark.parametrize(
    "kinds", [[queue(3)], [queue(3, 0.5), standard(16, 0.25), elite(16, 0.25)]]
)
def test_no_unroll_is_lost_or_given_twice_between_ingest_and_several_cache_threads(kinds):
    records = [make_record(seq) for seq in range(240)]
    manager = make_manager(kinds, 8)
    per_batch = manager._mixer.wanted[0]
    batches = len(records) // per_batch
    taken, lock = [], threading.Lock()
    left = [batches]

    def ingest():
        for seq, record in enumerate(records):
            while not manager.insert(record, seq, timeout_s=0.01):
                pass

    def cache():
        while True:
            with lock:
                if not left[0]:
                    return
                left[0] -= 1
            while (draws := manager.sample(context(), timeout_s=0.005)) is None:
                pass
            assert len(draws) == 8
            for draw in draws:
                seq = seq_of(draw.record)
                assert draw.record.tobytes() == records[seq].tobytes()
            with lock:
                taken.append([seq_of(draw.record) for draw in draws if draw.is_online])

    run_all(ingest, cache, cache, cache)
    # In order within each batch, and over all batches each unroll exactly once.
    assert all(batch == sorted(batch) for batch in taken)
    assert sorted(seq for batch in taken for seq in batch) == list(range(len(records)))
    for buffer in manager.buffers:
        check_valid(buffer)


def test_scoring_does_not_hold_up_inserts():
    manager = make_manager([queue(40, 0.5), elite(40, 0.5)], 4)
    for seq in range(20):
        manager.insert(make_record(seq), 0, 0)
    inserted = threading.Event()
    scoring = threading.Event()

    def evaluate(records, rows, queries):
        scoring.set()
        assert inserted.wait(HANGS_S), "insert had to wait for the model"
        return evaluate_as_stored(records, rows, queries)

    def insert():
        assert scoring.wait(HANGS_S)
        manager.insert(make_record(20), 0, timeout_s=HANGS_S)
        inserted.set()

    run_all(insert, lambda: manager.sample(context(evaluate=evaluate), 0))


@pytest.mark.parametrize(
    "call",
    [
        lambda manager: manager.insert(make_record(1), 0, timeout_s=HANGS_S),
        lambda manager: manager.sample(context(), timeout_s=HANGS_S),
    ],
    ids=["insert", "sample"],
)
def test_close_wakes_those_who_wait(call):
    manager = make_manager([queue(1, 0.5), standard(1, 0.5)], 4)
    manager.insert(make_record(0), 0, 0)  # the queue is full, the batch needs two of it
    about_to_wait = threading.Event()

    def wait():
        about_to_wait.set()
        with pytest.raises(Closed):
            call(manager)

    def close():
        assert about_to_wait.wait(HANGS_S)
        manager.close()

    started = time.monotonic()
    run_all(wait, close)
    assert time.monotonic() - started < HANGS_S / 2
