import hashlib

import numpy as np
import pytest
import torch

from ritornello.agent.acting.acting_model import FlatWeights
from ritornello.agent.machine import WeightFormat
from ritornello.agent.models.base import Inputs
from ritornello.agent.models.factory import ModelConfig, make_model
from ritornello.agent.models.networks import NetworkRequest
from ritornello.agent.models.torsos import IMAGE_TORSOS, ImageTorso, MlpTorso
from ritornello.core.errors import ConfigError, ShapeError
from ritornello.flags.parts import NETWORKS
from tests.agent.builders import make_batch, make_small_model, make_spec

IMAGE_SPEC = make_spec((4, 84, 84), actions=6, stacked=4)


def look(model, obs, task_id=None):
    """Heads of a model that looks at nothing but observations, whatever their leading dims."""
    return model.heads(model.torso(obs), task_id)


def make_inputs(obs, task_id=None):
    """Inputs of E environments in the middle of their episodes."""
    count = len(obs)
    first = torch.zeros(count, dtype=torch.bool)
    return Inputs(obs, first, torch.arange(count), torch.linspace(-2, 2, count), task_id)


@pytest.mark.parametrize("name", [*IMAGE_TORSOS, "mlp"])
def test_a_network_learns_a_toy_batch_and_every_parameter_gets_a_gradient(name):
    spec = make_spec((6,) if name == "mlp" else (2, 44, 40))
    model = make_small_model(spec, name=name, feature_count=64)
    obs = make_batch(spec, steps=5, size=1).obs.squeeze(1)
    if spec.is_image:
        for i in range(6):
            obs[i, :, : 7 * i] = 255  # noise with a white bar, so that a few steps suffice
    action, target = torch.arange(6) % 3, torch.linspace(-1, 1, 6)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3 if name == "mlp" else 1e-3)
    losses = []
    for _ in range(40):
        heads = look(model, obs)
        policy_loss = torch.nn.functional.cross_entropy(heads.params, action)
        loss = policy_loss + (heads.value - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        if not losses:  # later a ReLU may die
            assert all(p.grad is not None and p.grad.any() for p in model.parameters())
        optimiser.step()
        losses.append(loss.item())
    assert min(losses) < 0.5 * losses[0]


@pytest.mark.parametrize("name", list(IMAGE_TORSOS))
@pytest.mark.parametrize("shape", [(4, 84, 84), (3, 96, 60)])
def test_a_network_takes_any_frame_size_and_stack(name, shape):
    model = make_model(ModelConfig(name), make_spec(shape, actions=5))
    heads = look(model, torch.zeros(2, *shape, dtype=torch.uint8))
    assert model.feature_count == IMAGE_TORSOS[name][1]
    if name == "resnet" and shape == (4, 84, 84):  # the published one
        assert sum(isinstance(m, torch.nn.Conv2d) for m in model.modules()) == 15
        assert model.torso_net.linear.in_features == 11 * 11 * 32
    assert heads.params.shape == (2, 5)
    assert heads.value.shape == (2,)


@pytest.mark.parametrize(
    ("torso", "normalised"),
    [
        (ImageTorso("impala_shallow", NetworkRequest((4, 84, 84))), 0),
        (ImageTorso("impala_shallow", NetworkRequest((4, 84, 84), layer_norm="features")), 1),
        (ImageTorso("impala_shallow", NetworkRequest((4, 84, 84), layer_norm="all")), 3),
        (MlpTorso(NetworkRequest((7,))), 0),
        (MlpTorso(NetworkRequest((7,), layer_norm="features")), 1),
        (MlpTorso(NetworkRequest((7,), layer_norm="all")), 2),
    ],
    ids=lambda case: case if isinstance(case, int) else type(case).__name__,
)
def test_layers_are_normalised_before_their_activation(torso, normalised):
    outputs = []
    for layer in torso.modules():
        if isinstance(layer, (torch.nn.GroupNorm, torch.nn.LayerNorm)):
            layer.register_forward_hook(lambda *call: outputs.append(call[-1].flatten(1).clone()))
    if isinstance(torso, MlpTorso):
        features, activation = torso(torch.randn(5, 7)), torch.tanh
    else:
        seen = torch.randint(0, 256, (5, 4, 84, 84), dtype=torch.uint8)
        features, activation = torso(seen), torch.relu
    assert len(outputs) == normalised
    for output in outputs:
        torch.testing.assert_close(output.mean(1), torch.zeros(5), rtol=0, atol=1e-5)
        torch.testing.assert_close(output.var(1, correction=0), torch.ones(5), rtol=0.01, atol=0.01)
    if outputs:
        torch.testing.assert_close(features, activation(outputs[-1]))


@pytest.mark.parametrize(
    ("config", "shape", "said"),
    [
        (
            {"name": "resnet", "layer_norm": "all"},
            (4, 84, 84),
            "layer_norm is all.*resnet.*expected",
        ),
        ({"name": "resnet_light", "layer_norm": "all"}, (4, 84, 84), "layer_norm is all"),
        ({"name": "attention", "layer_norm": "features"}, (4, 84, 84), "layer_norm is features"),
        ({"name": "nature"}, (1, 20, 20), "nature.*20x20.*--model=resnet"),
        ({"name": "nature"}, (6,), "--model=mlp"),
        ({"name": "attention"}, (6,), "--model=mlp"),
        ({"name": "attention"}, (1, 4, 5), "attention.*4x5.*--frame_scale_resolution"),
        ({"name": "attention", "feature_count": 8}, (4, 84, 84), "more than 8"),
    ],
)
def test_a_network_that_does_not_fit_is_refused_with_advice(config, shape, said):
    with pytest.raises(ConfigError, match=said):
        make_model(ModelConfig(**config), make_spec(shape))


@pytest.mark.parametrize("leading", [(), (3,), (3, 2)])
def test_leading_dims_are_free_and_change_nothing(leading):
    model = make_small_model(IMAGE_SPEC, name="impala_shallow")
    obs = torch.randint(0, 256, (*leading, 4, 84, 84), dtype=torch.uint8)
    heads = look(model, obs)
    assert heads.params.shape == (*leading, 6)
    assert heads.value.shape == heads.value_normalised.shape == leading
    flat = look(model, obs.reshape(-1, 4, 84, 84))
    torch.testing.assert_close(heads.params.reshape(-1, 6), flat.params)


@pytest.mark.parametrize(
    ("name", "second_kernel", "asked"),
    [("resnet", "convs.2.conv1", False), ("nature", "convs.2", True)],
)
def test_kernels_are_in_nhwc_order_where_they_act_if_the_network_or_the_machine_wants_it(
    name, second_kernel, asked
):
    model = make_small_model(IMAGE_SPEC, name=name)
    copy = make_small_model(IMAGE_SPEC, name=name, seed=1)
    weights = FlatWeights(copy, WeightFormat(channels_last=asked))
    block = np.zeros(weights.nbytes, np.uint8)
    weights.bind(copy, block)
    weights.pack(model, block)
    for path, kernel in copy.named_parameters():
        assert torch.equal(kernel, model.get_parameter(path)), path
        assert kernel.dim() != 4 or kernel.is_contiguous(memory_format=torch.channels_last), path
    assert not copy.get_parameter(f"torso_net.{second_kernel}.weight").is_contiguous()
    obs = torch.randint(0, 256, (2, 4, 84, 84), dtype=torch.uint8)
    torch.testing.assert_close(look(copy, obs).value, look(model, obs).value)


def test_equal_seeds_give_equal_weights_whatever_the_global_generator():
    torch.manual_seed(1)
    one = make_small_model(seed=5)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    two = make_small_model(seed=5, use_lstm=True)
    assert torch.equal(torch.get_rng_state(), before)  # a network with dropout draws from it
    two = make_small_model(seed=5)
    other = make_small_model(seed=6)
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, two.state_dict()[name])
    assert not torch.equal(one.policy_head.weight, other.policy_head.weight)


