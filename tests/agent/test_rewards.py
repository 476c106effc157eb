import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agent.algorithms.rewards import REWARD_TRANSFORMS, rescale, unrescale


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("none", [-1.0, 0.0, 0.5, 5.0]),
        ("abs_one_sign", [-1.0, 0.0, 1.0, 1.0]),
        ("abs_one_clamp", [-1.0, 0.0, 0.5, 1.0]),
        ("oac_paper", [-0.228478, 0.0, 2.310586, 4.999546]),
        ("soft_asymmetric", [-0.296063, 0.0, 0.498340, 3.807971]),
    ],
)
def test_a_reward_transform_gives_its_published_values(name, expected):
    rewards = torch.tensor([-1.0, 0.0, 0.5, 5.0])
    got = REWARD_TRANSFORMS[name](rewards)
    torch.testing.assert_close(got, torch.tensor(expected), rtol=0, atol=1e-6)
    assert rewards.tolist() == [-1.0, 0.0, 0.5, 5.0]  # the batch keeps its raw rewards


def test_value_rescaling_gives_its_published_values():
    got = rescale(torch.tensor([-10.0, 0.0, 1.0, 100.0], dtype=torch.float64))
    expected = torch.tensor([-2.326625, 0.0, 0.415214, 9.149876], dtype=torch.float64)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)


@given(st.floats(-1e4, 1e4), st.sampled_from([1e-3, 1e-2]))
def test_unrescale_inverts_rescale(value, epsilon):
    x = torch.tensor(value, dtype=torch.float64)
    assert unrescale(rescale(x, epsilon), epsilon).item() == pytest.approx(value, abs=1e-6)
