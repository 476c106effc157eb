"""Fingerprints: the same game has the same one, after whatever was played before; others do not."""

import numpy as np
import pytest

from ritornello.agent.testing.whole_games import Fingerprints
from ritornello.wrappers.vector import StepResult


def fingerprint(changed="", steps=2, before=None):
    """The mark of a game of one environment; `before`: the action that its reset row ignores."""
    start, frame = np.zeros((1, 2, 3), np.float32), np.ones((1, 2, 3), np.float32)
    action, reward = 258, 0.5
    if changed == "start":
        start[0, 0, 0] = 1
    if changed == "frame":
        frame[0, -1, 2] = 5
    if changed == "action":
        action = 2  # equal to 258 in one byte
    if changed == "reward":
        reward = 0.25

    def step(shown, paid, is_first):
        return StepResult(shown, np.array([paid], np.float32), np.zeros(1, bool), is_first, [])

    marks = Fingerprints(start)
    if before is not None:
        marks.add(np.array([7]), step(frame, 3.0, np.zeros(1, bool)))
        marks.add(np.array([before]), step(start, 0.0, np.ones(1, bool)))
    for _ in range(steps + (changed == "length")):
        marks.add(np.array([action]), step(frame, reward, np.zeros(1, bool)))
    return marks.of(0)


def test_equal_games_are_one_whatever_came_before_and_a_reset_row_was_told():
    assert fingerprint() == fingerprint(before=3) == fingerprint(before=4)


@pytest.mark.parametrize("what", ["start", "action", "frame", "reward", "length"])
def test_each_difference_makes_another_game(what):
    assert fingerprint() != fingerprint(what)
