import pytest
import torch
from torch import nn

from ritornello.agent.assembly import model_config
from ritornello.agent.models.base import Inputs
from ritornello.agent.models.extra_inputs import ExtraInputs
from ritornello.agent.models.pixels import OBSERVED_BATCHES
from ritornello.agent.models.recurrent import RecurrentCore
from ritornello.core.spec import CHOICE, ActionPart
from ritornello.flags.parsing import parse
from tests.agent.builders import make_batch, make_small_model, make_spec

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


@pytest.mark.parametrize("name", ["lstm", "attention"])
def test_a_gpu_can_record_the_step_of_an_actor_with_a_memory(name, refuse_questions):
    memory = {"use_lstm": True, "lstm_size": 8} if name == "lstm" else {"name": name}
    spec = make_spec((2, 44, 40)) if name == "attention" else make_spec()
    model, batch = make_small_model(spec, **memory), make_batch(spec)
    if (pixels := model.pixel_statistics()) is not None:
        pixels.batches.fill_(OBSERVED_BATCHES)
    inputs = Inputs(*(None if part is None else part[0] for part in batch.inputs()))
    state = torch.ones(len(inputs.first), model.state_count)
    with torch.inference_mode():
        model(inputs, state)  # as before a recording
        refuse_questions()
        model(inputs, state)


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
