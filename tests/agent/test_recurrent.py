import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from ritornello.agent.assembly import model_config
from ritornello.agent.models.base import Inputs
from ritornello.agent.models.extra_inputs import ExtraInputs
from ritornello.agent.models.recurrent import RecurrentCore
from ritornello.core.spec import CHOICE, ActionPart
from ritornello.flags.parsing import parse
from tests.agent.builders import make_small_model, make_spec

THREE_ACTIONS = (ActionPart(CHOICE, 3),)

ROWS, COLUMNS, FEATURES, HIDDEN = 7, 4, 5, 6


def random_inputs(rows=ROWS, columns=COLUMNS, *, resets=0.3, actions=3, tasks=1, seed=0):
    """Inputs without observations; about `resets` of the rows start an episode."""
    draw = torch.Generator().manual_seed(seed)
    return Inputs(
        obs=torch.empty(rows, columns, 0),
        first=torch.rand(rows, columns, generator=draw) < resets,
        last_action=torch.randint(0, actions, (rows, columns), generator=draw),
        last_reward=torch.randn(rows, columns, generator=draw) * 3,
        task_id=torch.arange(columns) % tasks,
    )


def random_features(seed=1):
    return torch.randn(ROWS, COLUMNS, FEATURES, generator=torch.Generator().manual_seed(seed))


def make_core(layers=2, extras=None, seed=0):
    core = RecurrentCore(FEATURES, extras or ExtraInputs(THREE_ACTIONS, True, 2), HIDDEN, layers)
    core.initialise(torch.Generator().manual_seed(seed))
    return core


def random_state(core, seed=2):
    shape = (COLUMNS, core.state_count)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_extra_inputs_are_action_reward_and_task_in_this_order():
    extras = ExtraInputs(actions=THREE_ACTIONS, reward=True, task_count=2)
    inputs = Inputs(
        obs=torch.empty(2, 2, 0),
        first=torch.tensor([[True, False], [False, False]]),
        last_action=torch.tensor([[2, 2], [0, 1]]),
        last_reward=torch.tensor([[5.0, -0.25], [7.0, -9.0]]),
        task_id=torch.tensor([0, 1]),
    )
    expected = torch.tensor(
        [
            [[0, 0, 0, 0, 1, 0], [0, 0, 1, -0.25, 0, 1]],  # nothing is known after a reset
            [[1, 0, 0, 1, 1, 0], [0, 1, 0, -1, 0, 1]],  # rewards are clamped
        ]
    )
    assert extras.count == 6
    assert torch.equal(extras.encode(inputs), expected)


