import pytest

from ritornello.agent.testing.human_scores import human_normalised


def test_random_play_is_0_and_human_play_is_1():
    assert human_normalised("PongNoFrameskip-v4", -20.7) == 0.0
    assert human_normalised("ALE/Breakout-v5", 30.5) == 1.0
    # (17.3 + 20.7) / (14.6 + 20.7)
    assert human_normalised("ALE/Pong-v5", 17.3) == pytest.approx(38.0 / 35.3)


def test_an_unknown_game_has_no_normalised_score():
    assert human_normalised("CartPole-v1", 500.0) is None
    assert human_normalised("NoSuchGame-v0", 1.0) is None
    assert human_normalised("ALE/Adventure-v5", 1.0) is None
