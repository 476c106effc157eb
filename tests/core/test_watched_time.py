from __future__ import annotations

import pytest

from ritornello.core.watched_time import MAX_GAP_S, WatchedTime


class Clock:
    """Goes when it is told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_it_goes_with_its_clock_while_somebody_looks() -> None:
    clock = Clock()
    watched = WatchedTime(clock)
    began = watched()
    for _ in range(100):
        clock.now += 0.25
        watched()
    assert watched() - began == pytest.approx(25.0)


def test_a_gap_between_two_looks_counts_for_little_however_long_it_was() -> None:
    clock = Clock()
    watched = WatchedTime(clock)
    began = watched()
    clock.now += 86_400.0
    assert watched() - began == MAX_GAP_S
    clock.now += 1.0
    assert watched() - began == MAX_GAP_S + 1.0


def test_what_has_passed_is_told_once_and_asking_for_the_gap_is_no_look() -> None:
    clock = Clock()
    watched = WatchedTime(clock, max_gap_s=2.0)
    clock.now += 1.5
    assert watched.since_look_s == 1.5
    assert watched.passed() == 1.5
    assert watched.passed() == 0.0
    clock.now += 10.0
    assert watched.since_look_s == 10.0
    assert watched.passed() == 2.0
