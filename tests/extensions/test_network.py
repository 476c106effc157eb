"""A network of one's own, registered outside of the packages."""

import math

import pytest
import torch
from torch import nn

from ritornello.agent.assembly import build_model
from ritornello.agent.models.factory import ModelConfig, make_model
from ritornello.agent.models.networks import register_network
from ritornello.core.errors import ConfigError
from ritornello.flags.parsing import parse
from ritornello.flags.parts import NETWORKS, Registry
from tests.agent.builders import make_spec
from tests.extensions import own_network
from tests.extensions.runs import new_folder, saved_in, trained

WIDE = f"{own_network.__name__}:wide"
IMAGES = make_spec((2, 24, 22))


@register_network("looks", sees="images")
def looks(request):
    return nn.Sequential(nn.Conv2d(request.obs_shape[0], 4, 5, 3), nn.Flatten(), nn.LazyLinear(7))


@register_network("flat")
def flat(request):
    return nn.Flatten()


@register_network("tall")
def tall(request):
    return nn.Linear(request.obs_shape[-1], 3)


class Squeezed(nn.Linear):
    def forward(self, seen):
        return super().forward(seen).squeeze()


@register_network("one_game_less")
def one_game_less(request):
    return Squeezed(request.obs_shape[-1], 3)


@register_network("mixes")
def mixes(request):
    return nn.Sequential(nn.Linear(request.obs_shape[-1], 3), nn.BatchNorm1d(3))


@register_network("drawn")
def drawn(request):
    return nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 2, 3), nn.Flatten())


class Changed(nn.Linear):
    def __init__(self, request, change):
        super().__init__(request.obs_shape[-1], 3)
        self.change = change

    def forward(self, seen):
        return self.change(super().forward(seen))


CHANGES = {
    "not_a_number": lambda made: (-made.abs()).sqrt(),
    "detached": torch.Tensor.detach,
    "whole": torch.Tensor.long,
}
for changed, change in CHANGES.items():
    register_network(changed)(lambda request, change=change: Changed(request, change))


@register_network("nothing")
def nothing(request):
    return None


@register_network("broken")
def broken(request):
    return nn.Linear(request.obs_shape[3], 3)


@register_network("absent")
def absent(request):
    import no_such_package  # noqa: F401


class Halved(nn.Linear):
    def forward(self, seen):
        return super().forward(seen.mul_(0.5))


@register_network("in_place")
def in_place(request):
    return Halved(request.obs_shape[-1], 3)


@register_network("asked", takes_layer_norm=True)
def asked(request):
    norm = nn.Identity() if request.layer_norm == "none" else nn.LayerNorm(5)
    return nn.Sequential(nn.Linear(request.obs_shape[-1], 5), norm)


def test_a_network_of_ones_own_is_trained_saved_and_loaded(tmp_path):
    folder = new_folder(tmp_path)
    summary, records = trained(folder, model=WIDE)
    assert summary.updates > 0
    assert math.isfinite(records[-1].values["loss/total"])
    weights = saved_in(folder).state["learner"]["model"]
    assert weights["torso_net.net.1.weight"].shape == (16,)
    assert saved_in(folder).state["flags"]["model"] == WIDE
    again, _ = trained(folder, model=WIDE, steps=400, checkpoint=saved_in(folder))
    assert again.updates > summary.updates


def test_weights_follow_from_the_seed_also_in_layers_that_draw_their_own():
    def weights(seed):
        model = make_model(ModelConfig(f"{__name__}:drawn"), make_spec((6,)), seed=seed)
        return torch.cat([p.flatten() for p in model.parameters()])

    before = torch.get_rng_state()
    torch.manual_seed(1)
    one = weights(3)
    torch.manual_seed(2)
    assert torch.equal(one, weights(3))
    assert not torch.equal(one, weights(4))
    torch.set_rng_state(before)


