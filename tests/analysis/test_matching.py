from __future__ import annotations

import copy
from itertools import permutations

import numpy as np
import pytest
import torch

from ritornello.analysis import matching
from ritornello.analysis.matching import ConvLayer, conv_layers, distances, squared_distances
from ritornello.core.errors import ConfigError
from tests.agent.builders import make_small_model, make_spec


def make_model(name="resnet", seed=0):
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
def test_units_in_another_order_are_at_distance_0_where_matches_are_propagated(name):
    model = make_model(name)
    for parameter in model.torso_net.parameters():  # biases too: they are reordered as well
        parameter.data = torch.randn_like(parameter) * 0.1
    other, orders = reordered(model)
    obs = torch.randint(0, 256, (3, 2, 36, 36), dtype=torch.uint8)
    # That it computes the same says that `reads` and `adds_to` are those of the network.
    torch.testing.assert_close(other.torso(obs), model.torso(obs), rtol=1e-3, atol=1e-3)

    one, two = conv_layers(model.torso_net), conv_layers(other.torso_net)
    assert len(one) == {"impala_shallow": 2, "resnet": 15}[name]
    for layer, order in zip(distances(one, two, propagate=True), orders, strict=True):
        assert layer.optimal == pytest.approx(0, abs=1e-9)
        assert layer.default > 0.1
        np.testing.assert_array_equal(layer.order, np.argsort(order))
    alone = distances(one, two)
    assert alone[0].optimal == pytest.approx(0, abs=1e-9)
    assert all(0.01 < layer.optimal < layer.default for layer in alone[1:])


def test_the_match_is_the_best_of_all_and_the_kernels_of_a_layer_are_free():
    draw = np.random.default_rng(1)
    one, two = (draw.normal(size=(4, 1, 2, 3)).astype(np.float32) for _ in range(2))
    layers = [[ConvLayer("a", weight, None, None)] for weight in (one, two)]
    (found,) = distances(*layers)
    sums = [
        np.mean([np.square(one[i] - two[j]).sum() for i, j in enumerate(order)])
        for order in permutations(range(4))
    ]
    assert found.optimal == pytest.approx(min(sums), rel=1e-5)
    assert found.default == pytest.approx(sums[0], rel=1e-5)
    assert found.optimal < found.default

    # One filter's kernels in another order: the same kernels, but another filter.
    turned = one.reshape(2, 2, 2, 3)
    layers = [[ConvLayer("a", weight, None, None)] for weight in (turned, turned[:, ::-1])]
    assert distances(*layers, unit="kernels")[0].optimal == pytest.approx(0, abs=1e-9)
    assert distances(*layers)[0].optimal > 0.1


def test_squared_distances_are_those_of_plain_loops():
    draw = np.random.default_rng(2)
    one, two = draw.normal(size=(3, 5)), draw.normal(size=(4, 5))
    loops = [[sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) for y in two] for x in one]
    np.testing.assert_allclose(squared_distances(one, two), loops)


def test_what_cannot_be_matched_is_refused(monkeypatch):
    one, two = conv_layers(make_model().torso_net), conv_layers(make_model("elite").torso_net)
    with pytest.raises(ConfigError, match=r"other convolutions.*\(16, 2, 3, 3\).*\(64, 2, 3, 3\)"):
        distances(one, two)
    with pytest.raises(ConfigError, match="only whole filters"):
        distances(one, one, unit="kernels", propagate=True)
    monkeypatch.setattr(matching, "MAX_UNITS", 100)
    with pytest.raises(ConfigError, match="has 256 kernels, at most 100"):
        distances(one, one, unit="kernels")
