import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ritornello.agent.distributions import MAX_LOG_RATIO, Categorical, distribution_of
from ritornello.agent.other_distributions import DiagGaussian
from ritornello.core.errors import ConfigError
from ritornello.core.spec import CHOICE
from tests.agent.builders import ANY_ACTIONS
from tests.reference import distribution_loops as loops

EVERY = pytest.mark.parametrize("spec", ANY_ACTIONS.values(), ids=ANY_ACTIONS)
SMALL = st.floats(-2, 2)


def tensor(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


@st.composite
def cases(draw):
    """A spec, the parameters of two policies, and an action: as tensors and for the loops."""
    spec = ANY_ACTIONS[draw(st.sampled_from(sorted(ANY_ACTIONS)))]

    def policy():
        flat, parts = [], []
        for part in spec.parts:
            params = draw(st.lists(SMALL, min_size=part.param_count, max_size=part.param_count))
            flat += params
            count = part.count
            is_choice = part.kind == CHOICE
            parts.append(
                ("choice", params) if is_choice else ("numbers", params[:count], params[count:])
            )
        return tensor(*flat), parts

    flat_action, action = [], []
    for part in spec.parts:
        if part.kind == CHOICE:
            action.append(draw(st.integers(0, part.count - 1)))
            flat_action.append(action[-1])
        else:
            action.append(draw(st.lists(SMALL, min_size=part.count, max_size=part.count)))
            flat_action += action[-1]
    stored = torch.tensor(flat_action, dtype=torch.float64)
    stored = stored.long() if spec.dtype == "int64" else stored
    return spec, policy(), policy(), stored.reshape(spec.shape), action


@given(cases())
def test_every_formula_equals_its_plain_loops(case):
    spec, (params, parts), (others_params, others_parts), stored, action = case
    distribution = distribution_of(spec)
    pi, mu = distribution.policy(params), distribution.policy(others_params)
    assert pi.log_prob(stored).item() == pytest.approx(loops.log_prob(parts, action), abs=1e-9)
    assert pi.entropy().item() == pytest.approx(loops.entropy(parts), abs=1e-9)
    assert pi.kl(mu).item() == pytest.approx(loops.kl(parts, others_parts), abs=1e-9)


@EVERY
def test_draws_are_spread_as_the_parameters_say(spec):
    distribution = distribution_of(spec)
    generator = torch.Generator().manual_seed(3)
    params = torch.linspace(-1, 1, distribution.param_count)
    many = params.expand(40_000, -1)
    drawn = distribution.sample(many, generator)
    assert drawn.shape == (40_000, *spec.shape)
    assert drawn.dtype == getattr(torch, spec.dtype)
    pi = distribution.policy(many)
    # The mean of -log pi(a) over draws of pi is its entropy.
    assert -pi.log_prob(drawn).mean().item() == pytest.approx(pi.entropy()[0].item(), abs=0.02)
    columns = drawn.reshape(40_000, -1).double()
    start = column = 0
    for part in spec.parts:
        own = params[start : start + part.param_count].double()
        if part.kind == CHOICE:
            shares = torch.bincount(columns[:, column].long(), minlength=part.count) / 40_000
            torch.testing.assert_close(shares.double(), own.softmax(-1), atol=0.01, rtol=0)
        else:
            numbers = columns[:, column : column + part.count]
            torch.testing.assert_close(numbers.mean(0), own[: part.count], atol=0.05, rtol=0)
            deviations = own[part.count :].exp()
            torch.testing.assert_close(numbers.std(0), deviations, atol=0.05, rtol=0)
        start, column = start + part.param_count, column + part.width


@EVERY
def test_equal_generators_draw_alike_and_no_action_is_more_probable_than_the_mode(spec):
    distribution = distribution_of(spec)
    params = torch.randn(50, distribution.param_count, generator=torch.Generator().manual_seed(2))
    one, two = (distribution.sample(params, torch.Generator().manual_seed(seed)) for seed in (5, 5))
    assert torch.equal(one, two)
    other = distribution.sample(params, torch.Generator().manual_seed(6))
    assert not torch.equal(one, other)
    mode, pi = distribution.mode(params), distribution.policy(params)
    assert mode.shape == one.shape
    assert mode.dtype == one.dtype
    assert (pi.log_prob(mode) >= pi.log_prob(one)).all()


def test_the_log_ratio_of_densities_is_bounded_and_that_of_choices_is_as_it_is():
    numbers = DiagGaussian(1)
    narrow, wide = numbers.policy(tensor(0, -30)), numbers.policy(tensor(0, 0))
    ratio = narrow.log_prob(tensor(0)) - wide.log_prob(tensor(0))
    assert ratio.item() == pytest.approx(30)
    assert numbers.bounded(ratio).item() == MAX_LOG_RATIO
    assert numbers.bounded(-ratio).item() == pytest.approx(-30)
    assert Categorical(2).bounded(ratio) is ratio


@EVERY
def test_the_implied_kl_is_refused_where_it_has_no_closed_form(spec):
    distribution = distribution_of(spec)
    pi, mu = (distribution.policy(torch.randn(distribution.param_count)) for _ in range(2))
    if distribution.has_implied_kl:
        assert spec.is_single_choice
        assert pi.implied_kl(mu, 1.0) >= 0
        return
    with pytest.raises(ConfigError, match="kl_mask_kind=kl_pi_mu"):
        pi.implied_kl(mu, 1.0)
