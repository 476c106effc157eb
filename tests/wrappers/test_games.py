"""Lists of games as they are typed."""

import pytest

from ritornello.core.errors import ConfigError
from ritornello.core.spec import game_name
from ritornello.wrappers.env_ids import check_env_id
from ritornello.wrappers.games import GAME_SETS, expand_games

SIX = ["AirRaid", "Carnival", "DemonAttack", "NameThisGame", "Pong", "SpaceInvaders"]


def test_names_of_sets_stand_for_their_games_in_order():
    assert [game_name(game) for game in expand_games("six").split(",")] == SIX
    assert expand_games("three") == ",".join(GAME_SETS["six"][:3])
    assert expand_games("CartPole-v1") == "CartPole-v1"
    assert expand_games(" PongNoFrameskip-v4 , ALE/Breakout-v5") == (
        "PongNoFrameskip-v4,ALE/Breakout-v5"
    )
    assert expand_games("PongNoFrameskip-v4,three").split(",")[0] == "PongNoFrameskip-v4"


def test_all_is_every_game_that_can_be_played_and_nothing_else():
    games = expand_games("all").split(",")
    assert len(games) > 55
    assert set(GAME_SETS["six"]) <= set(games)
    for game in games:
        check_env_id(game)


@pytest.mark.parametrize("text", ["", "A,,B"])
def test_empty_names_are_refused(text):
    with pytest.raises(ConfigError, match="separated by single commas"):
        expand_games(text)


def test_a_game_named_twice_is_refused_with_what_to_do():
    with pytest.raises(ConfigError, match=r"names PongNoFrameskip-v4 more than once.*--env_shares"):
        expand_games("six,PongNoFrameskip-v4")
