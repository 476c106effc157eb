import math

import pytest
import torch

from ritornello.agent.algorithms.batch import LARGEST_REWARD, REWARD_TRANSFORMS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("none", [-1.0, 0.0, 0.5, 5.0]),
        ("abs_one_sign", [-1.0, 0.0, 1.0, 1.0]),
        ("abs_one_clamp", [-1.0, 0.0, 0.5, 1.0]),
        ("soft_asymmetric", [-0.296063, 0.0, 0.498340, 3.807971]),
        ("log", [-0.693147, 0.0, 0.405465, 1.791759]),
    ],
)
def test_a_reward_transform_gives_its_published_values(name, expected):
    rewards = torch.tensor([-1.0, 0.0, 0.5, 5.0])
    got = REWARD_TRANSFORMS[name](rewards)
    torch.testing.assert_close(got, torch.tensor(expected), rtol=0, atol=1e-6)
    assert rewards.tolist() == [-1.0, 0.0, 0.5, 5.0]  # the batch keeps its raw rewards


@pytest.mark.parametrize("name", REWARD_TRANSFORMS)
def test_no_reward_is_larger_than_its_transform_says(name):
    rewards = torch.tensor([-1e9, -3.0, -0.1, 0.0, 0.7, 2.0, 1e9])
    got = REWARD_TRANSFORMS[name](rewards).abs().max().item()
    assert LARGEST_REWARD[name] in (math.inf, pytest.approx(got))
