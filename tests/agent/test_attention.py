import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from ritornello.agent.models.attention import (
    BASIS_COUNT,
    HEADS,
    KEY_CHANNELS,
    AttentionTorso,
    ConvLstm,
    attend,
    spatial_basis,
)
from ritornello.agent.models.base import Inputs
from ritornello.agent.models.factory import ModelConfig, make_model
from ritornello.agent.models.initialisation import fill_gate_bias
from ritornello.agent.models.networks import NetworkRequest
from tests.agent.builders import make_spec

SPEC = make_spec((2, 40, 34), actions=3)
SMALL = {"name": "attention", "feature_count": 12, "lstm_size": 16}
EXTRAS = {"use_last_action": True, "use_last_reward": True}


def make_attention(spec=SPEC, seed=0, **config):
    return make_model(ModelConfig(**{**SMALL, **EXTRAS, **config}), spec, seed=seed)


def random_inputs(rows=5, columns=3, *, resets=0.0, seed=0, spec=SPEC):
    draw = torch.Generator().manual_seed(seed)
    shape = (rows, columns, *spec.obs_shape)
    return Inputs(
        obs=torch.randint(0, 256, shape, dtype=torch.uint8, generator=draw),
        first=torch.rand(rows, columns, generator=draw) < resets,
        last_action=torch.randint(0, spec.action_count, (rows, columns), generator=draw),
        last_reward=torch.randn(rows, columns, generator=draw),
        task_id=None,
    )


def row_of(inputs, row):
    obs, first, action, reward, task_id, _ = inputs
    return Inputs(obs[row], first[row], action[row], reward[row], task_id)


def random_state(model, columns=3, seed=5):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(columns, model.state_count, generator=draw)


def attend_loops(cells, queries, basis):
    """One query, one cell and one channel after the other."""
    columns, places, channels = cells.shape
    heads = queries.shape[1]
    answers = torch.zeros(columns, heads, channels - KEY_CHANNELS + len(basis))
    maps = torch.zeros(columns, heads, places)
    for column in range(columns):
        for head in range(heads):
            logits = []
            for place in range(places):
                key = torch.cat([cells[column, place, :KEY_CHANNELS], basis[:, place]])
                logits.append(float(key.dot(queries[column, head])))
            total = sum(math.exp(logit) for logit in logits)
            for place in range(places):
                weight = math.exp(logits[place]) / total
                value = torch.cat([cells[column, place, KEY_CHANNELS:], basis[:, place]])
                answers[column, head] += weight * value
                maps[column, head, place] = weight
    return answers, maps


def random_map(places=6, channels=11, basis_count=5, seed=0):
    draw = torch.Generator().manual_seed(seed)
    cells = torch.randn(2, places, channels, generator=draw)
    queries = torch.randn(2, 3, KEY_CHANNELS + basis_count, generator=draw) / 2
    return cells, queries, torch.randn(basis_count, places, generator=draw)


def test_attention_equals_a_loop_over_heads_cells_and_channels():
    found, expected = attend(*random_map()), attend_loops(*random_map())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("height", "width"), [(11, 11), (27, 20), (5, 9)])
def test_the_spatial_basis_is_made_of_products_of_cosines(height, width):
    basis = spatial_basis(height, width)
    assert basis.shape == (BASIS_COUNT, height * width) == (64, height * width)
    for u, v, i, j in [(0, 0, 2, 3), (1, 0, 4, 1), (3, 7, 1, 4), (7, 2, 0, 0)]:
        expected = math.cos(math.pi * u * (i + 0.5) / height)
        expected *= math.cos(math.pi * v * (j + 0.5) / width)
        assert basis[8 * u + v, i * width + j].item() == pytest.approx(expected, abs=1e-5)


def test_a_convolutional_lstm_on_one_cell_is_an_lstm():
    torch.manual_seed(0)
    layer = ConvLstm(3, 4)
    fill_gate_bias(layer.from_input.bias, forget=0.5)
    cell = torch.nn.LSTMCell(3, 4)
    cell.weight_ih.data = layer.from_input.weight.data[:, :, 1, 1]  # the rest sees padding
    cell.weight_hh.data = layer.from_state.weight.data[:, :, 1, 1]
    cell.bias_ih.data, cell.bias_hh.data = layer.from_input.bias.data, torch.zeros(16)
    x, h, c = torch.randn(2, 3), torch.randn(2, 4), torch.randn(2, 4)
    after = layer(layer.look(x[:, :, None, None]), h[:, None, None], c[:, None, None])
    for found, expected in zip(after, cell(x, (h, c)), strict=True):
        torch.testing.assert_close(found[:, 0, 0], expected)


