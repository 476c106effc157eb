import json
from dataclasses import replace

import imageio.v3 as iio
import numpy as np
import pytest
import torch

from ritornello.agent.models.base import Inputs
from ritornello.agent.models.factory import ModelConfig, make_model
from ritornello.agent.models.torsos import PixelConv2d
from ritornello.analysis.saliency import Grid, Perturbation, main
from ritornello.core.errors import ConfigError
from ritornello.core.spec import EnvSpec
from tests.analysis.agents import write_agent
from tests.house import ROOT
from tests.reference.saliency_loops import saliency_loops

SIZE = 40
SPEC = EnvSpec("Test-v0", (1, SIZE, SIZE), "uint8", 3, ("NOOP", "UP", "DOWN"), 4)
PONG = f"--load_model_url={ROOT / 'models' / 'pong'}"


def film_of(folder, *options, status=0):
    """Run the command; return (frames of the film, raw maps, settings)."""
    assert main([PONG, f"--output={folder}", *options]) == status
    maps = dict(np.load(folder / "maps.npz"))
    settings = json.loads((folder / "settings.json").read_text())
    film = np.stack(list(iio.imiter(folder / "film.mp4", plugin="pyav")))
    return film, maps, settings


def test_a_film_and_its_maps_are_written(tmp_path):
    film, maps, settings = film_of(tmp_path, "--start=30", "--steps=6", "--density=12")
    assert film.shape == (6, 440, 320, 3)
    assert maps["policy"].shape == maps["value"].shape == (6, 7, 7)
    assert maps["logits"].shape == (6, 6)
    assert (maps["policy"].max((1, 2)) > 0).all()
    assert settings["start"] == 30
    assert settings["frames"] == 6
    assert settings["density_pixels"] == 12
    assert settings["radius_pixels"] == 5.0
    assert settings["agent_steps"] == 451882
    assert len(json.loads((tmp_path / "actions.json").read_text())["actions"]) == 36
    assert iio.imread(tmp_path / "still.png").shape == (440, 320, 3)


def test_another_agent_is_asked_about_the_same_states(tmp_path):
    options = ["--density=12", "--start=30"]
    film_of(tmp_path / "pong", "--steps=4", *options)
    actions = tmp_path / "pong" / "actions.json"
    fresh = write_agent(tmp_path / "fresh", env="PongNoFrameskip-v4")
    # As long as there are actions, not the 20 seconds that are the default.
    output = tmp_path / "fresh film"
    arguments = [f"--load_model_url={fresh}", f"--actions={actions}", f"--output={output}"]
    assert main([*arguments, *options]) == 0
    ours, theirs = (np.load(tmp_path / name / "maps.npz") for name in ("pong", "fresh film"))
    assert ours["action"].tolist() == theirs["action"].tolist()
    # A trained network's maps are not those of random weights.
    similar = [
        np.corrcoef(a.ravel(), b.ravel())[0, 1]
        for a, b in zip(ours["policy"], theirs["policy"], strict=True)
    ]
    assert np.mean(similar) < 0.8
    assert json.loads((output / "settings.json").read_text())["actions_replayed"] is True
    with pytest.raises(ConfigError, match="there are 34 actions"):
        main([*arguments, "--start=34"])


def test_what_is_refused_leaves_no_folder(tmp_path):
    with pytest.raises(ConfigError, match="--radius=0"):
        main([PONG, f"--output={tmp_path / 'film'}", "--radius=0"])
    assert not (tmp_path / "film").exists()


@pytest.mark.parametrize(
    ("env", "what"),
    [("CartPole-v1", "vectors"), ("tests.worlds:tests/Sign-v0", "several parts")],
)
def test_what_is_no_image_is_named(env, what, tmp_path):
    agent = write_agent(tmp_path / "agent", env=env)
    with pytest.raises(ConfigError, match=f"shows {what}; saliency maps are of single images"):
        main([f"--load_model_url={agent}", f"--env={env}"])