def loops(core, features, inputs, state):
    """One environment after the other, one row after the other, one layer after the other."""
    cells = []
    for layer in range(core.lstm.num_layers):
        cell = nn.LSTMCell(getattr(core.lstm, f"weight_ih_l{layer}").shape[1], HIDDEN)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(cell, name).data = getattr(core.lstm, f"{name}_l{layer}").data
        cells.append(cell)
    extras = core.extras.encode(inputs)
    rows, columns = inputs.first.shape
    hidden, states = torch.zeros(rows, columns, HIDDEN), torch.zeros(columns, core.state_count)
    for column in range(columns):
        parts = [part.clone() for part in state[column].split(HIDDEN)]
        h, c = parts[: len(cells)], parts[len(cells) :]
        for row in range(rows):
            x = torch.cat([features[row, column], extras[row, column]])
            for layer, cell in enumerate(cells):
                if inputs.first[row, column]:
                    h[layer], c[layer] = torch.zeros(HIDDEN), torch.zeros(HIDDEN)
                h[layer], c[layer] = cell(x, (h[layer], c[layer]))
                x = h[layer]
            hidden[row, column] = x
        states[column] = torch.cat(h + c)
    return hidden, states


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("resets", [0.0, 0.1, 0.5, 1.0])
def test_the_lstm_equals_a_loop_over_environments_rows_and_layers(layers, resets):
    core, inputs = make_core(layers), random_inputs(resets=resets, tasks=2)
    state = random_state(core)
    assert core.state_count == 2 * layers * HIDDEN
    with torch.no_grad():
        hidden, after = core(random_features(), inputs, state, None)
        expected_hidden, expected_after = loops(core, random_features(), inputs, state)
    torch.testing.assert_close(hidden, expected_hidden, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(after, expected_after, rtol=1e-4, atol=1e-5)


def reached(inputs, row, keep_gradient=None):
    """Which features [T, B] the hidden units of `row` depend on, by their gradient."""
    core, features = make_core(), random_features().requires_grad_()
    hidden, _ = core(features, inputs, random_state(core), keep_gradient)
    hidden[row].sum().backward()
    return features.grad.abs().sum(-1) > 0


def test_a_gradient_flows_back_to_the_last_reset_and_no_further():
    first = torch.zeros(ROWS, COLUMNS, dtype=torch.bool)
    first[2, 1] = first[5, 1] = first[4, 2] = first[0, 3] = True
    found = reached(random_inputs()._replace(first=first), row=6)
    starts = torch.tensor([0, 5, 4, 0])
    assert torch.equal(found, torch.arange(ROWS)[:, None] >= starts)


def test_a_gradient_stops_where_it_is_not_kept():
    keep = torch.ones(ROWS, COLUMNS, dtype=torch.bool)
    keep[3, 0] = keep[1, 2] = keep[4, 2] = False
    inputs = random_inputs(resets=0.0)
    found = reached(inputs, row=5, keep_gradient=keep)
    rows = torch.arange(ROWS)[:, None]
    assert torch.equal(found, (rows >= torch.tensor([3, 0, 4, 0])) & (rows <= 5))
    before = reached(inputs, row=2, keep_gradient=keep)  # what is cut later is still learned from
    assert torch.equal(before, (rows >= torch.tensor([0, 0, 1, 0])) & (rows <= 2))


@pytest.mark.parametrize(
    ("argv", "action", "reward"),
    [
        ([], False, False),
        (["--use_lstm=True"], True, True),
        (["--model=attention"], True, True),
        (["--use_lstm=True", "--use_last_action=False"], False, True),
        (["--use_last_reward=True"], False, True),
        (["--model=attention", "--use_last_reward=False"], True, False),
    ],
)
def test_a_model_that_remembers_sees_what_came_before_unless_one_says_otherwise(
    argv, action, reward
):
    config = model_config(parse(argv))
    assert (config.use_last_action, config.use_last_reward) == (action, reward)


def learn(model, make_episodes, *, updates, lr=5e-3, seed=0):
    """Imitate what is right in random episodes; return the share of right answers at the end.

    make_episodes: generator -> (inputs [T, B], right action [T, B], counted [T, B] bool).
    """
    draw = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=lr)
    for update in range(updates + 1):
        inputs, action, counted = make_episodes(draw)
        state = model.initial_state(inputs.first.shape[1])
        hidden, _ = model.hidden(model.torso(inputs.obs), inputs, state)
        params = model.heads(hidden, inputs.task_id).params
        if update == updates:
            return (params.argmax(-1) == action)[counted].float().mean().item(), params
        optimiser.zero_grad()
        cross_entropy(params[counted], action[counted]).backward()
        optimiser.step()
    raise AssertionError("unreachable")


def recall_episodes(draw, steps=8, columns=32):
    """A cue is shown at the first step, then nothing; it has to be named at the last."""
    cue = torch.randint(0, 2, (columns,), generator=draw)
    obs = torch.zeros(steps, columns, 2)
    obs[0, torch.arange(columns), cue] = 1
    first = torch.zeros(steps, columns, dtype=torch.bool)
    first[0] = True
    nothing = torch.zeros(steps, columns)
    counted = torch.zeros(steps, columns, dtype=torch.bool)
    counted[-1] = True
    inputs = Inputs(obs, first, nothing.long(), nothing, None)
    return inputs, cue.expand(steps, columns), counted


def test_an_lstm_recalls_a_cue_and_a_network_without_memory_cannot():
    spec = make_spec((2,), actions=2)
    model = make_small_model(spec, use_lstm=True, lstm_size=16)
    right, _ = learn(model, recall_episodes, updates=60)
    assert right == 1.0
    plain = make_small_model(spec, feature_count=32)
    _, params = learn(plain, recall_episodes, updates=5)
    assert torch.equal(params[-1], params[-1, :1].expand_as(params[-1]))  # whatever the cue was
