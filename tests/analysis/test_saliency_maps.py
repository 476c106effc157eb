import numpy as np
import pytest
import torch

from ritornello.agent.models.base import Inputs
from ritornello.agent.models.factory import ModelConfig, make_model
from ritornello.agent.models.torsos import PixelConv2d
from ritornello.analysis.saliency import Grid, Perturbation
from ritornello.core.errors import ConfigError
from ritornello.core.spec import CHOICE, ActionPart, ActionSpec, EnvSpec
from tests.reference.saliency_loops import saliency_loops

TWO_ACTIONS = ActionSpec((ActionPart(CHOICE, 2),))

SIZE = 40
SPEC = EnvSpec("Test-v0", (1, SIZE, SIZE), "uint8", 3, ("NOOP", "UP", "DOWN"), 4)


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
    "padding and a stride of 1": {"name": "resnet", "feature_count": 16},
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
    heads, _ = model(inputs, state)
    got = Perturbation(model, grid).maps(inputs, state, heads)
    policy, value = saliency_loops(model, inputs, state, grid.masks())
    assert got["policy"].shape == (len(grid.rows), len(grid.columns)) == (4, 4)
    np.testing.assert_allclose(got["policy"], policy, rtol=0.03, atol=0.01 * policy.max())
    np.testing.assert_allclose(got["value"], value, rtol=0.03, atol=0.01 * value.max())
    assert policy.max() > 0
    # The model is as it was.
    assert torch.equal(model(inputs, state)[0].params, heads.params)


def test_what_is_blended_and_with_what_can_be_chosen():
    model, inputs, state = some_model(name="impala_shallow")
    (layer,) = [m for m in model.modules() if isinstance(m, PixelConv2d)]
    assert layer.statistics is not None
    average = layer.statistics.mean.double().numpy()
    grid = Grid(SIZE, SIZE, 4.0, 10)
    heads, _ = model(inputs, state)
    whole = Perturbation(model, grid).maps(inputs, state, heads)["policy"]
    for options, changed in (
        ({"newest_channels": 1}, {"channels": slice(2, 3)}),
        ({"blend": "average"}, {"blurred": average}),
    ):
        got = Perturbation(model, grid, **options).maps(inputs, state, heads)["policy"]
        policy, _ = saliency_loops(model, inputs, state, grid.masks(), **changed)
        np.testing.assert_allclose(got, policy, rtol=0.03, atol=0.01 * policy.max())
        assert not np.allclose(got, whole, rtol=0.1)
    plain, _, _ = some_model(name="impala_shallow", normalise_pixels=False)
    with pytest.raises(ConfigError, match="knows no average picture"):
        Perturbation(plain, grid, blend="average")


def test_masks_are_as_described():
    paper = Grid(84, 84, 5.0, 5)
    masks = paper.masks()
    assert masks.shape == (17, 17, 84, 84)
    row, column = paper.rows[7], paper.columns[11]
    assert masks[7, 11, row, column] == 1.0
    # sigma² = 25: at a distance of 5 pixels, exp(-1/2).
    assert masks[7, 11, row + 3, column - 4] == pytest.approx(np.exp(-0.5))
