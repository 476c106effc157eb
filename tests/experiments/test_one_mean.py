import numpy as np
import pytest
import torch

from experiments.trials import one_mean
from experiments.trials.one_mean import OneMean
from ritornello.agent.models.factory import ModelConfig, make_model
from ritornello.core.errors import ConfigError
from tests.agent.builders import make_spec

SHAPE = (4, 84, 84)
ONE_MEAN = f"{one_mean.__name__}:one_mean"


def _images(count: int = 12) -> np.ndarray:
    """Return [N, C, H, W] uint8 images, a part of which is always bright."""
    images = np.random.default_rng(1).integers(0, 60, (count, *SHAPE)).astype(np.uint8)
    images[..., :20] += 150
    return images


def test_pixels_are_seen_in_deviations_from_the_mean_of_all_of_them():
    images = _images()
    statistics = OneMean(SHAPE)
    statistics.observe(torch.from_numpy(images))
    centred, scale = statistics.centred(
        torch.from_numpy(images), torch.float32, torch.contiguous_format
    )
    pixels = images.astype(np.float64)
    mean, deviation = pixels.mean(), pixels.std()
    # The mean is rounded to a whole 1/255, the deviation is from the one that is not.
    wanted = (pixels - round(mean)) / deviation
    np.testing.assert_allclose((centred * scale).numpy(), wanted, rtol=1e-3)


def test_the_network_is_the_default_one_with_other_statistics():
    spec = make_spec(SHAPE, stacked=4)
    by_default = make_model(ModelConfig(name="impala_shallow"), spec, seed=1)
    model = make_model(ModelConfig(name=ONE_MEAN), spec, seed=1)
    for name, weight in by_default.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], weight)
    images = torch.from_numpy(_images())
    for each in (by_default, model):
        for part in each.modules():
            if hasattr(part, "observe"):
                part.observe(images)
    assert not torch.allclose(model.torso(images), by_default.torso(images))


@pytest.mark.parametrize("kind", [False, "each", "rare"])
def test_another_way_to_normalise_is_refused(kind):
    spec = make_spec(SHAPE, stacked=4)
    with pytest.raises(ConfigError, match="expected True"):
        make_model(ModelConfig(name=ONE_MEAN, normalise_pixels=kind), spec)
