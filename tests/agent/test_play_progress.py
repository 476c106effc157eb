from __future__ import annotations

import pytest

from agent.play_progress import SILENCE_S, PlayProgress


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def told():
    clock, lines = Clock(), []
    return PlayProgress(4, lines.append, clock), clock, lines


def test_nothing_is_said_while_games_end(told):
    progress, clock, lines = told
    for _ in range(10):
        clock.now += SILENCE_S - 1
        progress.finished(100)
        progress.advance(16)
    assert lines == []


def test_before_the_first_game_is_over_only_steps_are_counted(told):
    progress, clock, lines = told
    progress.advance(16)
    clock.now = SILENCE_S
    progress.advance(16)
    progress.advance(16)
    assert lines == ["0 of 4 games, 32 steps in 0:00:10; no game is over yet"]


def test_then_the_time_left_follows_from_the_steps_that_are_left(told):
    progress, clock, lines = told
    clock.now = 2.0
    progress.advance(100)
    progress.finished(50)
    clock.now = 2.0 + SILENCE_S
    progress.advance(20)  # 120 of about 4 * 50 steps in 12 s: 8 s for the other 80
    assert lines == ["1 of 4 games, 120 steps in 0:00:12; about 0:00:08 left"]
    clock.now += SILENCE_S
    progress.advance(1000)  # longer than expected
    assert lines[1].endswith("about 0:00:00 left")
