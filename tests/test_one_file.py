"""The reader's door, examples/one_file.py: its loss is the platform's, and it learns."""

import importlib.util
import sys

import pytest
import torch

from ritornello.agent.algorithms.base import ImpalaConfig
from ritornello.agent.algorithms.batch import forward
from ritornello.agent.algorithms.impala import Impala
from tests.agent.builders import make_batch, make_small_model
from tests.house import ROOT

FILE = ROOT / "examples" / "one_file.py"


@pytest.fixture(scope="module")
def one_file():
    spec = importlib.util.spec_from_file_location("one_file", FILE)
    module = sys.modules["one_file"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["one_file"]


@pytest.mark.parametrize("seed", range(2))
def test_its_loss_on_a_batch_is_that_of_the_platform(one_file, seed):
    model, batch = make_small_model(), make_batch(seed=seed)
    config = ImpalaConfig(
        discount=one_file.GAMMA,
        lambda_=one_file.LAMBDA,
        value_cost=one_file.VALUE_COST,
        entropy_cost=one_file.ENTROPY_COST,
        reward_transform="none",
    )
    theirs = Impala(config).loss(model, batch)
    seen = forward(model, batch)
    unrolls = one_file.Unroll(
        obs=batch.obs,
        action=batch.action,
        reward=batch.reward,
        terminated=batch.terminated,
        reset_row=batch.reset_row,
        logits=batch.behaviour_params,
    )
    logits, values = seen.heads.params, seen.heads.value
    ours = one_file.loss_of(logits, values, unrolls)
    torch.testing.assert_close(ours, theirs.total)
    ours.backward()
    own = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    theirs.total.backward()
    for one, other in zip(own, model.parameters(), strict=True):
        torch.testing.assert_close(one, other.grad)


def test_an_unroll_bootstraps_from_the_true_last_observation(one_file):
    """CartPole: the row after the end of an episode is a reset row with the reward 0."""
    torch.manual_seed(0)
    actors = one_file.Actors("CartPole-v1", seed=3)
    model = one_file.ActorCritic((4,), 2)
    first, second = actors.play(model), actors.play(model)
    unroll = first[0]
    assert torch.equal(unroll.obs[-1], second[0].obs[0])
    assert unroll.obs.shape == (one_file.T + 1, 4)
    resets = [unroll.reset_row for unroll in (*first, *second)]
    assert any(reset.any() for reset in resets)
    for unroll in (*first, *second):
        assert torch.equal(unroll.terminated[:-1], unroll.reset_row[1:])
        assert not unroll.reward[unroll.reset_row].any()
        over = unroll.obs[:-1][unroll.reset_row]
        assert (over[:, 0].abs().gt(2.4) | over[:, 2].abs().gt(0.209)).all()


@pytest.mark.learning
@pytest.mark.slow
def test_it_learns(one_file):
    assert one_file.train("CartPole-v1", 200_000, seed=1, replay=0.5, lr=5e-4) >= 300


@pytest.mark.parametrize(("share", "new_in_each"), [(0.0, 8), (0.75, 2), (0.99, 1)])
def test_each_new_unroll_is_in_one_batch_whatever_is_replayed(one_file, share, new_in_each):
    parts = [torch.zeros(1)] * 5
    new = [one_file.Unroll(torch.tensor([number]), *parts) for number in range(16)]
    batches = one_file.MixedReplay(share, seed=1).batches(new, size=8)
    assert [batch.obs.shape for batch in batches] == [(1, 8)] * (16 // new_in_each)
    first = torch.cat([batch.obs[0, :new_in_each] for batch in batches])
    assert first.tolist() == list(range(16))
