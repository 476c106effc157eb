"""Observations of several parts, and of other shapes than a vector or an image."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Text, Tuple
from gymnasium.vector.utils import batch_space

from ritornello.agent.models.factory import ModelConfig, make_model
from ritornello.agent.models.parts import PartsTorso
from ritornello.core.errors import ConfigError, EnvironmentFault
from ritornello.wrappers import gym_observations
from ritornello.wrappers.gym_observations import ObservationCode
from ritornello.wrappers.registry import make_env_spec, make_env_vector
from ritornello.wrappers.start_line import describe
from tests.wrappers.lying import registered

PIXELS = Box(0, 255, (5, 7, 3), np.uint8)


class Shower(gymnasium.Env):
    """Shows what it is told to."""

    action_space = Discrete(2)

    def __init__(self, space, observation=None):
        self.observation_space, self.observation = space, observation

    def reset(self, *, seed=None, options=None):
        return self.observation, {}

    def step(self, action):
        return self.observation, 0.0, False, False, {}


@pytest.mark.parametrize(
    ("space", "observation", "expected"),
    [
        (Discrete(3, start=5), 6, [0, 1, 0]),
        (MultiDiscrete([2, 3], start=[0, -1]), np.array([1, 1]), [0, 1, 0, 0, 1]),
        (MultiBinary([2, 2]), np.array([[1, 0], [0, 1]], np.int8), [1, 0, 0, 1]),
        (Box(-1, 1, (2, 2)), np.array([[0.5, -1], [0, 1]], np.float32), [0.5, -1, 0, 1]),
        (Box(0, 9, (), np.int64), np.array(7), [7]),
        (
            Dict({"b": Discrete(2), "a": Tuple((Box(-1, 1, (1,)), MultiBinary(1)))}),
            {"a": (np.array([0.25], np.float32), np.array([1], np.int8)), "b": 1},
            None,
        ),
    ],
    ids=str,
)
def test_what_is_no_image_becomes_one_vector(space, observation, expected):
    if expected is None:
        parts = {"b": [0, 1], "a": [0.25, 1]}
        expected = [number for name in space.spaces for number in parts[name]]
    code = ObservationCode(space)
    vector = code.encode(observation)
    assert vector.dtype == np.float32
    assert vector.tolist() == expected
    assert (code.shape, code.parts) == (vector.shape, ())


def test_images_and_numbers_share_a_frame_from_which_the_model_has_both_again():
    space = Dict({"eye": PIXELS, "gray": Box(0, 255, (4, 6), np.uint8), "speed": Box(-9, 9, (3,)),
                  "depth": Box(0, 1, (2, 4, 3), np.float32)})  # fmt: skip
    draw = np.random.default_rng(0)
    given = {
        "eye": draw.integers(0, 256, (5, 7, 3), np.uint8),
        "gray": draw.integers(0, 256, (4, 6), np.uint8),
        "speed": np.array([1.5, -2.25, 3.125], np.float32),
        "depth": draw.uniform(size=(2, 4, 3)).astype(np.float32),
    }
    with registered(lambda: Shower(space, given)) as of_one:
        config = replace(of_one, frames_stacked=2)
        spec = make_env_spec(config)
        vector = make_env_vector(config, 3, [1, 2, 3])
        first = vector.reset().copy()
        second = vector.step(np.zeros(3, np.int64)).stacks
        said = describe(config)
    assert spec.frame_dtype == "uint8"
    assert spec.frame_shape[0] % 4 == 0
    assert spec.shows_images
    assert not spec.is_image
    assert {part.shape for part in spec.observation_parts} == {
        (3, 5, 7), (1, 4, 6), (3,), (3, 2, 4),
    }  # fmt: skip
    assert "images of 5x7 pixels and 3 channels" in said
    assert "3 numbers" in said
    assert ", 2 stacked" in said

    torso = make_model(ModelConfig(), spec).torso_net
    assert isinstance(torso, PartsTorso)
    expected = {
        (6, 5, 7): np.moveaxis(given["eye"], -1, 0), (2, 4, 6): given["gray"][None],
        (6,): given["speed"], (6, 2, 4): np.moveaxis(given["depth"], -1, 0),
    }  # fmt: skip
    for stacks, has_two in ((first, False), (second, True)):
        parts = torso.parts(torch.from_numpy(stacks).flatten(1))
        assert {tuple(part.shape[1:]) for part in parts} == set(expected)
        for part in parts:
            one = expected[tuple(part.shape[1:])]
            older = one if has_two else np.zeros_like(one)
            np.testing.assert_array_equal(part[2].numpy(), np.concatenate([older, one]))


@pytest.mark.parametrize(
    ("observation", "told"),
    [
        ({"a": 1}, r"observation is .*expected a dict with 'b'"),
        (7, "expected a dict with 'a'"),
        ({"a": 5, "b": (np.zeros(2, np.float32),)}, r"observation\['a'\] is 5, expected one of"),
        ({"a": 1, "b": (np.zeros(3, np.float32),)}, r"observation\['b'\]\[0\] has shape \(3,\)"),
        ({"a": 1, "b": (np.array([0, np.nan]),)}, r"observation\['b'\]\[0\]\[1\] is nan"),
        ({"a": 1, "b": (np.zeros(2),), "c": 0}, r"observation has 3 parts, expected 2"),
    ],
)
def test_what_is_not_in_its_space_is_told_with_its_place(observation, told):
    space = Dict({"a": Discrete(2), "b": Tuple((Box(-1, 1, (2,)),))})
    with pytest.raises(EnvironmentFault, match=told):
        ObservationCode(space).encode(observation)


@pytest.mark.parametrize(
    ("space", "told"),
    [
        (Dict({"mission": Text(4), "image": PIXELS}), r"^\['mission'\]: Text is none of Box"),
        (Tuple((Discrete(2), Graph(Discrete(2), None))), r"^\[1\]: Graph is none of"),
        (Tuple(()), "it shows nothing"),
    ],
    ids=str,
)
def test_other_spaces_are_refused_with_the_place_and_the_reason(space, told):
    with pytest.raises(ConfigError, match=told):
        ObservationCode(space)


@pytest.mark.parametrize("space", [Box(0, 1, (3,)), PIXELS, Box(0, 255, (5, 7), np.uint8)])
def test_vectors_and_images_are_one_array_as_they_are(space):
    code, shown = ObservationCode(space), space.sample()
    assert code.parts == ()
    axes = {3: (2, 0, 1), 2: (0, 1), 1: (0,)}[shown.ndim]
    np.testing.assert_array_equal(code.encode(shown).squeeze(), shown.transpose(axes))


def test_the_space_of_many_environments_is_not_made_at_each_step(monkeypatch):
    made = []
    monkeypatch.setattr(
        gym_observations, "batch_space", lambda *of: made.append(of) or batch_space(*of)
    )
    space = Dict(image=Box(0, 255, (8, 9, 3), np.uint8), numbers=Box(-1, 1, (2,)))
    code, seen = ObservationCode(space), batch_space(space, 3).sample()
    twins = [code.all_of(seen, 3) for _ in range(4)]
    np.testing.assert_array_equal(twins[0], twins[-1])
    assert made == [(space, 3)]
