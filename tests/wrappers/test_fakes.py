"""The fakes keep their promises, since every other package is tested with them."""

from __future__ import annotations

import gymnasium
import pytest

from tests.fakes import EPISODE_LENGTHS, ChainEnv, CountingEnv, InfiniteEnv, register_fakes


def test_registering_twice_is_harmless():
    register_fakes()
    assert gymnasium.make("tests/Counting-v0").action_space.n == 3


def test_counting_episodes_vary_in_length_and_in_how_they_end():
    plans = {CountingEnv.plan(seed) for seed in range(5000)}
    assert plans == {(length, ends) for length in EPISODE_LENGTHS for ends in (True, False)}


@pytest.mark.parametrize("seed", [0, 65_535, 65_536, 2**31 - 1])
def test_a_counting_row_says_which_one_it_is(seed):
    env = CountingEnv()
    observation, _ = env.reset(seed=seed)
    assert CountingEnv.decode(observation) == (seed, 0, -1)
    observation, reward, *_ = env.step(2)
    assert (CountingEnv.decode(observation), reward) == ((seed, 1, 2), 0.0)
    assert env.step(0)[1] == 1.0


def test_the_optimal_value_of_the_chain_is_what_going_right_earns():
    env = ChainEnv()
    observation, _ = env.reset()
    value, discount, over = 0.0, 1.0, False
    while not over:
        assert observation.sum() == 1
        observation, reward, over, _, _ = env.step(1)
        value, discount = value + discount * reward, discount * 0.9
    assert value == pytest.approx(ChainEnv.optimal_value(0.9))


def test_the_chain_is_cut_by_time_when_its_end_is_not_reached():
    env = ChainEnv(time_limit=3)
    env.reset()
    assert [env.step(0)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]


def test_the_value_of_the_infinite_environment_is_that_of_reward_one_for_ever():
    assert InfiniteEnv.true_value(0.9) == pytest.approx(sum(0.9**t for t in range(1000)))
    env = InfiniteEnv(time_limit=2)
    env.reset()
    assert [env.step(0)[1:4] for _ in range(2)] == [(1.0, False, False), (1.0, False, True)]
