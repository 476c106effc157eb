"""The C++ vector and the readable wrappers are twins: pixels, rewards, ends and statistics."""

import numpy as np
import pytest

from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.registry import max_game_steps
from tests.wrappers.twins import assert_rows_agree, play_twins


def results_of(rows):
    return [result for _, result in rows[1:]]


def count(rows, name):
    return sum(int(getattr(result, name).sum()) for result in results_of(rows))


def games(rows):
    return [end for result in results_of(rows) for end in result.episodes]


@pytest.mark.parametrize(("game", "noop_max"), [("Pong", 0), ("Breakout", 0), ("Seaquest", 30)])
def test_the_two_vectors_are_twins(game, noop_max):
    config = EnvConfig(f"{game}NoFrameskip-v4", noop_max=noop_max)
    assert_rows_agree(*play_twins(config, steps=150))


@pytest.mark.parametrize(
    ("game", "steps", "num_envs", "lives"), [("Breakout", 330, 2, 5), ("SpaceInvaders", 500, 1, 3)]
)
def test_whole_games_with_lives_end_alike_and_lost_lives_are_no_resets(
    game, steps, num_envs, lives
):
    fast, readable = play_twins(EnvConfig(f"{game}NoFrameskip-v4"), steps, num_envs)
    assert_rows_agree(fast, readable)
    ends = games(fast)
    assert {end.env_id for end in ends} == set(range(num_envs))
    assert count(fast, "first") == len(ends)
    assert count(fast, "terminated") >= len(ends) * lives  # the last one is the end of the game


def test_a_whole_game_of_pong_ends_alike():
    fast, readable = play_twins(EnvConfig("PongNoFrameskip-v4"), steps=1050)
    assert_rows_agree(fast, readable)
    (end,) = games(fast)
    assert end.return_raw == sum(
        result.reward.sum() for result in results_of(fast)[: end.length_steps]
    )
    assert count(fast, "terminated") == 1
    # Frames of the start-up and of the last, shortened step make the difference.
    assert end.length_steps * 4 - 3 <= end.length_frames <= end.length_steps * 4 + 30


@pytest.mark.parametrize("max_episode_frames", [160, 163])
def test_games_cut_by_the_frame_cap_are_truncated_alike(max_episode_frames):
    config = EnvConfig("FreewayNoFrameskip-v4", max_episode_frames=max_episode_frames)
    fast, readable = play_twins(config, steps=130)
    assert_rows_agree(fast, readable)
    steps = max_game_steps(config)
    assert steps == -(-max_episode_frames // 4)
    assert [end.length_steps for end in games(fast)] == [steps] * 3
    assert all(0 <= end.length_frames - max_episode_frames < 30 for end in games(fast))
    assert count(fast, "terminated") == 0
    assert [row for row, result in enumerate(results_of(fast)) if result.first[0]] == [
        steps,
        2 * steps + 1,
        3 * steps + 2,
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"grayscale": False, "frames_stacked": 2, "height": 60, "width": 90},
        {"height": 210, "width": 160, "noop_max": 1, "episodic_life": False},  # no resizing
        {"height": 210, "width": 84, "frames_stacked": 1},  # resized in one direction only
        {"action_repeat": 1, "noop_max": 3, "fire_reset": False},
        {"action_repeat": 7, "max_episode_frames": 100},
        {"action_repeat": 2, "full_action_space": True, "sticky_action_probability": 0.25},
    ],
    ids=str,
)
def test_both_vectors_honour_every_option_alike(options):
    assert_rows_agree(*play_twins(EnvConfig("BreakoutNoFrameskip-v4", **options), steps=70))


def test_screens_of_another_size_are_resized_alike():
    assert_rows_agree(*play_twins(EnvConfig("ALE/Pooyan-v5"), steps=20))  # 220 x 160


def test_stacks_after_a_reset_are_black_but_for_the_first_frame():
    config = EnvConfig("FreewayNoFrameskip-v4", max_episode_frames=160)
    for rows in play_twins(config, steps=130):
        firsts = [rows[0][0], *(stacks for stacks, result in rows[1:] if result.first[0])]
        assert len(firsts) == 4
        for stacks in firsts:
            assert not stacks[0, :-1].any()
            assert stacks[0, -1].any()


def test_a_lost_life_does_not_clear_the_stack():
    for rows in play_twins(EnvConfig("BreakoutNoFrameskip-v4"), 330, 2):
        lost = [
            row
            for row in range(4, len(rows) - 1)
            if rows[row][1].terminated[0] and not rows[row + 1][1].first[0]
        ]
        assert len(lost) >= 4
        for row in lost:
            np.testing.assert_array_equal(rows[row + 1][0][0, :-1], rows[row][0][0, 1:])
            assert rows[row + 1][0][0].any(axis=(-1, -2)).all()
