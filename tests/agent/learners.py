"""Learners with everything that moves in an update, and batches from which nobody can learn."""

import copy
from dataclasses import replace

import pytest
import torch

from ritornello.agent.algorithms.base import ImpalaConfig
from ritornello.agent.algorithms.impala import Impala
from ritornello.agent.algorithms.q_lambda import QLambda, QLambdaConfig
from ritornello.agent.learning.bad_updates import NonFiniteUpdate
from ritornello.agent.learning.learner import Learner
from ritornello.agent.learning.optim import OptimiserConfig, learning_rate, make_optimiser
from tests.agent.builders import make_batch, make_small_model, make_spec

# Sums of raw terms: what a number in a test makes of the loss can be said by hand.
RAW = {
    "reward_transform": "none", "lambda_": 1.0, "entropy_cost": 0.01,
    "advantage_normalisation": "none", "loss_reduction": "sum",
}  # fmt: skip
CONFIG = ImpalaConfig(**RAW)


def make_learner(model=None, *, config=CONFIG, optimiser=None, **options):
    model = model or make_small_model()
    optimiser_config = OptimiserConfig(lr=1e-3, lr_end=0.0)
    return Learner(
        model,
        (QLambda if isinstance(config, QLambdaConfig) else Impala)(config),
        optimiser or make_optimiser(optimiser_config, model),
        lambda progress: learning_rate(optimiser_config, progress),
        **options,
    )


def snapshot(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(one, two):
    """Whether two nested state dicts are equal, tensors bit by bit."""
    if isinstance(one, torch.Tensor):
        alike = one.dtype == two.dtype and one.shape == two.shape
        return alike and one.cpu().numpy().tobytes() == two.cpu().numpy().tobytes()
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[k], two[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(same, one, two))
    return one == two


# What else moves in an update: PopArt, mean images and vectors, a memory, several games, moments.
WITH_EVERYTHING = [
    pytest.param({}, {}, id="plain"),
    pytest.param({"popart": True}, {}, id="popart"),
    pytest.param({"name": "impala_shallow"}, {}, id="pixels"),
    pytest.param({"normalise_vectors": True}, {}, id="vectors"),
    pytest.param({"use_lstm": True, "lstm_size": 8, "use_last_reward": True}, {}, id="lstm"),
    pytest.param({"popart": True}, {"tasks": 2}, id="games"),
    pytest.param(
        {"popart": True, "name": "impala_shallow", "use_lstm": True, "lstm_size": 8},
        {"tasks": 2},
        id="all",
    ),
]


def learner_and_batch(model, batch, optimiser="adam"):
    """A learner that has made two updates, and its next batch."""
    spec = make_spec((2, 44, 40)) if "name" in model else make_spec()
    model = make_small_model(spec, **model, **batch, popart_step_size=0.3)
    config = OptimiserConfig(name=optimiser, lr=1e-3)
    learner = make_learner(model, optimiser=make_optimiser(config, model))
    batches = [
        make_batch(spec, seed=seed, state_count=model.state_count, **batch) for seed in range(3)
    ]
    for first in batches[:2]:
        learner.step(first, 0.1)
    return learner, batches[2]


def with_bad_reward(batch, value=float("nan")):
    reward = batch.reward.clone()
    reward[0, 3] = value
    return replace(batch, reward=reward)


def fail_to_step(learner, batch, progress=0.7, match=None):
    """Give the learner a batch from which it cannot learn; nothing at all may have moved."""
    before = copy.deepcopy(learner.state_dict())
    with pytest.raises(NonFiniteUpdate, match=match) as caught:
        learner.step(batch, progress)
    assert same(before, learner.state_dict())
    assert all(parameter.grad is None for parameter in learner.model.parameters())
    return caught.value
