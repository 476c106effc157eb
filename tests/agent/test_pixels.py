import copy

import numpy as np
import pytest
import torch

from ritornello.agent.models.pixels import MAX_DEVIATIONS, MIN_DEVIATION, PixelStatistics
from ritornello.agent.models.torsos import PixelConv2d
from ritornello.agent.process_group import ProcessGroup
from tests.agent.builders import make_small_model, make_spec

SHAPE = (3, 8, 7)


def batches(count=4, seed=0):
    random = np.random.default_rng(seed)
    return [random.integers(40, 220, (5, *SHAPE)).astype(np.uint8) for _ in range(count)]


def observed(images, normalise=True):
    statistics = PixelStatistics(SHAPE, normalise)
    for batch in images:
        statistics.observe(torch.from_numpy(batch))
    return statistics


@pytest.mark.parametrize("normalise", [True, "each"])
def test_statistics_are_those_of_all_images_together(normalise):
    images = batches()
    for batch in images:
        batch[:, :, 2, 3] = 90  # never changes
        batch[:, 1] //= 2
    statistics = observed(images, normalise)
    pixels = np.concatenate(images).astype(np.float64)
    mean = pixels.mean(0)
    np.testing.assert_allclose(statistics.mean.numpy(), mean, rtol=1e-5)
    deviation = np.sqrt(((pixels - mean) ** 2).mean(0 if normalise == "each" else None))
    wanted = 1 / np.maximum(deviation, MIN_DEVIATION)
    np.testing.assert_allclose(statistics.scale().numpy(), wanted, rtol=1e-3)


class WithAnother(ProcessGroup):
    """This learner's, and another one that has seen the batch before it."""

    world_size = 2

    def __init__(self):
        self.other = None

    def sum_(self, tensor, what):
        before, self.other = self.other, tensor.clone()
        return tensor if before is None else tensor.add_(before)


@pytest.mark.parametrize("normalise", [True, "each", "rare"])
def test_two_learners_have_the_statistics_of_one_with_all_images(normalise):
    one, other = batches(2)
    together = observed([np.concatenate([one, other])], normalise)
    group, statistics = WithAnother(), PixelStatistics(SHAPE, normalise)
    PixelStatistics(SHAPE, normalise).observe(torch.from_numpy(other), group)
    statistics.observe(torch.from_numpy(one), group)
    torch.testing.assert_close(statistics.mean, together.mean)
    torch.testing.assert_close(statistics.scale(), together.scale(), rtol=1e-4, atol=0)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("normalise", [True, "each"])
