"""GymVector on environments of which every row is known."""

import json
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import CheckpointError, PlatformError
from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.gym_vector import GymVector, episode_seed
from ritornello.wrappers.registry import make_env_spec, make_env_vector
from tests.fakes import CountingEnv

COUNTING = EnvConfig("tests.fakes:tests/Counting-v0")


def make(num_envs=1, seed=0, config=COUNTING, restorable=True):
    seeds = [seed + index for index in range(num_envs)]
    return make_env_vector(config, num_envs, seeds, restorable=restorable)


def play(vector, actions):
    """Play actions [N, E]; return copies of all rows, comparable by ==."""
    rows = []
    for row in actions:
        result = vector.step(row)
        rows.append(
            (
                result.stacks.tobytes(),
                result.reward.tolist(),
                result.terminated.tolist(),
                result.first.tolist(),
                result.episodes,
            )
        )
    return rows


def random_actions(seed, steps, num_envs, action_count=3):
    return np.random.default_rng(seed).integers(action_count, size=(steps, num_envs))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**40), num_envs=st.integers(1, 4), steps=st.integers(1, 60))
def test_every_row_is_where_it_belongs(seed, num_envs, steps):
    vector = make(num_envs, seed)
    stacks = vector.reset()
    assert (stacks.shape, stacks.dtype) == ((num_envs, 1, 4), np.float32)
    episode, t, total = [0] * num_envs, [0] * num_envs, [0.0] * num_envs
    for actions in random_actions(seed, steps, num_envs):
        result = vector.step(actions)
        ended = []
        for env in range(num_envs):
            own_seed = episode_seed(seed + env, episode[env])
            length, terminates = CountingEnv.plan(own_seed)
            resets = t[env] == length  # the row after the last one of an episode
            action = int(actions[env])
            if resets:
                episode[env], t[env], total[env], action = episode[env] + 1, 0, 0.0, -1
                own_seed = episode_seed(seed + env, episode[env])
                length, terminates = CountingEnv.plan(own_seed)
            else:
                total[env] += t[env]
                t[env] += 1
            assert CountingEnv.decode(result.stacks[env, 0]) == (own_seed, t[env], action)
            assert result.first[env] == resets
            assert result.reward[env] == (0 if resets else t[env] - 1)
            assert result.terminated[env] == (t[env] == length and terminates)
            if t[env] == length:
                ended.append(EpisodeEnd(env, total[env], length, length))
        assert result.episodes == ended
    vector.close()


def test_every_episode_of_every_environment_has_a_seed_of_its_own():
    seeds = {episode_seed(seed, episode) for seed in range(20) for episode in range(20)}
    assert len(seeds) == 400


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**40), before=st.integers(0, 40), num_envs=st.integers(1, 3))
def test_restored_environments_go_on_as_if_nothing_had_happened(seed, before, num_envs):
    actions = random_actions(seed, before + 20, num_envs)
    vector = make(num_envs, seed)
    vector.reset()
    play(vector, actions[:before])
    shown = vector._stacks.copy()
    state = json.loads(json.dumps(vector.state_dict()))  # plain types only
    expected = play(vector, actions[before:])

    other = make(num_envs, seed=seed + 1)
    np.testing.assert_array_equal(other.load_state_dict(state), shown)
    assert play(other, actions[before:]) == expected


def test_an_atari_game_is_restored_by_playing_it_again():
    config = EnvConfig("ALE/Breakout-v5", max_episode_frames=80)  # v5: sticky actions
    actions = random_actions(1, 60, 1, action_count=4)
    vector, other = make(config=config), make(config=config, seed=9)
    vector.reset()
    states, rows = [], []
    for row in actions:
        states.append(vector.state_dict())
        rows += play(vector, row[None])
    assert rows[20][3] == [True]
    for steps in (20, 21):  # at the end of a game, at the first row of the next
        other.load_state_dict(states[steps])
        assert play(other, actions[steps:]) == rows[steps:]


def test_a_state_of_other_environments_is_refused():
    state = make(num_envs=2).state_dict()
    with pytest.raises(CheckpointError, match=r"2 x .*Counting.*expected 1 x"):
        make(num_envs=1).load_state_dict(state)
    with pytest.raises(CheckpointError, match="expected 2 x CartPole-v1"):
        make(num_envs=2, config=EnvConfig("CartPole-v1")).load_state_dict(state)


class RisingEnv(CountingEnv):
    """Keeps across resets how many games it has begun: `shows`, `pays` or `ends` by that."""

    def __init__(self, keeps):
        super().__init__()
        self.keeps, self.games = keeps, 0

    def reset(self, *, seed=None, options=None):
        self.games += 1
        return super().reset(seed=seed)

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        observation[0] += self.games * (self.keeps == "shows")
        reward += self.games * (self.keeps == "pays")
        if self.keeps == "ends":
            terminated, truncated = self.t == self.games, False
        return observation, reward, terminated, truncated, info


@pytest.mark.parametrize("keeps", ["shows", "pays", "ends"])
def test_an_environment_that_is_not_led_back_by_seed_and_actions_is_named(keeps):
    spec = make_env_spec(COUNTING)
    vector, again = (
        GymVector(spec, lambda: RisingEnv(keeps), [5], restorable=True) for _ in range(2)
    )
    vector.reset()
    while vector._games[0].episode < 2 or vector._games[0].length_steps < 2:
        vector.step(np.array([1]))
    state = json.loads(json.dumps(vector.state_dict()))
    earlier = {key: value for key, value in state.items() if key != "checksums"}
    is_seen = pytest.raises(
        CheckpointError, match=r"environment 1 of 1, is not where.*reproducible="
    )
    with is_seen if keeps == "ends" else nullcontext():  # it is over too soon
        again.load_state_dict(earlier)
    with is_seen:
        again.load_state_dict(state)


def test_environments_that_forget_their_actions_say_that_they_cannot_be_saved():
    vector = make(restorable=False)
    vector.reset()
    vector.step(np.array([1]))
    assert vector._games[0].actions == []  # nothing grows without end
    with pytest.raises(PlatformError, match="restorable=True"):
        vector.state_dict()
