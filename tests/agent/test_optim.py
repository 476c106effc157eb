import copy
import math

import pytest
import torch

from ritornello.agent.learning.optim import (
    OptimiserConfig,
    RMSpropTF,
    learning_rate,
    load_moments,
    make_optimiser,
)
from ritornello.core.saved_state import StateError
from ritornello.flags.options import Flags
from tests.agent.builders import make_small_model


def test_rmsprop_tf_equals_tensorflows_rule_by_hand():
    parameter = torch.tensor([2.0, -1.0], requires_grad=True)
    optimiser = RMSpropTF([parameter], lr=0.1, alpha=0.9, eps=0.01)
    values, squares = [2.0, -1.0], [1.0] * 2
    for gradients in ([0.5, -3.0], [0.001, 2.0], [-1.0, 0.0]):
        parameter.grad = torch.tensor(gradients)
        optimiser.step()
        for i, g in enumerate(gradients):
            squares[i] = 0.9 * squares[i] + 0.1 * g * g
            values[i] -= 0.1 * g / math.sqrt(squares[i] + 0.01)
        torch.testing.assert_close(parameter.detach(), torch.tensor(values))


@pytest.mark.parametrize("name", ["rmsprop_tf", "rmsprop", "adam"])
def test_an_optimiser_continues_from_its_state(name):
    config = OptimiserConfig(name=name, lr=0.01)

    def steps(model, optimiser, count):
        for _ in range(count):
            optimiser.zero_grad()
            model.heads(model.torso(torch.ones(2, 6))).params[:, 0].square().sum().backward()
            optimiser.step()

    straight = make_small_model()
    optimiser = make_optimiser(config, straight)
    steps(straight, optimiser, 2)
    resumed = make_small_model()
    resumed.load_state_dict(straight.state_dict())
    other = make_optimiser(config, resumed)
    saved = copy.deepcopy(optimiser.state_dict())
    with pytest.raises(StateError, match=r"\['state'\]\[99\]"):
        load_moments(other, {"state": {99: saved["state"][0]}})
    load_moments(other, saved)
    steps(straight, optimiser, 1)
    steps(resumed, other, 1)
    for one, two in zip(straight.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize(
    ("changes", "progress", "expected"),
    [
        ({"schedule": "constant"}, 0.7, 8e-4),
        ({"schedule": "linear"}, 0.25, 6e-4),
        ({"schedule": "linear", "lr_end": 4e-4}, 0.5, 6e-4),
        ({"schedule": "polynomial"}, 0.5, 2e-4),
        ({"schedule": "linear", "lr_end": 1e-5}, 1.0, 1e-5),
        ({"schedule": "polynomial", "lr_end": 1e-5}, 7.0, 1e-5),
        ({"schedule": "linear"}, -1.0, 8e-4),
    ],
)
def test_the_learning_rate_is_a_function_of_progress(changes, progress, expected):
    config = OptimiserConfig(**{"lr": 8e-4, "lr_end": 0.0, **changes})
    assert learning_rate(config, progress) == pytest.approx(expected)


@pytest.mark.parametrize("wrong", [{"lr": 1e31}, {"lr": math.nan}, {"optimizer_eps": 1e-31}])
def test_rates_and_epsilons_that_float32_does_not_bear_are_refused(wrong):
    with pytest.raises(ValueError, match="must be from|greater than"):
        Flags(**wrong)


@pytest.mark.parametrize("name", ["adam", "rmsprop", "rmsprop_tf"])
@pytest.mark.parametrize("limit", [{"lr": 1e30}, {"epsilon": 1e-30}])
def test_within_the_limits_a_clipped_gradient_makes_finite_weights(name, limit):
    model = torch.nn.Linear(5, 1, bias=False)
    optimiser = make_optimiser(OptimiserConfig(name=name, **limit), model)
    for _ in range(40):
        model.weight.grad = torch.tensor([[0.0, 1e-30, 1e-20, 1.0, 1e7]])
        optimiser.step()
    assert model.weight.isfinite().all()