def test_a_layer_sees_what_differs_from_the_mean_image_in_units_of_the_deviation(
    normalise, channels_last
):
    images = batches()
    conv = PixelConv2d(SHAPE, 5, 3, normalise=normalise)
    if channels_last:
        conv.to(memory_format=torch.channels_last)
    for batch in images:
        batch[:, 1] //= 4
        conv.statistics.observe(torch.from_numpy(batch))
    pixels = np.concatenate(images).astype(np.float64)
    mean = pixels.mean(0)
    deviation = np.sqrt(((pixels - mean) ** 2).mean(0 if normalise == "each" else None))
    wanted = conv(torch.from_numpy((images[1] - mean.round()) / deviation).float())
    torch.testing.assert_close(conv(torch.from_numpy(images[1])), wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_differences_from_the_mean_are_exact_in_each_format_and_order(dtype, layout):
    statistics = observed(batches())
    (images,) = batches(1, seed=1)
    given = torch.from_numpy(images)
    for shown in (given, given.contiguous(memory_format=torch.channels_last)):
        found, _ = statistics.centred(shown, dtype, layout)
        assert found.dtype == dtype
        assert found.is_contiguous(memory_format=layout)
        wanted = images.astype(np.float64) - statistics.mean.round().numpy()
        assert np.array_equal(found.double().numpy(), wanted)


def test_what_is_far_from_the_mean_image_is_seen_at_ten_deviations_at_most():
    """A loop beside it: the nearest whole value that is no farther."""
    statistics = observed([batch // 8 for batch in batches()], normalise="each")
    (images,) = batches(1, seed=1)
    found = torch.clamp(torch.from_numpy(images), *statistics.bounds()).numpy()
    means, deviations = statistics.mean.round().numpy(), 1 / statistics.scale().double().numpy()
    for index, value in np.ndenumerate(images):
        mean, deviation = means[index[1:]], deviations[index[1:]]
        allowed = [v for v in range(256) if abs(v - mean) <= MAX_DEVIATIONS * deviation + 1e-4]
        assert found[index] == min(allowed, key=lambda v: abs(v - int(value)))
    assert (found != images).any()
    assert (found == images).any()


@pytest.mark.parametrize("normalise", [True, "each", "rare"])
@pytest.mark.parametrize("is_bf16", [False, True])
def test_each_image_of_several_games_is_seen_by_the_statistics_of_its_game(is_bf16, normalise):
    spec = make_spec((4, 36, 36))
    model = make_small_model(spec, tasks=3, name="impala_shallow", normalise_pixels=normalise)
    draw = torch.Generator().manual_seed(2)
    images = torch.randint(0, 256, (3, 6, *spec.obs_shape), dtype=torch.uint8, generator=draw)
    for game, dark in enumerate((1, 2, 5)):
        model.observe(images[0] // dark, torch.full((6,), game))
    games = torch.tensor([2, 0, 0, 1, 2, 0])  # of each column
    with torch.autocast("cpu", torch.bfloat16, enabled=is_bf16):
        found = model.seen(images, games).reshape(*images.shape)
    for row in range(3):
        for column, game in enumerate(games.tolist()):
            statistics, image = model.game_pixels[game], images[row, column]
            if statistics.is_of_each:  # as a model of this game alone sees it, to the last bit
                wanted = statistics.normalised(image[None], found.dtype, torch.contiguous_format)
                assert torch.equal(found[row, column], wanted[0])
                continue
            centred = image.double() - statistics.mean.round().double()
            wanted = centred * statistics.scale().double()
            found_here = found[row, column].double()
            torch.testing.assert_close(found_here, wanted, rtol=1e-2 if is_bf16 else 1e-6, atol=0)


@pytest.mark.parametrize("normalise", [True, "each"])
def test_what_is_kept_of_settled_statistics_is_that_of_the_newest(monkeypatch, normalise):
    monkeypatch.setattr("ritornello.agent.models.pixels.OBSERVED_BATCHES", 2)
    first, second, third = (torch.from_numpy(batch // 3) for batch in batches(3))
    statistics = PixelStatistics(SHAPE, normalise=normalise)

    def seen():
        how = torch.float32, torch.contiguous_format
        if normalise == "each":
            return statistics.normalised(first, *how)
        centred, scale = statistics.centred(first, *how)
        return centred * scale

    def wanted():
        scale = statistics.scale()
        seen = torch.clamp(first, *statistics.bounds()) if normalise == "each" else first
        return seen * scale - statistics.mean.round() * scale

    statistics.observe(first)
    torch.testing.assert_close(seen(), wanted())  # not settled: not kept
    restore = statistics.snapshot()
    statistics.observe(second)
    torch.testing.assert_close(seen(), wanted())  # settled, and kept
    assert statistics._kept_parts
    restore()
    statistics.observe(third)
    torch.testing.assert_close(seen(), wanted())
    other = observed([batch // 5 for batch in batches(2, seed=4)], normalise=normalise)
    statistics.load_state_dict(other.state_dict())
    torch.testing.assert_close(seen(), wanted())


def test_loaded_statistics_know_how_many_batches_they_are_of(monkeypatch):
    monkeypatch.setattr("ritornello.agent.models.pixels.OBSERVED_BATCHES", 3)
    statistics, fresh = observed(batches(2)), PixelStatistics(SHAPE)
    fresh.load_state_dict(statistics.state_dict())
    for batch in batches(2, seed=7):
        statistics.observe(torch.from_numpy(batch))
        fresh.observe(torch.from_numpy(batch))
    assert fresh.is_settled
    assert int(fresh.batches) == 3
    assert torch.equal(fresh.mean, statistics.mean)
    copied = copy.deepcopy(fresh)
    copied.load_state_dict(PixelStatistics(SHAPE).state_dict())
    assert not copied.is_settled
    assert fresh.is_settled


@pytest.mark.parametrize("normalise", [True, "each", "rare"])
@pytest.mark.parametrize("seen", [0, 1, 2])
def test_what_was_observed_can_be_put_back(monkeypatch, seen, normalise):
    monkeypatch.setattr("ritornello.agent.models.pixels.OBSERVED_BATCHES", 2)
    images = batches(4)
    statistics, straight = (observed(images[:seen], normalise) for _ in range(2))
    restore = statistics.snapshot()
    for batch in images[2:]:
        statistics.observe(torch.from_numpy(batch))
    restore()
    for one in (statistics, straight):
        one.observe(torch.from_numpy(images[seen]))
    for name, tensor in straight.state_dict().items():
        assert torch.equal(statistics.state_dict()[name], tensor), name
