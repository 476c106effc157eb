import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ritornello.agent.algorithms import losses
from ritornello.agent.distributions import CategoricalPolicy
from tests.reference.laser_loops import behaviour_relevance, implied_policy

PI, MU = [0.7, 0.2, 0.1], [0.5, 0.3, 0.2]


def log(*probabilities):
    return torch.tensor(probabilities, dtype=torch.float64).log()


@st.composite
def policies(draw):
    count = draw(st.integers(2, 6))

    def one():
        weights = draw(st.lists(st.floats(0.01, 1), min_size=count, max_size=count))
        return [w / sum(weights) for w in weights]

    return one(), one()


def implied_kl(log_pi, log_mu, rho_bar=1.0):
    return CategoricalPolicy(log_pi).implied_kl(CategoricalPolicy(log_mu), rho_bar).item()


@given(policies(), st.sampled_from([0.5, 1.0, 2.0, 4.0]))
def test_the_implied_kl_equals_its_definition(policy_pair, rho_bar):
    pi, mu = policy_pair
    got = implied_kl(log(*pi), log(*mu), rho_bar)
    assert got == pytest.approx(behaviour_relevance(pi, mu, rho_bar), abs=1e-9)
    assert sum(implied_policy(pi, mu, rho_bar)) == pytest.approx(1)


@pytest.mark.parametrize("gap", [1.0, 30.0, 95.0, 104.0, 300.0])
def test_the_implied_kl_of_policies_that_are_wholly_apart_is_not_lost_in_float32(gap):
    log_pi = torch.tensor([0.0, -gap]).log_softmax(-1)
    log_mu = torch.tensor([-gap, 0.0]).log_softmax(-1)
    exact = behaviour_relevance(log_pi.double().exp().tolist(), log_mu.double().exp().tolist())
    assert implied_kl(log_pi, log_mu) == pytest.approx(exact, rel=1e-3)


def test_policy_cloning_moves_pi_and_never_mu():
    log_mu = log(*MU).requires_grad_()
    log_pi = log(*PI).requires_grad_()
    losses.policy_cloning(CategoricalPolicy(log_mu), CategoricalPolicy(log_pi)).backward()
    assert log_mu.grad is None
    # d/d log_pi of sum mu (log mu - log pi) is -mu
    torch.testing.assert_close(log_pi.grad, -log(*MU).exp())