@pytest.mark.parametrize(
    ("shape", "grid"), [((3, 210, 160), (27, 20)), ((4, 84, 84), (11, 11)), ((1, 96, 60), (12, 8))]
)
def test_any_frame_gives_a_map_and_the_papers_frame_gives_the_papers_map(shape, grid):
    torso = AttentionTorso(NetworkRequest(shape, feature_count=128))
    assert torso.map_shape == (64, *grid)
    assert torso.convs[0].out_channels == 32
    assert torso(torch.zeros(2, *shape, dtype=torch.uint8)).shape == (2, torso.feature_count)


def test_maps_are_where_the_next_action_looks_and_sum_to_one():
    model, inputs = make_attention(), random_inputs()
    maps = model.attention_maps(row_of(inputs, 0), random_state(model))
    assert maps.shape == (3, HEADS, *model.torso_net.map_shape[1:])
    assert (maps >= 0).all()
    torch.testing.assert_close(maps.sum((-2, -1)), torch.ones(3, HEADS))


def test_acting_step_by_step_gives_what_learning_computes_at_once_over_resets():
    model = make_attention(use_task_id=True)
    inputs = random_inputs(rows=6, resets=0.3)
    assert inputs.first[1:].any()
    with torch.no_grad():
        state = random_state(model)
        hidden, after = model.hidden(model.torso(inputs.obs), inputs, state)
        expected = model.heads(hidden)
        for row in range(6):
            _, heads, state = model(row_of(inputs, row), state)
            torch.testing.assert_close(heads.params, expected.params[row], rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(heads.value, expected.value[row], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(state, after, rtol=1e-4, atol=1e-5)


def test_a_reset_empties_both_memories():
    model, inputs = make_attention(), random_inputs(rows=1)
    first = torch.tensor([True, False, True])
    inputs = row_of(inputs, 0)._replace(first=first)
    state = random_state(model)
    *_, after = model(inputs, state)
    *_, fresh = model(inputs, torch.where(first[:, None], 0, state))
    *_, other = model(inputs, state.masked_fill(~first[:, None], 0))
    assert torch.equal(after, fresh)
    memory = math.prod(model.core.vision_shape)
    assert model.state_count == 2 * memory + 2 * 16
    changed = (after != other).any(0)
    assert changed[: 2 * memory].any()  # a column without a reset does remember, in both
    assert changed[2 * memory :].any()


def test_a_gradient_flows_back_to_where_it_is_cut():
    model, inputs = make_attention(), random_inputs(rows=5)
    first = torch.zeros(5, 3, dtype=torch.bool)
    first[2, 0] = True
    keep = torch.ones(5, 3, dtype=torch.bool)
    keep[3, 1] = False
    inputs = inputs._replace(first=first)
    features = model.torso(inputs.obs).detach().requires_grad_()
    hidden, _ = model.hidden(features, inputs, random_state(model), keep)
    hidden[-1].sum().backward()
    reached = features.grad.abs().sum(-1) > 0
    assert torch.equal(reached, torch.arange(5)[:, None] >= torch.tensor([2, 3, 0]))


PATCH = 6  # pixels; the frame is 6 x 6 patches
GRID = 6


def bright_cell_episodes(draw, steps=2, columns=24):
    """One patch of a noisy frame is bright; the action is the quarter of the frame it is in."""
    obs = torch.randint(0, 60, (steps, columns, 1, 36, 36), dtype=torch.uint8, generator=draw)
    row, column = torch.randint(0, GRID, (2, columns), generator=draw)
    for index in range(columns):
        y, x = PATCH * row[index], PATCH * column[index]
        obs[:, index, :, y : y + PATCH, x : x + PATCH] = 250
    first = torch.zeros(steps, columns, dtype=torch.bool)
    first[0] = True
    nothing = torch.zeros(steps, columns)
    action = (row >= GRID // 2) * 2 + (column >= GRID // 2)
    return Inputs(obs, first, nothing.long(), nothing, None), action


def test_attention_finds_the_bright_cell():
    model = make_attention(make_spec((1, 36, 36), actions=4), feature_count=16, lstm_size=32)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    draw = torch.Generator().manual_seed(0)

    def examine():
        inputs, action = bright_cell_episodes(draw, columns=200)
        with torch.no_grad():
            *_, state = model(row_of(inputs, 0), model.initial_state(200))
            _, heads, _ = model(row_of(inputs, 1), state)
        return (heads.params.argmax(-1) == action).float().mean().item()

    assert examine() < 0.5
    for _ in range(120):
        inputs, action = bright_cell_episodes(draw)
        model.observe(inputs.obs)
        hidden, _ = model.hidden(model.torso(inputs.obs), inputs, model.initial_state(24))
        loss = cross_entropy(model.heads(hidden[-1]).params, action)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert examine() > 0.95
