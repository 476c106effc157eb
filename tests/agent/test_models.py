import pytest
import torch

from agent.models.factory import ModelConfig, make_model
from agent.models.torsos import IMAGE_TORSOS, PixelConv2d
from core.errors import ConfigError, ShapeError
from tests.agent.builders import make_batch, make_small_model, make_spec

IMAGE_SPEC = make_spec((4, 84, 84), actions=6, stacked=4)


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
        heads = model(obs)
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
@pytest.mark.parametrize("shape", [(4, 84, 84), (3, 96, 60), (12, 210, 160)])
def test_a_network_takes_any_frame_size_and_stack(name, shape):
    model = make_model(ModelConfig(name), make_spec(shape, actions=5))
    heads = model(torch.zeros(2, *shape, dtype=torch.uint8))
    assert model.feature_count == IMAGE_TORSOS[name][1]
    assert heads.params.shape == (2, 5)
    assert heads.value.shape == (2,)


def test_too_small_frames_are_refused_with_advice():
    with pytest.raises(ConfigError, match=r"nature.*20x20.*--model=resnet"):
        make_model(ModelConfig("nature"), make_spec((1, 20, 20)))
    make_model(ModelConfig("resnet"), make_spec((1, 20, 20)))


def test_the_resnet_has_the_published_size():
    model = make_model(ModelConfig("resnet"), make_spec((4, 84, 84), actions=18))
    convs = [m for m in model.modules() if isinstance(m, torch.nn.Conv2d)]
    assert len(convs) == 15
    assert model.torso_net.linear.in_features == 11 * 11 * 32


def test_the_elite_network_has_the_size_of_the_older_platform():
    model = make_model(ModelConfig("elite"), make_spec((4, 84, 84), actions=6))
    assert model.torso_net.linear.in_features == 128 * 6 * 6


@pytest.mark.parametrize("leading", [(), (3,), (3, 2)])
def test_leading_dims_are_free_and_change_nothing(leading):
    model = make_small_model(IMAGE_SPEC, name="impala_shallow")
    obs = torch.randint(0, 256, (*leading, 4, 84, 84), dtype=torch.uint8)
    heads = model(obs)
    assert heads.params.shape == (*leading, 6)
    assert heads.value.shape == heads.value_normalised.shape == leading
    flat = model(obs.reshape(-1, 4, 84, 84))
    torch.testing.assert_close(heads.params.reshape(-1, 6), flat.params)


def test_pixels_are_seen_scaled_to_one():
    torch.manual_seed(1)
    conv = PixelConv2d((3, 8, 8), 5, 3)
    pixels = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8)
    torch.testing.assert_close(conv(pixels), conv(pixels.float() / 255), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["nature", "mlp"])
def test_features_are_float32_and_close_in_either_precision(precision, name):
    model = make_small_model(IMAGE_SPEC, name=name)
    obs = torch.randint(0, 256, (3, 4, 84, 84), dtype=torch.uint8)
    exact = model.torso(obs)
    model.set_precision(precision)
    features = model.torso(obs)
    assert features.dtype == torch.float32
    torch.testing.assert_close(features, exact, rtol=0.05, atol=0.05)
    assert model(obs).params.dtype == torch.float32


@pytest.mark.parametrize("name", ["resnet", "mlp"])
def test_a_torso_with_bfloat16_weights_acts(name):
    model = make_small_model(make_spec((4, 36, 36)), name=name)
    obs = torch.randint(0, 256, (2, 4, 36, 36), dtype=torch.uint8)
    exact = model(obs)
    model.torso_net.to(torch.bfloat16)
    heads = model(obs)
    assert heads.params.dtype == heads.value.dtype == torch.float32
    torch.testing.assert_close(heads.value, exact.value, rtol=0.05, atol=0.05)


def test_vectors_may_meet_a_torso_with_bfloat16_weights():
    model = make_small_model(make_spec((6,)))
    model.torso_net.to(torch.bfloat16)
    assert model(torch.randn(4, 6)).value.dtype == torch.float32


def test_channels_last_changes_nothing_but_the_layout():
    model = make_small_model(IMAGE_SPEC, name="nature")
    obs = torch.randint(0, 256, (2, 4, 84, 84), dtype=torch.uint8)
    before = model(obs)
    model.to(memory_format=torch.channels_last)
    torch.testing.assert_close(model(obs).value, before.value)


def test_equal_seeds_give_equal_weights_whatever_the_global_generator():
    torch.manual_seed(1)
    one = make_small_model(seed=5)
    torch.manual_seed(2)
    two = make_small_model(seed=5)
    other = make_small_model(seed=6)
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, two.state_dict()[name])
    assert not torch.equal(one.policy_head.weight, other.policy_head.weight)


def test_the_first_policy_is_almost_uniform():
    model = make_small_model(IMAGE_SPEC, name="nature")
    obs = torch.randint(0, 256, (4, 4, 84, 84), dtype=torch.uint8)
    torch.testing.assert_close(
        model(obs).params.softmax(-1), torch.full((4, 6), 1 / 6), rtol=0, atol=0.02
    )


def test_the_policy_has_no_task_input_and_the_value_has_one():
    model = make_small_model(tasks=2, popart=True)
    obs = torch.randn(1, 6).expand(2, 6)
    heads = model(obs, torch.tensor([0, 1]))
    torch.testing.assert_close(heads.params[0], heads.params[1])
    assert heads.value[0].item() != pytest.approx(heads.value[1].item())


def test_auto_chooses_by_what_the_environment_shows():
    assert make_model(ModelConfig(), IMAGE_SPEC).feature_count == 256
    assert make_model(ModelConfig(), make_spec((6,))).feature_count == 256


def test_observations_of_another_environment_are_refused():
    with pytest.raises(ShapeError, match="another environment"):
        make_small_model(IMAGE_SPEC, name="nature").torso(torch.zeros(2, 4, 80, 84))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"name": "resnett"}, "resnett.*expected one of"),
        ({"feature_count": -1}, "feature_count"),
        ({"popart_step_size": 0.0}, "popart_step_size"),
        ({"popart_sigma_min": 2.0, "popart_sigma_max": 1.0}, "popart_sigma_min"),
    ],
)
def test_a_config_out_of_range_is_refused(config, message):
    with pytest.raises(ConfigError, match=message):
        ModelConfig(**config)


def test_an_image_network_refuses_vectors():
    with pytest.raises(ConfigError, match="--model=mlp"):
        make_model(ModelConfig("nature"), make_spec((6,)))


def test_an_unknown_precision_is_refused():
    with pytest.raises(ConfigError, match="fp16"):
        make_small_model().set_precision("fp16")