def test_ctrl_c_keeps_what_is_there(tmp_path, monkeypatch, capsys):
    asked = Perturbation.maps
    calls: list[int] = []

    def maps(self, *arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return asked(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Perturbation, "maps", maps)
    film, arrays, settings = film_of(tmp_path, "--density=12", status=130)
    assert len(film) == len(arrays["policy"]) == settings["frames"] == 2
    assert "writing what is there" in capsys.readouterr().err


def some_inputs(obs):
    return Inputs(
        obs[None],
        torch.tensor([False]),
        torch.tensor([1]),
        torch.tensor([0.5]),
        torch.tensor([0]),
    )


def some_model(**config):
    """Return a random model that has seen pixels, an observation, and a state that is not zero."""
    generator = torch.Generator().manual_seed(1)
    model = make_model(ModelConfig(**config), SPEC, seed=2).eval()  # type: ignore[arg-type]
    model.requires_grad_(False)
    images = torch.randint(0, 256, (5, *SPEC.obs_shape), generator=generator).to(torch.uint8)
    model.observe(images)
    state = torch.randn(1, model.state_count, generator=generator).tanh()
    return model, some_inputs(images[0]), state


MODELS = {
    "padding and a stride of 1": {"name": "resnet", "feature_count": 16, "normalise_pixels": True},
    "memory": {
        "name": "impala_shallow",
        "use_lstm": True,
        "lstm_size": 8,
        "use_last_action": True,
        "use_last_reward": True,
    },
}


@pytest.mark.parametrize("kind", MODELS)
def test_maps_are_those_of_one_forward_per_mask(kind):
    model, inputs, state = some_model(**MODELS[kind])
    grid = Grid(SIZE, SIZE, radius=3.0, density=9)
    _, heads, _ = model(inputs, state)
    got = Perturbation(model, grid).maps(inputs, state, heads)
    policy, value = saliency_loops(model, inputs, state, grid.masks())
    assert got["policy"].shape == (len(grid.rows), len(grid.columns)) == (4, 4)
    np.testing.assert_allclose(got["policy"], policy, rtol=1e-3, atol=1e-4 * policy.max())
    np.testing.assert_allclose(got["value"], value, rtol=1e-3, atol=1e-4 * value.max())
    assert policy.max() > 0
    # The model is as it was.
    assert torch.equal(model(inputs, state)[1].params, heads.params)


def test_what_is_blended_and_with_what_can_be_chosen():
    model, inputs, state = some_model(name="impala_shallow")
    (layer,) = [m for m in model.modules() if isinstance(m, PixelConv2d)]
    assert layer.statistics is not None
    average = layer.statistics.mean.double().numpy()
    grid = Grid(SIZE, SIZE, 4.0, 10)
    _, heads, _ = model(inputs, state)
    whole = Perturbation(model, grid).maps(inputs, state, heads)["policy"]
    for options, changed in (
        ({"newest_channels": 1}, {"channels": slice(2, 3)}),
        ({"blend": "average"}, {"blurred": average}),
    ):
        got = Perturbation(model, grid, **options).maps(inputs, state, heads)["policy"]
        policy, _ = saliency_loops(model, inputs, state, grid.masks(), **changed)
        np.testing.assert_allclose(got, policy, rtol=1e-3, atol=1e-4 * policy.max())
        assert not np.allclose(got, whole, rtol=0.1)
    plain, _, _ = some_model(name="impala_shallow", normalise_pixels=False)
    with pytest.raises(ConfigError, match="knows no average picture"):
        Perturbation(plain, grid, blend="average")


def test_images_of_floats_are_blurred_as_those_of_bytes():
    model, inputs, state = some_model(name="impala_shallow", normalise_pixels=False)
    floats = inputs._replace(obs=inputs.obs / 255)
    perturbation = Perturbation(model, Grid(SIZE, SIZE, 3.0, 9))
    of_bytes, of_floats = (
        perturbation.maps(each, state, model(each, state)[1])["policy"] for each in (inputs, floats)
    )
    np.testing.assert_allclose(of_floats, of_bytes, rtol=0.05, atol=0.02 * of_bytes.max())


@pytest.mark.parametrize("normalise", [True, "each"])
def test_pictures_of_one_of_several_games_are_normalised_as_those_of_that_game(normalise):
    spec = replace(SPEC, env_id="A-v0,B-v0")
    model = make_model(
        ModelConfig(name="impala_shallow", normalise_pixels=normalise), spec, seed=2
    ).eval()
    draw = torch.Generator().manual_seed(3)
    images = torch.randint(0, 256, (8, *SPEC.obs_shape), dtype=torch.uint8, generator=draw)
    model.observe(images // 4, torch.zeros(8, dtype=torch.int64))
    model.observe(images, torch.ones(8, dtype=torch.int64))
    inputs = some_inputs(images[0])._replace(task_id=torch.tensor([1]))
    state, grid = torch.zeros(1, model.state_count), Grid(SIZE, SIZE, 4.0, SIZE)
    with torch.inference_mode():
        heads = model(inputs, state)[1]
        change = model.pixel_statistics(1).mean - images[0]
        rounded = (images[0] + change * torch.from_numpy(grid.masks()[0])).round()
        other = model(inputs._replace(obs=rounded.to(torch.uint8)[None]), state)[1]
    got = Perturbation(model, grid, blend="average").maps(inputs, state, heads)["policy"]
    expected = 0.5 * (other.params - heads.params).square().sum()
    np.testing.assert_allclose(got, [[expected]], rtol=0.1)


def test_masks_are_as_described():
    paper = Grid(84, 84, 5.0, 5)
    masks = paper.masks()
    assert masks.shape == (17, 17, 84, 84)
    row, column = paper.rows[7], paper.columns[11]
    assert masks[7, 11, row, column] == 1.0
    # sigma² = 25: at a distance of 5 pixels, exp(-1/2).
    assert masks[7, 11, row + 3, column - 4] == pytest.approx(np.exp(-0.5))
