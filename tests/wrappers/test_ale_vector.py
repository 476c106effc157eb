"""What AleVector adds to the C++ object, with the object or with a script in its place."""

import numpy as np
import pytest

from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import ShapeError
from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.registry import make_env_vector


class Script:
    """Stands in for AtariVectorEnv: one environment, rows written by hand."""

    def __init__(self, rows):
        self._rows = iter(rows)

    def __call__(self, game, num_envs, **options):
        assert (game, num_envs) == ("breakout", 1)
        # Both would put something else than the end of the game into the flags of the rows.
        assert not options["episodic_life"]
        assert not options["life_loss_info"]
        return self

    def reset(self, seed):
        return np.zeros((1, 4, 84, 84), np.uint8), {"lives": np.array([3], np.int32)}

    def step(self, actions):
        points, over, truncated, lives, frames = next(self._rows)
        info = {
            "lives": np.array([lives], np.int32),
            "episode_frame_number": np.array([frames], np.int32),
        }
        stacks = np.zeros((1, 4, 84, 84), np.uint8)
        return stacks, np.array([points], np.int32), np.array([over]), np.array([truncated]), info

    def close(self):
        pass


def make(num_envs=1, **options):
    config = EnvConfig("BreakoutNoFrameskip-v4", **options)
    return make_env_vector(config, num_envs, list(range(num_envs)))


@pytest.fixture
def run(monkeypatch):
    """Step an AleVector through written rows; return its results and (terminated, first)."""

    def run(rows, **options):
        monkeypatch.setattr("ritornello.wrappers.ale_vector.AtariVectorEnv", Script(rows))
        vector = make(**options)
        vector.reset()
        results = [vector.step(np.zeros(1, np.int64)) for _ in rows]
        return results, [(bool(r.terminated[0]), bool(r.first[0])) for r in results]

    return run


def test_a_lost_life_is_terminated_and_the_game_goes_on(run):
    rows = [(1, False, False, 3, 4), (1, False, False, 2, 8), (2, False, False, 2, 12)]
    results, flags = run(rows)
    assert flags == [(False, False), (True, False), (False, False)]
    assert [result.episodes for result in results] == [[], [], []]


def test_a_game_over_counts_all_lives_once_and_resets_at_the_next_step(run):
    rows = [
        (5, False, False, 2, 11),
        (1, True, False, 0, 15),
        (0, False, False, 3, 9),  # the reset row
        (7, True, False, 0, 13),
    ]
    results, flags = run(rows)
    assert flags == [(True, False), (True, False), (False, True), (True, False)]
    assert [result.episodes for result in results] == [
        [],
        [EpisodeEnd(0, return_raw=6.0, length_steps=2, length_frames=15)],
        [],
        [EpisodeEnd(0, return_raw=7.0, length_steps=1, length_frames=13)],
    ]


def test_a_life_lost_at_the_frame_cap_is_terminated_and_followed_by_a_reset(run):
    rows = [(1, False, True, 2, 4), (0, False, False, 3, 1), (0, False, False, 3, 5)]
    results, flags = run(rows)
    assert flags == [(True, False), (False, True), (False, False)]
    assert len(results[0].episodes) == 1


def test_a_reset_to_fewer_lives_or_none_before_the_end_of_the_game_is_not_a_lost_life(run):
    _, flags = run([(0, False, True, 5, 4), (0, False, False, 3, 1)])  # one more had been won
    assert flags == [(False, False), (False, True)]
    _, flags = run([(0, False, False, 0, 4), (0, True, False, 0, 8)])
    assert flags == [(False, False), (True, False)]


def test_resetting_again_starts_the_same_games_again():
    vector = make(num_envs=2)
    runs = []
    for _ in range(2):
        stacks = [vector.reset().copy()]
        stacks += [vector.step(np.array([3, 2])).stacks.copy() for _ in range(30)]
        runs.append(np.stack(stacks))
    np.testing.assert_array_equal(runs[0], runs[1])
    assert (runs[0][:, 0] != runs[0][:, 1]).any()  # the two environments differ


def test_wrong_actions_are_refused_before_they_reach_the_emulator():
    vector = make(num_envs=2)
    vector.reset()
    for actions in ([0, 4], [-1, 0], [0], [0, 0, 0], [0.0, 1.0], [[0], [0]]):
        with pytest.raises(ShapeError, match="expected"):
            vector.step(np.array(actions))
    vector.step(np.array([0, 3]))
    vector.close()
