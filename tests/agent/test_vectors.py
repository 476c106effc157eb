import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ritornello.agent.models.vectors import LARGEST, NormalisedVectors, VectorStatistics
from ritornello.core.errors import ConfigError
from tests.agent.builders import make_batch, make_small_model, make_spec


def vectors(seed, count, width=3):
    """Numbers of other sizes, one of them far from 0 beside how much it moves."""
    draw = np.random.default_rng(seed).standard_normal((count, width))
    return torch.tensor(draw * [1.0, 100.0, 1e-2] + [0.0, -5.0, 1e3])


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(0, 100))
def test_the_statistics_are_those_of_all_vectors_together(sizes, seed):
    statistics, seen = VectorStatistics(3), []
    for number, size in enumerate(sizes):
        seen.append(vectors(seed + number, size))
        statistics.observe(seen[-1])
    together = torch.cat(seen)
    assert statistics.count.item() == len(together)
    if not len(together):
        return
    torch.testing.assert_close(statistics.mean, together.mean(0))
    variance = statistics.square / statistics.count
    torch.testing.assert_close(variance, together.var(0, correction=0), rtol=1e-6, atol=1e-9)


def test_vectors_are_shown_in_deviations_from_their_mean():
    statistics, seen = VectorStatistics(3), vectors(1, 5000)
    shown = statistics.normalised(seen.float())
    torch.testing.assert_close(shown, seen.float())  # of which nothing is known yet
    statistics.observe(seen)
    shown = statistics.normalised(seen.float())
    torch.testing.assert_close(shown.mean(0), torch.zeros(3), atol=0.01, rtol=0)
    # 1000.01 has few digits of float32 left for its hundredths.
    torch.testing.assert_close(shown.std(0), torch.ones(3), atol=0.01, rtol=0)
    assert statistics.normalised(torch.full((1, 3), 1e30)).tolist() == [[LARGEST] * 3]


def test_a_model_shows_its_torso_what_the_learner_has_observed_and_saves_it():
    model = make_small_model(make_spec(), normalise_vectors=True)
    assert isinstance(model.torso_net, NormalisedVectors)
    batch = make_batch()
    plain = make_small_model(make_spec())
    torch.testing.assert_close(model.torso(batch.obs), plain.torso(batch.obs))
    model.observe(batch.obs.flatten(0, 1) * 50 + 3)
    shown = (batch.obs - model.torso_net.statistics.mean.float()) / (
        model.torso_net.statistics.square / model.torso_net.statistics.count
    ).sqrt().float()
    torch.testing.assert_close(model.torso(batch.obs), plain.torso(shown), rtol=1e-4, atol=1e-5)
    other = make_small_model(make_spec(), normalise_vectors=True)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.torso(batch.obs), model.torso(batch.obs))
    assert make_small_model(make_spec((3, 40, 40)), normalise_vectors=True).unsettled()[0].mean.ndim


def test_several_games_are_refused():
    with pytest.raises(ConfigError, match="normalise_vectors is True, expected False for several"):
        make_small_model(make_spec(), tasks=2, normalise_vectors=True)
