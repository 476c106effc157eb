"""The head of a cluster that says nothing, as the gateway sees it; Ray is not loaded."""

from __future__ import annotations

import pytest

from agent.cluster.engine import EngineLost
from agent.cluster.ray_engine import HEAD_S, RayEngine, RaySettings
from core.watched_time import WatchedTime
from tests.agent.cluster.players import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(clock: Clock) -> RayEngine:
    """An engine whose head has just answered."""
    made = object.__new__(RayEngine)
    made._settings = RaySettings("head:6379", 1, 1)
    made._nodes, made._watch_failure = [], ""
    made._watched = WatchedTime(clock)
    made._nodes_at = made._watched()
    return made


def test_a_gateway_that_was_stopped_does_not_take_the_head_for_gone(
    engine: RayEngine, clock: Clock
) -> None:
    clock.now += 10 * HEAD_S
    assert engine.nodes() == []


def test_a_head_that_does_not_answer_those_who_ask_is_gone(engine: RayEngine, clock: Clock) -> None:
    for _ in range(round(HEAD_S)):
        clock.now += 1.0
        engine.nodes()
    clock.now += 1.0
    with pytest.raises(EngineLost, match="the head of the Ray cluster at head:6379 has not answer"):
        engine.nodes()
