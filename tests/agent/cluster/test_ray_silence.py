"""For how long the head of a cluster may say nothing: without Ray, and without waiting."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ritornello.agent.cluster.engine import EngineLost
from ritornello.agent.cluster.ray_engine import HEAD_S, LOOK_S, RayEngine, RaySettings
from ritornello.core.watched_time import WatchedTime
from tests.agent.cluster.players import Clock


class Once:
    """Lets a thread's loop go round once."""

    def __init__(self):
        self.answers = [False, True]

    def wait(self, timeout_s):
        return self.answers.pop(0)


class Driver(RayEngine):
    """What an engine is after its start, with a head that answers or does not."""

    def __init__(self):
        self.time = Clock()
        self._settings = RaySettings("192.0.2.1:6379", 1, 1)
        self._watched = WatchedTime(self.time)
        self._nodes, self._nodes_at, self._watch_failure = [], self._watched(), ""

    def ask_head(self, answer):
        self._ray, self._closed = SimpleNamespace(nodes=answer), Once()
        self._watch()

    def look_for(self, seconds):
        for _ in range(round(seconds / LOOK_S)):
            self.time.now += LOOK_S
            self.nodes()


def no_answer():
    raise ConnectionError("the head is gone\nand more")


def one_machine():
    return [{"Alive": True, "Resources": {"CPU": 3.0}, "NodeID": "a", "NodeManagerAddress": "b"}]


def test_a_head_that_says_nothing_while_somebody_looks_ends_the_gateway():
    driver = Driver()
    driver.ask_head(no_answer)
    driver.look_for(HEAD_S)
    with pytest.raises(EngineLost, match="has not answered for 22 s. Ray says: the head is gone$"):
        driver.look_for(LOOK_S)


def test_a_head_that_answers_is_there():
    driver = Driver()
    for _ in range(3):
        driver.look_for(HEAD_S)
        driver.ask_head(one_machine)
    driver.look_for(HEAD_S)
    assert [node.worker_limit for node in driver.nodes()] == [3]


@pytest.mark.parametrize("gap_s", [HEAD_S + 1.0, 3600.0])
def test_a_gateway_that_was_stopped_does_not_take_its_absence_for_silence_of_the_head(gap_s):
    driver = Driver()
    driver.time.now += gap_s
    driver.look_for(HEAD_S / 2)
    driver.ask_head(one_machine)
    driver.look_for(HEAD_S)