def test_the_game_of_a_column_chooses_its_value_head():
    model = make_small_model(tasks=2, popart=True)
    obs = torch.randn(1, 6).expand(2, 6)
    _, heads, _ = model(make_inputs(obs, torch.tensor([0, 1])), model.initial_state(2))
    expected = look(model, obs, torch.tensor([0, 1]))
    assert torch.equal(heads.value, expected.value)
    assert heads.value[0].item() != pytest.approx(heads.value[1].item(), rel=1e-3)


@pytest.mark.parametrize("config", [{}, {"use_lstm": True}, {"name": "attention"}])
def test_a_state_of_another_size_is_refused(config):
    model = make_small_model(make_spec((1, 30, 30)), **{"feature_count": 10} | config)
    obs = torch.zeros(3, 1, 30, 30, dtype=torch.uint8)
    for wrong in (model.initial_state(2), torch.zeros(3, model.state_count + 1)):
        with pytest.raises(ShapeError, match=r"expected \(3, \d+\) = \[B, state_count\]"):
            model(make_inputs(obs), wrong)


@pytest.mark.parametrize("name", list(NETWORKS.shipped))
def test_a_copy_with_a_bfloat16_torso_remembers_in_float32(name):
    spec = make_spec((6,)) if name == "mlp" else make_spec((2, 48, 44))
    config = {"use_lstm": True, "use_last_action": True, "use_last_reward": True}
    model = make_small_model(spec, name=name, lstm_size=24, **config)
    copy = make_small_model(spec, name=name, lstm_size=24, seed=1, **config)
    weights = FlatWeights(model, WeightFormat(torch.bfloat16))
    block = np.zeros(weights.nbytes, np.uint8)
    weights.bind(copy, block)
    weights.pack(model, block)
    obs = make_batch(spec, size=1).obs[:4, 0]
    inputs = make_inputs(obs)._replace(last_action=torch.tensor([0, 1, 2, 0]))
    state = torch.randn(4, model.state_count, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        _, exact, exact_after = model(inputs, state)
        _, heads, after = copy(inputs, state)
    assert next(copy.torso_net.parameters()).dtype == torch.bfloat16
    assert after.dtype == heads.value.dtype == torch.float32
    for found, expected in ((after, exact_after), (heads.value, exact.value)):
        assert (found - expected).abs().mean() < 0.02 * expected.abs().mean() + 0.01


@pytest.mark.gpu
@pytest.mark.parametrize("nhwc", [False, True])
def test_on_a_gpu_weights_are_packed_as_on_the_cpu(nhwc):
    spec = make_spec((2, 48, 44))
    model = make_small_model(spec, name="impala_shallow", popart=True)
    weights = FlatWeights(model, WeightFormat(torch.bfloat16, channels_last=nhwc))
    here, there = (np.zeros(weights.nbytes, np.uint8) for _ in range(2))
    weights.pack(model, here)
    for _ in range(2):  # the second time into memory that has been used
        there[:] = 7
        weights.pack(model.to("cuda"), there)
        assert (here == there).all()


# Hash of the names, shapes and dtypes of all tensors, and policy_head.weight[1, 2] for seed 7, as
# they were before there were cores: with other names old checkpoints would not load, and with
# another order of drawing a seed would not give the same run.
PLAIN_MODELS = {
    "nature": ("3751be91a26d4306", -0.000226),
    "impala_shallow": ("71f7c1884c581b21", -0.000417),
    "resnet": ("6ac6562bfe8663e4", 0.000893),
    "resnet_small": ("e381d4acde4add4a", 0.000119),
    "elite": ("2c58c597a88cbd9a", -0.000470),
    "mlp": ("7fa72d031509dde9", -0.000277),
}


@pytest.mark.parametrize("name", list(PLAIN_MODELS))
def test_plain_models_are_those_of_older_runs(name):
    spec = make_spec((6,)) if name == "mlp" else make_spec((4, 84, 84), stacked=4)
    model = make_model(ModelConfig(name, normalise_pixels=True), spec, popart=True, seed=7)
    tensors = model.state_dict().items()
    layout = "\n".join(f"{key} {tuple(tensor.shape)} {tensor.dtype}" for key, tensor in tensors)
    digest, weight = PLAIN_MODELS[name]
    assert hashlib.sha256(layout.encode()).hexdigest()[:16] == digest
    assert model.policy_head.weight[1, 2].item() == pytest.approx(weight, rel=1e-2)
