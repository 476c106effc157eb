"""The speed of a run by its records."""

from __future__ import annotations

import pytest

from ritornello.metrics.record import Record
from ritornello.metrics.speed import Speed


def test_what_was_done_before_is_no_part_of_the_speed() -> None:
    for first in (None, Record(agent_steps=5000, wall_s=900.0)):
        speed = Speed(first)
        if first is None:
            speed.add(Record(agent_steps=5000, wall_s=900.0))
        assert (speed.steps_per_s, speed.seconds_until(9000)) == (None, None)
        speed.add(Record(agent_steps=5100, wall_s=901.0))
        assert (speed.steps_per_s, speed.seconds_until(5600)) == (100.0, 5.0)
        assert speed.seconds_until(5000) == 0


def test_a_change_is_followed_within_about_half_a_minute() -> None:
    speed = Speed(Record())
    speed.add(Record(agent_steps=1000, wall_s=10.0))
    speed.add(Record(agent_steps=1000, wall_s=20.0))  # nothing is done any more
    assert speed.steps_per_s == pytest.approx(100 * 2 / 3)
    speed.add(Record(agent_steps=1000, wall_s=20.0))  # a second one of the same moment
    assert speed.steps_per_s == pytest.approx(100 * 2 / 3)
    speed.add(Record(agent_steps=1000, wall_s=50.0))
    assert (speed.steps_per_s, speed.seconds_until(2000)) == (0, None)
