import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ritornello.agent.algorithms.vtrace import vtrace
from ritornello.core.errors import ShapeError
from tests.reference.vtrace_loops import n_step_returns, vtrace_loops


def columns(*rows, dtype=torch.float64):
    """Turn lists of T numbers into [T, 1] tensors."""
    return [torch.tensor(row, dtype=dtype).unsqueeze(-1) for row in rows]


def run(values, rewards, discounts, ratios, **options):
    """V-trace of one column, from and to plain lists."""
    values, rewards, discounts, ratios = columns(values, rewards, discounts, ratios)
    if options.get("trust") is not None:
        options["trust"] = torch.tensor(options["trust"]).unsqueeze(-1)
    result = vtrace(ratios.log(), discounts, rewards, values, **options)
    return result.targets.squeeze(-1).tolist(), result.advantages.squeeze(-1).tolist()


@st.composite
def cases(draw):
    steps = draw(st.integers(1, 8))

    def numbers(low, high, count=steps):
        return draw(st.lists(st.floats(low, high), min_size=count, max_size=count))

    return numbers(-3, 3, steps + 1), numbers(-2, 2), numbers(0, 1), numbers(0.01, 4)


bars = st.sampled_from([0.3, 1.0, 2.5, math.inf])


@given(cases(), bars, bars, bars, st.sampled_from([0.0, 0.5, 1.0]), st.data())
def test_vtrace_equals_the_papers_double_loop(case, rho_bar, c_bar, rho_pg_bar, lambda_, data):
    trust = data.draw(
        st.none() | st.lists(st.booleans(), min_size=len(case[1]), max_size=len(case[1]))
    )
    got = run(
        *case, rho_bar=rho_bar, c_bar=c_bar, rho_pg_bar=rho_pg_bar, lambda_=lambda_, trust=trust
    )
    expected = vtrace_loops(*case, rho_bar, c_bar, rho_pg_bar, lambda_, trust)
    np.testing.assert_allclose(got, expected, atol=1e-9)


@given(cases())
def test_on_policy_and_unclipped_vtrace_equals_the_n_step_return(case):
    values, rewards, discounts, _ = case
    ones = [1.0] * len(rewards)
    targets, _ = run(values, rewards, discounts, ones, rho_bar=math.inf, c_bar=math.inf)
    np.testing.assert_allclose(targets, n_step_returns(values, rewards, discounts), atol=1e-9)


@given(cases(), st.data())
def test_at_a_reset_row_vtrace_cuts(case, data):
    """One unroll with a reset row at k equals two: one bootstrapped with V(x_k), one from k+1."""
    values, rewards, _, ratios = case
    steps = len(rewards)
    k = data.draw(st.integers(0, steps - 1))
    discounts = [0.97] * steps
    cut_ratios = [ratios[t] if t != k else 0.0 for t in range(steps)]

    targets, advantages = run(values, rewards, discounts, cut_ratios)

    before = vtrace_loops(values[: k + 1], rewards[:k], discounts[:k], ratios[:k])
    after = vtrace_loops(values[k + 1 :], rewards[k + 1 :], discounts[k + 1 :], ratios[k + 1 :])
    np.testing.assert_allclose(targets, [*before[0], values[k], *after[0]], atol=1e-9)
    np.testing.assert_allclose(advantages, [*before[1], 0.0, *after[1]], atol=1e-9)


VALUES = [0.5, 0.4, 0.3, 0.2, 0.6]
REWARDS = [1.0, 0.0, -1.0, 2.0]
RATIOS = [1.5, 0.5, 2.0, 0.8]


@pytest.mark.parametrize(
    ("discounts", "targets", "advantages"),
    [
        # The last step by hand: delta = 0.8 * (2 + 0.9 * 0.6 - 0.2) = 1.872, target 0.2 + 1.872.
        (
            [0.9] * 4,
            [1.530244, 0.589160, 0.864800, 2.072000],
            [1.030244, 0.189160, 0.564800, 1.872000],
        ),
        ([0.9, 0.0, 0.9, 0.9], [1.18, 0.2, 0.8648, 2.072], [0.68, -0.2, 0.5648, 1.872]),
    ],
    ids=["no end", "step 1 terminated"],
)
def test_vtrace_gives_the_numbers_computed_by_hand(discounts, targets, advantages):
    got = run(VALUES, REWARDS, discounts, RATIOS)
    np.testing.assert_allclose(got, [targets, advantages], atol=1e-9)


def test_a_truncated_step_bootstraps_from_its_final_observation():
    """Step 1 is cut by time with V(final) = 0.9: a reset row stands between it and step 2."""
    targets, advantages = run(
        [0.5, 0.4, 0.9, 0.3, 0.2, 0.6],
        [1.0, 0.0, 0.0, -1.0, 2.0],
        [0.9] * 5,
        [1.5, 0.5, 0.0, 2.0, 0.8],
    )
    np.testing.assert_allclose(targets, [1.5445, 0.605, 0.9, 0.8648, 2.072], atol=1e-9)
    np.testing.assert_allclose(advantages, [1.0445, 0.205, 0.0, 0.5648, 1.872], atol=1e-9)


def test_log_ratios_of_fifty_stay_finite():
    log_rhos = torch.tensor([[50.0], [-50.0], [50.0]])
    ones = torch.ones(3, 1)
    result = vtrace(log_rhos, 0.9 * ones, ones, torch.ones(4, 1))
    assert result.targets.isfinite().all()
    assert result.advantages.isfinite().all()


def test_vtrace_carries_no_gradient():
    values = torch.ones(3, 2, requires_grad=True)
    log_rhos = torch.zeros(2, 2, requires_grad=True)
    result = vtrace(log_rhos, torch.ones(2, 2), torch.ones(2, 2), values)
    assert not result.targets.requires_grad
    assert not result.advantages.requires_grad


@given(cases(), st.sampled_from([0.0, 0.3, 0.95, 1.0]))
def test_with_lambda_targets_are_gae_and_advantages_look_one_step_further(case, lambda_):
    """Generalised advantage estimation, on policy: Schulman et al. 2016, equation 16."""
    values, rewards, discounts, _ = case
    targets, advantages = run(values, rewards, discounts, [1.0] * len(rewards), lambda_=lambda_)
    gae = [0.0]  # that of the row after the last, then backwards
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + discounts[t] * values[t + 1] - values[t]
        gae.append(delta + discounts[t] * lambda_ * gae[-1])
    *gae, after = gae[::-1]
    assert after == 0
    np.testing.assert_allclose(np.subtract(targets, values[:-1]), gae, atol=1e-9)
    further = (1 - lambda_) * np.multiply(discounts, [*gae[1:], after])
    np.testing.assert_allclose(advantages, np.add(gae, further), atol=1e-9)


@pytest.mark.parametrize("name", ["log_rhos", "discounts", "rewards", "values", "trust"])
def test_a_wrong_shape_is_refused_by_name(name):
    arguments = {
        "log_rhos": torch.zeros(3, 2),
        "discounts": torch.zeros(3, 2),
        "rewards": torch.zeros(3, 2),
        "values": torch.zeros(4, 2),
        "trust": torch.ones(3, 2, dtype=torch.bool),
    }
    arguments[name] = arguments[name].unsqueeze(-1)
    with pytest.raises(ShapeError, match=name):
        vtrace(**arguments)
