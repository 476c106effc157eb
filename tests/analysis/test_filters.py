from types import SimpleNamespace

import pytest
import torch

from ritornello.agent.models.factory import ModelConfig, make_model
from ritornello.analysis import filters
from ritornello.analysis.filters import (
    FEATURES,
    activations,
    cka_map,
    linear_cka,
    main,
    preferred_images,
)
from ritornello.analysis.playing import load_agent
from ritornello.core.errors import ConfigError
from ritornello.core.spec import EnvSpec
from tests.agent.builders import make_small_model, make_spec
from tests.analysis.agents import write_agent

PONG = "PongNoFrameskip-v4"


@pytest.fixture
def agent(tmp_path, monkeypatch):
    """A Pong agent that has not learned, and little to do."""
    monkeypatch.setattr(filters, "STRIDE", 1)
    monkeypatch.setattr(filters, "OBSERVATIONS", 16)
    monkeypatch.setattr(filters, "STEPS", 2)
    return write_agent(tmp_path / "one", env=PONG, seed=1)


def test_the_figures_of_an_agent_are_drawn(agent, tmp_path, capsys):
    pole = write_agent(tmp_path / "pole")
    with pytest.raises(ConfigError, match="cannot be shown the same observations"):
        main([f"--load_model_url={agent}", f"--with={pole}", f"--output={tmp_path}"])
    assert not list(tmp_path.glob("*.png")), "found before what takes a minute"
    other = write_agent(tmp_path / "nature", "--model=nature", env=PONG)
    assert main([f"--load_model_url={agent}", f"--with={other}", f"--output={tmp_path}"]) == 0
    for name in ("cka", "first_layer", "preferred_convs.0"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG"), name


def test_stacks_that_reach_over_a_reset_are_not_shown(agent, monkeypatch):
    resets = {0: [True] * 8, 5: [True] + [False] * 7}

    def play_three_ways(agent, envs, *, seed, steps):
        for number in range(100):
            first = torch.tensor(resets.get(number, [False] * 8))
            obs = torch.full((8, 1), number) * 10 + torch.arange(8)[:, None]
            tasks = torch.zeros(8, dtype=torch.int64)
            yield SimpleNamespace(inputs=SimpleNamespace(obs=obs, first=first, task_id=tasks))

    monkeypatch.setattr(filters, "play_many", play_three_ways)
    seen = filters.played_observations(load_agent(str(agent)), 44)[0].flatten().tolist()
    # A stack is 4 frames: whole from the 4th on, and of environment 0 again from its 9th on.
    every = [10 * number + env for number in range(3, 10) for env in range(8)]
    assert seen == [x for x in every if x not in (50, 60, 70)][:44]


def test_games_that_are_over_before_a_stack_is_whole_are_refused(agent, monkeypatch):
    def play_short_games(agent, envs, *, seed, steps):
        inputs = SimpleNamespace(
            obs=torch.zeros(8, 1), first=torch.ones(8, dtype=torch.bool), task_id=torch.zeros(8)
        )
        for _ in range(steps):
            yield SimpleNamespace(inputs=inputs)

    monkeypatch.setattr(filters, "play_many", play_short_games)
    monkeypatch.setattr(filters, "MAX_STEPS", 9)
    with pytest.raises(ConfigError, match="over before a stack of 4 frames is whole"):
        filters.played_observations(load_agent(str(agent)), 44)


@pytest.mark.usefixtures("agent")
def test_an_image_beside_other_things_is_compared_without_its_filters(tmp_path):
    sign = write_agent(tmp_path / "sign", env="tests.worlds:tests/Sign-v0")
    assert main([f"--load_model_url={sign}", f"--output={tmp_path}"]) == 0
    assert [path.name for path in tmp_path.glob("*.png")] == ["cka.png"]


def test_cka_is_the_formula_of_the_paper():
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(40, 7, generator=generator), torch.randn(40, 5, generator=generator)
    y[:, :3] += 2 * x[:, :3]
    x_centred, y_centred = x - x.mean(0), y - y.mean(0)
    covariance = (y_centred.T @ x_centred).norm() ** 2
    paper = covariance / ((x_centred.T @ x_centred).norm() * (y_centred.T @ y_centred).norm())
    assert 0.2 < paper < 0.9
    assert linear_cka(x, y) == pytest.approx(float(paper), rel=1e-5)
    assert linear_cka(x, 3 * x.flip(1) + 1) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("name", ["impala_shallow", "resnet"])
def test_layers_are_looked_at_before_their_nonlinearity(name):
    model = make_small_model(make_spec((2, 36, 36), stacked=2), name=name).eval()
    obs = torch.randint(0, 256, (12, 2, 36, 36), dtype=torch.uint8)
    found = activations(model, obs, torch.zeros(12, dtype=torch.int64))
    with torch.no_grad():
        first = model.torso_net.convs[0](obs)  # what an inplace ReLU would have changed
    assert len(found) == {"impala_shallow": 3, "resnet": 16}[name]
    assert first.min() < 0
    torch.testing.assert_close(found["convs.0"], first)
    assert not any(module._forward_hooks for module in model.modules())
    maps = cka_map(found, found)
    assert maps["convs.0", "convs.0"] == pytest.approx(1.0, abs=1e-5) != maps["convs.0", FEATURES]


def test_each_game_is_seen_through_its_own_statistics():
    spec = EnvSpec("Dark-v0,Bright-v0", (1, 42, 42), "uint8", 1, ("0", "1"), 1)
    model = make_model(ModelConfig(name="resnet", feature_count=16), spec).eval()
    games = torch.arange(2).repeat_interleave(6)
    ranges = torch.tensor([60, 200]).repeat_interleave(6)[:, None, None, None]
    obs = (torch.rand(12, 1, 42, 42) * 50 + ranges).to(torch.uint8)
    model.observe(obs, games)
    with torch.no_grad():
        own, other = (model.torso(obs, seen) for seen in (games, None))
    found = activations(model, obs, games)[FEATURES]
    torch.testing.assert_close(found, own)
    assert not torch.allclose(found, other, rtol=0.1)


@pytest.mark.parametrize("normalise", [False, "each"])
def test_preferred_images_excite_their_own_filter(normalise, monkeypatch):
    monkeypatch.setattr(filters, "MAX_FILTERS", 5)
    spec = make_spec((2, 36, 36), stacked=2)
    model = make_small_model(spec, name="impala_shallow", normalise_pixels=normalise)
    if normalise:
        model.observe(torch.randint(0, 128, (8, 2, 36, 36), dtype=torch.uint8))
    model.requires_grad_(False)
    conv = model.torso_net.convs[0]
    images = preferred_images(model, conv, steps=30)
    noise = preferred_images(model, conv, steps=0)
    assert images.shape == (5, 2, 36, 36)
    assert 0 <= images.min() < images.max() <= 255

    def excitement(pixels):
        return conv(pixels.round().to(torch.uint8)).mean((2, 3))[:, :5]

    own, before = excitement(images).diagonal(), excitement(noise).diagonal()
    assert (own > before + 0.1).all()
    assert (excitement(images).argmax(0) == torch.arange(5)).all(), "nobody else's image does more"
