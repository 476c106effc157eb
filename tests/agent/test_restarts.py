import pytest

from ritornello.agent.pools.restarts import WINDOW_S, RestartLimit, failure_of

FAILURE = """Traceback (most recent call last):
  File "agent/acting/worker.py", line 170, in worker_main
    report = body.collect(block)
             ^^^^^^^^^^^^^^^^^^^
  File "my_env.py", line {line}, in step
    raise ValueError("x")
{kind}: something about {number}
and a second line of the message
"""


def failure(line=12, kind="ValueError", number=3):
    return failure_of(FAILURE.format(line=line, kind=kind, number=number))


def test_a_first_death_is_made_good_at_once_and_later_ones_wait_longer_and_longer():
    limit = RestartLimit(max_per_hour=100, process_count=2)
    delays = [limit.book_death("worker 0", f"cause {n}", float(n)).delay_s for n in range(9)]
    assert delays == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert limit.book_death("worker 1", "cause", 9.0).delay_s == 0  # that is another's trouble


def test_more_deaths_within_an_hour_than_allowed_end_the_run():
    limit = RestartLimit(max_per_hour=3, process_count=9)
    for second in range(3):
        verdict = limit.book_death(f"worker {second}", f"cause {second}", float(second))
        assert verdict.reason_to_give_up == ""
        assert verdict.recent == second + 1
    reason = limit.book_death("inference server", "another", 3.0).reason_to_give_up
    assert "3 times within the last hour" in reason
    assert "--max_worker_restarts" in reason


def test_deaths_are_forgiven_after_an_hour():
    limit = RestartLimit(max_per_hour=3, process_count=9)
    for month in range(1000):
        verdict = limit.book_death("worker 0", f"cause {month}", month * WINDOW_S / 3)
        assert verdict.reason_to_give_up == ""
        assert verdict.delay_s <= 2
    alone = limit.book_death("worker 0", "cause", 1e9)
    assert (alone.recent, alone.delay_s) == (1, 0)


@pytest.mark.parametrize(("processes", "allowed"), [(1, 2), (2, 2), (3, 3), (16, 16)])
def test_the_same_failure_everywhere_and_no_unroll_in_between_ends_the_run_soon(processes, allowed):
    limit = RestartLimit(max_per_hour=100, process_count=processes)
    for n in range(allowed):
        reason = limit.book_death(f"worker {n % processes}", failure(number=n), 0.0)
        assert reason.reason_to_give_up == "", n
    reason = limit.book_death("worker 0", failure(), 1.0).reason_to_give_up
    assert f"The same failure came {allowed + 1} times in a row" in reason


def test_an_unroll_or_another_failure_in_between_shows_that_not_everything_fails():
    limit = RestartLimit(max_per_hour=100, process_count=1)
    for n in range(30):
        if n % 2 == 0:
            limit.book_progress()
        assert limit.book_death("worker 0", failure(), float(n)).reason_to_give_up == ""
    limit.book_progress()
    for n in range(30):
        other = failure(line=n % 2)
        assert limit.book_death("worker 0", other, 100.0).reason_to_give_up == ""


def test_a_failure_is_known_by_its_place_and_kind_and_not_by_its_message():
    assert failure(number=1) == failure(number=2)
    assert failure(line=1) != failure(line=2)
    assert failure(kind="ValueError") != failure(kind="KeyError")
    assert failure_of("") == failure_of("") != failure()
