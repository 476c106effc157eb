from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from ritornello.agent.models.factory import ModelConfig, make_model
from ritornello.analysis.layers import (
    FEATURES,
    centred_gram,
    conv_layers,
    distances,
    layer_grams,
    linear_cka,
)
from ritornello.core.spec import EnvSpec
from tests.agent.builders import make_small_model, make_spec


def network(name="resnet", seed=0):
    return make_small_model(make_spec((2, 36, 36), stacked=2), name=name, seed=seed)


def reordered(model, seed=0):
    """Return a model that computes the same with its units in another order, and the orders."""
    draw = np.random.default_rng(seed)
    other = copy.deepcopy(model)
    layers = conv_layers(model.torso_net)
    orders: list[np.ndarray] = []
    stream = 0
    for number, layer in enumerate(layers):
        conv = other.torso_net.get_submodule(layer.name)
        if layer.adds_to is None:
            order = draw.permutation(len(layer.weight))
        else:
            order = orders[layer.adds_to]
        is_inner = number + 1 < len(layers) and layers[number + 1].adds_to is not None
        if layer.adds_to is None and not is_inner:
            stream = number
        orders.append(order)
        weight = conv.weight.data[order]
        conv.weight.data = weight if layer.reads is None else weight[:, orders[layer.reads]]
        conv.bias.data = conv.bias.data[order]
    linear = other.torso_net.linear
    columns = linear.weight.data.unflatten(1, (len(orders[stream]), -1))
    linear.weight.data = columns[:, orders[stream]].flatten(1)
    return other, orders


@pytest.mark.parametrize("name", ["impala_shallow", "resnet"])
def test_units_in_another_order_are_at_distance_0(name):
    model = network(name)
    for parameter in model.torso_net.parameters():  # biases too: they are reordered as well
        parameter.data = torch.randn_like(parameter) * 0.1
    other, orders = reordered(model)
    obs = torch.randint(0, 256, (3, 2, 36, 36), dtype=torch.uint8)
    # That it computes the same says that `reads` and `adds_to` are those of the network.
    torch.testing.assert_close(other.torso(obs), model.torso(obs), rtol=1e-3, atol=1e-3)

    one, two = conv_layers(model.torso_net), conv_layers(other.torso_net)
    assert len(one) == {"impala_shallow": 2, "resnet": 15}[name]
    for layer, order in zip(distances(one, two), orders, strict=True):
        assert layer.optimal == pytest.approx(0, abs=1e-9)
        assert layer.default > 0.1
        np.testing.assert_array_equal(layer.order, np.argsort(order))


def cka(one, two):
    return linear_cka(centred_gram(one), centred_gram(two))


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_it_is_the_formula_of_the_paper():
    x, y = draw(40, 7, seed=1), draw(40, 5, seed=2)
    y[:, :3] += 2 * x[:, :3]
    x_centred, y_centred = x - x.mean(0), y - y.mean(0)
    covariance = (y_centred.T @ x_centred).norm() ** 2
    paper = covariance / ((x_centred.T @ x_centred).norm() * (y_centred.T @ y_centred).norm())
    assert 0.2 < paper < 0.9
    assert cka(x, y) == pytest.approx(float(paper), rel=1e-5)


def test_each_game_is_seen_through_its_own_statistics():
    spec = EnvSpec("Dark-v0,Bright-v0", (1, 42, 42), "uint8", 1, ("0", "1"), 1)
    model = make_model(ModelConfig(name="resnet", feature_count=16), spec).eval()
    games = torch.arange(2).repeat_interleave(6)
    ranges = torch.tensor([60, 200]).repeat_interleave(6)[:, None, None, None]
    obs = (torch.rand(12, 1, 42, 42) * 50 + ranges).to(torch.uint8)
    model.observe(obs, games)
    with torch.no_grad():
        expected = [centred_gram(model.torso(obs, seen)) for seen in (games, None)]
    found = layer_grams(model, obs, games)[FEATURES]
    torch.testing.assert_close(found, expected[0])
    assert not torch.allclose(found, expected[1], rtol=0.1)


@pytest.mark.parametrize("name", ["impala_shallow", "resnet"])
def test_layers_are_looked_at_before_their_nonlinearity(name):
    model = make_small_model(make_spec((2, 36, 36), stacked=2), name=name).eval()
    obs = torch.randint(0, 256, (12, 2, 36, 36), dtype=torch.uint8)
    with torch.no_grad():
        grams = layer_grams(model, obs, torch.zeros(12, dtype=torch.int64))
        first = model.torso_net.convs[0](obs)  # what an inplace ReLU would have changed
        features = model.torso(obs)
    assert len(grams) == {"impala_shallow": 3, "resnet": 16}[name]
    assert first.min() < 0
    torch.testing.assert_close(grams["convs.0"], centred_gram(first))
    torch.testing.assert_close(grams[FEATURES], centred_gram(features))
    assert not any(module._forward_hooks for module in model.modules())