def test_pixels_come_as_numbers_near_one_whatever_the_weights_are_stored_as():
    model = make_model(ModelConfig(f"{__name__}:looks"), IMAGES, seed=0)
    assert model.feature_count == 7
    seen = []
    model.torso_net.net.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    pixels = torch.randint(0, 256, (5, 2, 24, 22), dtype=torch.uint8)
    model.torso(pixels)
    model.observe(pixels)
    model.torso(pixels)
    model.torso_net.to(torch.bfloat16)
    model.torso(pixels)
    scaled, normalised, half = seen
    torch.testing.assert_close(scaled, pixels / 255)
    assert abs(float(normalised.mean())) < 0.1  # the mean image is subtracted
    assert half.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        ("looks", make_spec((6,)), "'.*:looks' needs images"),
        ("flat", make_spec((6,)), "'.*:flat' has no weights"),
        ("tall", IMAGES, r"makes a tensor of shape \[2, 2, 24, 3\] of .*\[2, 2, 24, 22\]"),
        ("not_a_number", make_spec((6,)), "'.*:not_a_number' makes NaN or infinity"),
        ("detached", make_spec((6,)), "'.*:detached' cuts off the gradient"),
        ("whole", make_spec((6,)), "'.*:whole' makes features of torch.int64"),
        ("one_game_less", make_spec((6,)), r"makes a tensor of shape \[3\] of .*\[1, 6\]"),
        ("mixes", make_spec((6,)), "has batch normalisation.*Use nn.LayerNorm"),
        (
            "broken",
            IMAGES,
            "broken' cannot be built for .*: IndexError.*test_network.py, line .*`\\)\\.$",
        ),
        (
            "absent",
            make_spec((6,)),
            "cannot be built.*ModuleNotFoundError: .*no_such_package.*`\\)\\.$",
        ),
        ("nothing", make_spec((6,)), "nothing.*returns None, expected a torch module"),
    ],
)
def test_what_can_be_no_network_is_told_with_what_was_expected(name, spec, message):
    with pytest.raises(ConfigError, match=message):
        make_model(ModelConfig(f"{__name__}:{name}"), spec)


def test_a_network_that_writes_into_its_input_leaves_the_batch():
    model = make_model(ModelConfig(f"{__name__}:in_place"), make_spec((6,)), seed=0)
    vectors = torch.ones(4, 6)
    model.torso(vectors)
    assert (vectors == 1).all()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wade", "expected one of nature.*or <module>:<name>"),
        (f"{own_network.__name__}:narrow", f"registers no network.*it registers .*{WIDE}"),
        ("a/b.py:wide", "PYTHONPATH=<its folder> and --model=b:<name>"),
    ],
)
def test_a_name_without_a_network_is_refused(name, message):
    with pytest.raises(ConfigError, match=message):
        build_model(parse([f"--model={name}"]), make_spec((6,)))


def test_a_file_may_not_name_a_module_that_nobody_typed():
    stored = {"model": "stranger_net:evil", "env": "CartPole-v1"}
    command = ["--op_mode=test", "--load_model_url=x"]
    with pytest.raises(ConfigError, match="model is 'stranger_net:evil', from x: "):
        parse(command, lambda *_: stored)
    with pytest.raises(ConfigError, match="=True, or to main.py --model=<module>:<name> yourself"):
        NETWORKS.find("stranger_net:evil")


def test_a_name_is_registered_once_and_is_a_word():
    registry = Registry("model", "network", {"nature": "ritornello.agent.models.torsos"})
    for name, module, message in (
        ("nature", "mine", "name of one that is shipped"),
        ("my net", "mine", "letters, digits"),
    ):
        with pytest.raises(ConfigError, match=message):
            registry.add(name, object(), module)
    registry.add("wide", "one", "a")
    assert registry.find("wide") == "one"
    registry.add("wide", "two", "b")
    with pytest.raises(ConfigError, match="expected one of a:wide, b:wide"):
        registry.find("wide")
    registry.add("mine", "three", "__mp_main__")  # as multiprocessing calls it
    assert registry.full_name("mine") == "__main__:mine"
