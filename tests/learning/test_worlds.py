"""The whole learner solves worlds with other actions and observations than one choice and a vector.

What is looked at are the last games of the training, in which actions are still drawn.
"""

import pytest

from ritornello.agent.models.parts import PartsTorso
from ritornello.agent.other_distributions import DiagGaussianPolicy
from tests.learning.training import train

RECIPE = {"advantage_normalisation": "rms", "entropy_loss_weight": 0.003}


def mean_return(trainer):
    return trainer._tally.games.mean


def test_a_target_is_reached_by_moving_along_both_axes(tmp_path):
    """A game pays 0.85 to 1 when the target is reached, and nothing on average at random."""
    trainer = train(tmp_path, "Reach", module="worlds", steps=12_000, **RECIPE)
    assert mean_return(trainer) > 0.8


def test_among_twenty_keys_those_that_fit_are_learned_with_the_mask(tmp_path):
    """All locks pay 10, and 5 with keys that fit at random."""
    trainer = train(tmp_path, "Locks-info", module="locked", steps=6_000, **RECIPE)
    assert mean_return(trainer) > 9


@pytest.mark.slow
def test_among_twenty_keys_they_are_not_learned_without_it(tmp_path):
    trainer = train(tmp_path, "Locks-nothing", module="locked", steps=6_000, **RECIPE)
    assert mean_return(trainer) < 5


@pytest.mark.slow
def test_whoever_forgets_the_distance_to_the_mean_does_not_reach_it(tmp_path, monkeypatch):
    def mistaken(policy, action):
        return -policy.log_std.sum(-1) - 0.0 * action.sum(-1)

    monkeypatch.setattr(DiagGaussianPolicy, "log_prob", mistaken)
    trainer = train(tmp_path, "Reach", module="worlds", steps=4_000, **RECIPE)
    assert mean_return(trainer) < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["queue", "standard"])
def test_several_dials_are_set_at_once(tmp_path, kind):
    """All right pays 4, and 4 * (1/3 + 1/2 + 1/4) / 3 = 1.4 at random."""
    trainer = train(tmp_path, "Dials", module="worlds", kind=kind, steps=12_000, **RECIPE)
    assert mean_return(trainer) > 3.4


@pytest.mark.slow
def test_choices_and_numbers_are_learned_together(tmp_path):
    """All right pays 4, and about 1.8 at random."""
    trainer = train(tmp_path, "Mixed", module="worlds", steps=16_000, **RECIPE)
    assert mean_return(trainer) > 3.2


@pytest.mark.slow
def test_numbers_of_any_unit_are_learned_from_in_deviations_from_their_mean(tmp_path):
    flags = {"module": "worlds", "steps": 12_000, **RECIPE}
    trainer = train(tmp_path, "Remote", normalise_vectors=True, **flags)
    assert mean_return(trainer) > 0.8


@pytest.mark.slow
def test_as_they_are_they_are_not(tmp_path):
    trainer = train(tmp_path, "Remote", module="worlds", steps=6_000, **RECIPE)
    assert mean_return(trainer) < 0.5


IMAGES = {"module": "worlds", "frames_stacked": 1, "lr": 3e-3, "entropy_loss_weight": 0.01}


@pytest.mark.slow
def test_a_lamp_is_found_in_a_coloured_picture_of_odd_size(tmp_path):
    """A hit in each of 4 steps pays 4, and chance 4/3."""
    flags = IMAGES | {"entropy_loss_weight": 0.05}  # with less, some seeds choose one for ever
    assert mean_return(train(tmp_path, "Lamp", steps=6_000, **flags)) > 3.4


@pytest.mark.slow
def test_a_picture_is_read_by_the_switch_beside_it(tmp_path):
    """Either of the two alone says nothing: whoever sees one of them earns 2 of 4."""
    assert mean_return(train(tmp_path, "Sign", steps=8_000, **IMAGES)) > 3.4


@pytest.mark.slow
def test_whoever_does_not_see_the_switch_cannot_read_the_picture(tmp_path, monkeypatch):
    parts = PartsTorso.parts

    def without_numbers(torso, obs):
        numbers, image = parts(torso, obs)
        return [numbers * 0, image]

    monkeypatch.setattr(PartsTorso, "parts", without_numbers)
    assert mean_return(train(tmp_path, "Sign", steps=3_000, **IMAGES)) < 2.6
