"""Several games in one vector: every row is what the game alone would have shown."""

from dataclasses import replace

import numpy as np
import pytest

from ritornello.core.errors import CheckpointError, ConfigError, ShapeError
from ritornello.wrappers.atari import ALL_ACTIONS
from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.registry import make_env_spec, make_env_vector
from ritornello.wrappers.task_vector import TaskVector
from tests.wrappers.twins import assert_rows_agree, assert_same, play, play_twins

ONE, OTHER = "tests.fakes:tests/Counting-v0", "tests.fakes:tests/Owing-v0"
BOTH = f"{ONE},{OTHER}"
PONG, BREAKOUT, FREEWAY, INVADERS = (
    f"{name}NoFrameskip-v4" for name in ("Pong", "Breakout", "Freeway", "SpaceInvaders")
)


def games(*env_ids, **options):
    return EnvConfig(",".join(env_ids), **options)


def test_games_share_all_actions_that_one_of_them_uses_in_the_emulators_order():
    spec = make_env_spec(games(BREAKOUT, FREEWAY))
    assert spec.tasks == (BREAKOUT, FREEWAY)
    assert spec.task_count == 2
    assert spec.action_meanings == ("NOOP", "FIRE", "UP", "RIGHT", "LEFT", "DOWN")
    assert make_env_spec(games(FREEWAY, BREAKOUT)).action_meanings == spec.action_meanings
    assert make_env_spec(games(PONG, BREAKOUT)).action_meanings == (
        make_env_spec(games(PONG)).action_meanings
    )
    assert spec.frame_shape == (1, 84, 84)


def test_all_actions_and_a_set_of_ones_own():
    spec = make_env_spec(games(PONG, FREEWAY, full_action_space=True))
    assert spec.action_meanings == ALL_ACTIONS
    own = ("LEFT", "RIGHT", "NOOP")
    assert make_env_spec(games(PONG, actions=own)).action_meanings == own
    with pytest.raises(ConfigError, match="expected names of Atari actions"):
        make_env_spec(games(PONG, actions=("NOOP", "JUMP")))
    with pytest.raises(ConfigError, match="expected each name once"):
        games(PONG, actions=("NOOP", "NOOP"))


def test_games_that_show_different_things_are_refused_with_the_difference():
    with pytest.raises(ConfigError, match=r"frame_shape \(4,\) and \(1, 84, 84\)"):
        make_env_spec(games("CartPole-v1", PONG))
    with pytest.raises(ConfigError, match=r"expected the same ones"):  # 2 actions and 3
        make_env_spec(games("CartPole-v1", ONE))


def test_both_vectors_play_renumbered_actions_alike():
    config = games(FREEWAY, "SeaquestNoFrameskip-v4")
    assert make_env_spec(config).action_count > make_env_spec(games(FREEWAY)).action_count
    assert_rows_agree(*play_twins(config, steps=150))


def test_both_vectors_play_a_chosen_set_of_actions_alike():
    actions = ("DOWNFIRE", "LEFT", "RIGHT", "UP")
    assert_rows_agree(*play_twins(games(PONG, actions=actions, noop_max=0), steps=60))


@pytest.mark.parametrize(("task", "backend"), [(0, "ale_vector"), (1, "gymnasium")])
def test_a_game_goes_in_company_as_it_goes_alone(task, backend):
    # The one fires while it moves; the other knows no FIRE, which would cost a frame at the start.
    pair = (INVADERS, FREEWAY)
    game = pair[task]
    alone = games(game, backend=backend, noop_max=0)
    together = games(*pair, backend=backend, noop_max=0)
    own, shared = (make_env_spec(config).action_meanings for config in (alone, together))
    assert own != shared
    actions = np.random.default_rng(1).integers(len(own), size=(40, 1))
    renumbered = np.array([[shared.index(own[action]) for action in row] for row in actions])
    assert (renumbered != actions).any()
    first, second = make_env_vector(alone, 1, [5]), make_env_vector(together, 1, [5], tasks=[task])
    for (stacks, _), (others, _) in zip(
        play(first, actions), play(second, renumbered), strict=True
    ):
        assert_same(stacks, others, game)
    first.close()
    second.close()


def test_every_environment_plays_its_game_with_its_seed():
    config = games(PONG, BREAKOUT, max_episode_frames=60)
    tasks, seeds = [0, 1, 0], [7, 8, 9]
    vector = make_env_vector(config, 3, seeds, tasks=tasks)
    assert isinstance(vector, TaskVector)
    assert vector.spec == make_env_spec(config)
    actions = np.random.default_rng(2).integers(vector.spec.action_count, size=(25, 3))
    rows = play(vector, actions)
    ends = 0
    for index, (task, seed) in enumerate(zip(tasks, seeds, strict=True)):
        alone = make_env_vector(config, 1, [seed], tasks=[task])
        for (stacks, result), (single, expected) in zip(
            rows, play(alone, actions[:, [index]]), strict=True
        ):
            assert_same(stacks[index : index + 1], single, "stacks")
            if result is not None:
                for name in ("reward", "terminated", "first"):
                    assert_same(getattr(result, name)[[index]], getattr(expected, name), name)
                mine = [replace(end, env_id=0) for end in result.episodes if end.env_id == index]
                assert mine == expected.episodes
                ends += len(mine)
        alone.close()
    assert ends >= 3  # each was cut by the cap once at least
    vector.close()
    vector.close()


def test_wrong_actions_are_refused_before_any_game_moves():
    vector = make_env_vector(EnvConfig(BOTH), 2, [0, 1], tasks=[0, 1])
    vector.reset()
    with pytest.raises(ShapeError, match=r"expected whole numbers in \[0, 2\]"):
        vector.step(np.array([0, 3]))
    assert vector.step(np.array([0, 0])).stacks[:, 0, 2].tolist() == [1, 1]  # the first step


def test_a_state_of_other_games_is_refused():
    def make(tasks):
        seeds = range(len(tasks))
        return make_env_vector(EnvConfig(BOTH), len(tasks), seeds, tasks=tasks, restorable=True)

    vector = make((0, 0, 1))
    vector.reset()
    state = vector.state_dict()
    for tasks in ((1, 1, 1), (1, 1, 0), (0, 1), (0, 0, 1, 0)):
        with pytest.raises(CheckpointError):
            make(tasks).load_state_dict(state)
