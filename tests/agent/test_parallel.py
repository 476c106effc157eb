import os
import subprocess
import sys

import pytest
import torch

from tests.agent.builders import make_batch, make_small_model, make_spec
from tests.house import ROOT


def computed(model, batch, keep=None):
    """Hidden units, the state after the last row, and gradients of all that made them."""
    model.zero_grad()
    hidden, state = model.hidden(model.torso(batch.obs), batch.inputs(), batch.state, keep)
    (hidden.square() * torch.arange(hidden.shape[-1])).sum().backward()
    trained = [*model.torso_net.named_parameters(), *model.core.named_parameters()]
    return hidden.detach(), state.detach(), {name: p.grad.clone() for name, p in trained}


@pytest.mark.parametrize(("threads", "cut"), [(2, False), (2, True), (3, False)])
@pytest.mark.parametrize(
    "config",
    [
        {"name": "nature"},
        {"name": "resnet"},
        {"name": "nature", "use_lstm": True},
        {"name": "attention"},
    ],
)
def test_shares_in_threads_give_what_one_pass_gives(config, threads, cut):
    spec = make_spec(obs_shape=(4, 44, 40), stacked=4)
    extras = {"use_last_action": True, "use_last_reward": True}
    model = make_small_model(spec, **config, **extras, lstm_size=16)
    batch = make_batch(spec, size=5, state_count=model.state_count)
    keep = None
    if cut:
        keep = torch.ones_like(batch.first)
        keep[2, 1] = keep[2, 4] = False
    expected_hidden, expected_state, expected = computed(model, batch, keep)
    model.set_threads(threads)
    for _ in range(2):  # a second pass must not see anything of the first
        hidden, state, found = computed(model, batch, keep)
        # Sums in another order: equal but for the rounding of the largest terms.
        torch.testing.assert_close(hidden, expected_hidden, rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(state, expected_state, rtol=1e-5, atol=1e-4)
        for name, gradient in expected.items():
            assert (found[name] - gradient).abs().max() < 1e-4 * gradient.abs().max(), name


def test_threads_compute_in_the_precision_that_was_chosen():
    spec = make_spec(obs_shape=(4, 40, 40), stacked=4)
    model = make_small_model(spec, name="nature")
    batch = make_batch(spec)
    exact, *_ = computed(model, batch)
    model.set_precision("bf16")
    rounded, *_ = computed(model, batch)
    model.set_threads(2)
    in_threads, *_ = computed(model, batch)
    assert not torch.allclose(rounded, exact, rtol=1e-4)
    torch.testing.assert_close(in_threads, rounded, rtol=2e-2, atol=2e-2)


def test_an_error_in_a_thread_reaches_the_caller():
    model = make_small_model(make_spec(obs_shape=(6,)), name="mlp")
    model.set_threads(2)
    with pytest.raises(RuntimeError):
        model._parallel_torso(torch.zeros(4, 5), lambda share, _: share @ torch.zeros(4, 1))


FIRST_SHARES = """
import torch
from tests.agent.builders import make_small_model, make_spec
torch.set_num_threads(1)
model = make_small_model(make_spec(obs_shape=(20,)), feature_count=128)
obs = torch.randn(18, 20, generator=torch.Generator().manual_seed(0))
expected = torch.cat([model.torso(obs[:9]), model.torso(obs[9:])])
model.set_threads(2)
assert torch.equal(model.torso(obs), expected)
"""


def test_a_new_thread_computes_each_operator_as_its_maker_does():
    """By itself it has one thread per core for each, where the variable for all does not say so."""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    subprocess.run([sys.executable, "-c", FIRST_SHARES], cwd=ROOT, env=environment, check=True)
