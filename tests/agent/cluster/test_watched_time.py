"""The clock of silences: what happens while nobody looks counts for little."""

from __future__ import annotations

import pytest

from agent.cluster.engine import EngineLost
from agent.cluster.ray_engine import HEAD_S, RayEngine, RaySettings
from agent.cluster.watched_time import MAX_GAP_S, WatchedTime
from tests.agent.cluster.players import Clock


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


@pytest.fixture
def engine() -> RayEngine:
    """An engine whose head has just answered; Ray is not loaded."""
    made = object.__new__(RayEngine)
    made._settings = RaySettings("head:6379", 1, 1)
    made._nodes, made._watch_failure = [], ""
    made._watched = WatchedTime(Clock())
    made._nodes_at = made._watched()
    return made


def test_a_gateway_that_was_stopped_does_not_take_the_head_for_gone(engine: RayEngine) -> None:
    engine._watched._clock.now += 10 * HEAD_S  # type: ignore[attr-defined]
    assert engine.nodes() == []


def test_a_head_that_does_not_answer_those_who_ask_is_gone(engine: RayEngine) -> None:
    for _ in range(round(HEAD_S)):
        engine._watched._clock.now += 1.0  # type: ignore[attr-defined]
        engine.nodes()
    engine._watched._clock.now += 1.0  # type: ignore[attr-defined]
    with pytest.raises(EngineLost, match="the head of the Ray cluster at head:6379 has not answer"):
        engine.nodes()
