import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.trials import upgoing
from experiments.trials.upgoing import Upgoing, UpgoingConfig, upgoing_advantages
from ritornello.agent.algorithms.impala import Impala
from ritornello.agent.assembly import make_algorithm
from ritornello.core.errors import ConfigError
from ritornello.flags.options import Flags
from tests.agent.builders import make_batch, make_small_model
from tests.extensions.runs import new_folder, trained
from tests.reference.upgoing_loops import upgoing_loops

UPGOING = f"{upgoing.__name__}:upgoing"


@st.composite
def unrolls(draw):
    """Unrolls of one column; a ratio of 0 is a reset row."""
    steps = draw(st.integers(1, 8))

    def numbers(low, high, count=steps):
        return draw(st.lists(st.floats(low, high), min_size=count, max_size=count))

    ratios = draw(st.lists(st.just(0.0) | st.floats(0.01, 4), min_size=steps, max_size=steps))
    # Halves, so that steps that go exactly as well as expected are among them.
    halves = st.integers(-6, 6).map(lambda n: n / 2)
    values = draw(st.lists(halves, min_size=steps + 1, max_size=steps + 1))
    rewards = draw(st.lists(halves, min_size=steps, max_size=steps))
    return values, rewards, numbers(0, 1), ratios


@given(unrolls(), st.sampled_from([0.5, 1.0, math.inf]))
def test_upgoing_advantages_equal_their_plain_loop(unroll, rho_pg_bar):
    columns = [torch.tensor(row, dtype=torch.float64).unsqueeze(-1) for row in unroll]
    values, rewards, discounts, ratios = columns
    got = upgoing_advantages(ratios.log(), discounts, rewards, values, rho_pg_bar=rho_pg_bar)
    np.testing.assert_allclose(
        got.squeeze(-1).numpy(), upgoing_loops(*unroll, rho_pg_bar), atol=1e-9
    )


def test_a_success_reaches_back_over_good_steps_and_not_over_a_bad_one():
    zeros = torch.zeros(4, 1)
    rewards = torch.tensor([0.0, 0.0, 0.0, 1.0]).unsqueeze(-1)
    values = torch.tensor([0.0, 0.5, 0.0, 0.0, 0.0]).unsqueeze(-1)  # step 1 is worse than expected
    got = upgoing_advantages(zeros, torch.ones(4, 1), rewards, values)
    assert got.squeeze(-1).tolist() == [0.5, 0.5, 1.0, 1.0]


def corrected(batch, **settings):
    config = UpgoingConfig(**settings)
    log_rhos = torch.linspace(-1, 1, batch.reward.numel()).view_as(batch.reward)
    log_rhos = log_rhos.masked_fill(batch.reset_row, -math.inf)
    values = torch.linspace(-2, 2, batch.first.numel()).view(batch.first.shape)
    return Upgoing.correct(config, batch, log_rhos, values, None)


def test_without_its_settings_it_is_impala():
    batch, config = make_batch(), UpgoingConfig()
    ours = Upgoing(config).loss(make_small_model(), batch)
    theirs = Impala(config).loss(make_small_model(), batch)
    assert torch.equal(ours.total, theirs.total)


def test_the_weight_counts_and_targets_stay():
    batch = make_batch()
    plain, once, twice = (corrected(batch, upgoing_weight=weight) for weight in (0.0, 1.0, 2.0))
    assert torch.equal(once.targets, plain.targets)
    added = once.advantages - plain.advantages
    assert added.abs().sum() > 0
    torch.testing.assert_close(twice.advantages - plain.advantages, 2 * added)
    assert not added[batch.reset_row].any()


def test_replayed_steps_push_nothing_down_and_new_ones_do():
    batch = make_batch()
    plain, successes = corrected(batch), corrected(batch, replay_successes=True)
    online = batch.is_online.expand_as(plain.advantages)
    assert torch.equal(successes.advantages[online], plain.advantages[online])
    assert (plain.advantages[online] < 0).any()
    assert torch.equal(successes.advantages[~online], plain.advantages[~online].clamp(min=0))
    assert (plain.advantages[~online] < 0).any()


@pytest.mark.parametrize("weight", [-0.5, math.nan])
def test_a_weight_below_zero_is_refused(weight):
    with pytest.raises(ConfigError, match=r"upgoing_weight is .*, expected 0 or more"):
        UpgoingConfig(upgoing_weight=weight)


def test_the_flags_of_the_queue_reach_it():
    arguments = '{"upgoing_weight": 1, "replay_successes": true}'
    flags = Flags(algorithm=UPGOING, algorithm_kwargs=arguments)
    algorithm = make_algorithm(flags)
    assert isinstance(algorithm, Upgoing)
    assert algorithm.config.upgoing_weight == 1
    assert algorithm.config.replay_successes
    assert algorithm.config.lambda_ == flags.vtrace_lambda


def test_a_run_with_it_trains(tmp_path):
    arguments = '{"upgoing_weight": 1, "replay_successes": true}'
    whole, records = trained(
        new_folder(tmp_path / "run"), steps=200, algorithm=UPGOING, algorithm_kwargs=arguments
    )
    assert whole.updates > 0
    assert math.isfinite(records[-1].values["loss/policy"])
