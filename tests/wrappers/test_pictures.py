"""What is a picture, where its channels are, and how fast pictures follow each other."""

import itertools
import os
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import FrameStackObservation

from ritornello.core.errors import ConfigError, EnvironmentFault
from ritornello.wrappers import extra_worlds
from ritornello.wrappers.images import channel_axes, is_image_space, picture_of
from ritornello.wrappers.registry import (
    check_rendering,
    make_env_spec,
    make_env_vector,
    steps_per_s,
)
from ritornello.wrappers.start_line import describe
from tests.wrappers.lying import registered

BLACK = np.zeros((8, 6, 3), np.uint8)


def drawing(picture=BLACK, fps=10, shape=(4,), dtype=np.float32, high=1):
    """Return a class of environments that draw a picture, and show random images."""

    class Drawing(gymnasium.Env):
        metadata = {"render_modes": ["rgb_array"], "render_fps": fps}  # noqa: RUF012
        observation_space = Box(0, high, shape, dtype)
        action_space = Discrete(2)

        def __init__(self, render_mode=None):
            self.render_mode = render_mode

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.shown(), {}

        def step(self, action):
            return self.shown(), 0.0, bool(self.np_random.random() < 0.1), False, {}

        def shown(self):
            return (self.np_random.random(shape) * high).astype(dtype)

        def render(self):
            return picture

    return Drawing


SIZE = (8, 6, 3)


@pytest.mark.parametrize(
    ("drawn", "seen"),
    [
        (np.full(SIZE, 127, np.uint8), 127),
        (np.full(SIZE, 127.0), 127),
        (np.full(SIZE, 0.5), 127),
        (np.full(SIZE, 1.001), 255),
        (np.ones(SIZE, bool), 255),
        (np.full((8, 6), 0.5, np.float32), 127),
        (np.full((3, 8, 6), 127, np.uint8).transpose(1, 2, 0)[::-1], 127),
    ],
)
def test_a_film_shows_what_is_drawn(drawn, seen):
    picture = picture_of(drawn)
    assert (picture.shape, picture.dtype) == (SIZE, np.uint8)
    assert (picture == seen).all()


NO_PICTURES = [
    None,
    "a picture",
    np.zeros((1, 6, 3), np.uint8),
    np.zeros((8, 6, 4), np.uint8),
    np.full(SIZE, 300),
    np.full(SIZE, -0.5),
    np.full(SIZE, np.nan),
]


@pytest.mark.parametrize("drawn", NO_PICTURES, ids=range(len(NO_PICTURES)))
def test_what_cannot_be_a_picture_is_refused(drawn):
    with pytest.raises(EnvironmentFault, match="expected a picture"):
        picture_of(drawn)


def test_a_film_of_an_environment_that_draws_no_pictures_says_why():
    with registered(drawing("a picture")) as config:
        vector = make_env_vector(config, 1, [1], render_mode="rgb_array")
        vector.reset()
        with pytest.raises(ConfigError, match="env tests/Lying-v0.*expected a picture"):
            check_rendering(config, "rgb_array")
        with pytest.raises(EnvironmentFault, match="env tests/Lying-v0.*expected a picture"):
            vector.render()
        vector.close()


def test_an_environment_without_a_method_is_told_which():
    blind = type("Blind", (drawing(),), {"render": gymnasium.Env.render})
    with registered(blind) as config:
        told = r"asked for a picture; its class has no render\(\) of its own"
        with pytest.raises(ConfigError, match=told):
            check_rendering(config, "rgb_array")
        vector = make_env_vector(config, 1, [1], render_mode="rgb_array")
        vector.reset()
        with pytest.raises(EnvironmentFault, match=r"its class has no render\(\)"):
            vector.render()
        vector.close()


@pytest.mark.parametrize(
    ("said", "rate"),
    [
        *((kind(4), 4.0) for kind in (int, np.float32, np.array)),
        ("4", 4.0),
        *((odd, 60.0) for odd in (None, "fast", -1, 1e9, float("nan"), [4])),
    ],
    ids=str,
)
def test_a_film_runs_as_fast_as_its_environment_says(said, rate):
    with registered(drawing(fps=said)) as config:
        assert steps_per_s(config) == rate


@pytest.mark.parametrize(
    ("display", "chosen", "library", "expected"),
    [
        (None, None, "libEGL.so.1", "egl"),
        (None, "osmesa", "libEGL.so.1", "osmesa"),
        (None, None, None, None),
        (":0", None, "libEGL.so.1", None),
    ],
)
def test_mujoco_draws_without_a_display_unless_told_how(
    monkeypatch, display, chosen, library, expected
):
    for name, value in (("DISPLAY", display), ("WAYLAND_DISPLAY", None), ("MUJOCO_GL", chosen)):
        monkeypatch.setenv(name, value or "")
        if value is None:
            monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(extra_worlds.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(extra_worlds.ctypes.util, "find_library", lambda name: library)
    extra_worlds.draw_without_display()
    assert os.environ.get("MUJOCO_GL") == expected


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((84, 84), ()),
        ((84, 84, 3), (2,)),
        ((3, 84, 84), (0,)),
        ((12, 84, 84), (0,)),
        ((84, 84, 12), (2,)),
        ((8, 8, 12), (2,)),
        ((17, 9, 9), (0,)),
        ((4, 4, 16), (2,)),
        ((2, 3, 3), (0,)),
        ((8, 60, 80), (0,)),
        ((60, 80, 8), (2,)),
        ((16, 16, 16), (2,)),
        ((1, 200, 3), (2,)),
        ((1, 1, 64), (0,)),
        ((4, 40, 48, 3), (0, 3)),
        ((4, 3, 40, 48), (0, 1)),
    ],
)
def test_the_channels_are_the_axis_that_looks_like_it_and_a_stack_counts_images(shape, axes):
    assert channel_axes(shape) == axes
    assert is_image_space(Box(0, 255, shape, np.uint8))
    assert is_image_space(Box(0, 1, shape, np.float32)) == (len(shape) > 2)
    others = tuple(side for axis, side in enumerate(shape) if axis not in axes)
    count = int(np.prod([shape[axis] for axis in axes]))
    with registered(drawing(shape=shape, dtype=np.uint8, high=255)) as config:
        assert make_env_spec(config).frame_shape == (count, *others)
        said = f"images of {others[0]}x{others[1]} pixels and {count} channels"
        assert said in describe(config)


def test_two_equal_sides_are_height_and_width_wherever_the_channels_are():
    for side, count in itertools.product(range(2, 30), range(1, 150)):
        if count != side:
            assert channel_axes((count, side, side)) == (0,)
            assert channel_axes((side, side, count)) == (2,)


def test_an_environment_says_where_its_channels_are_whatever_they_look_like():
    for said, shape in (("last", (9, 17, 9)), ("first", (17, 9, 9))):
        kind = drawing(shape=(17, 9, 9))
        kind.metadata = {**kind.metadata, "channels": said}
        with registered(kind) as config:
            assert make_env_spec(config).frame_shape == shape


@pytest.mark.parametrize("shape", [(12, 16, 3), (3, 12, 16)])
def test_images_that_gymnasium_has_stacked_are_the_channels_of_one(shape):
    kind = drawing(shape=shape, dtype=np.uint8, high=255)
    with registered(lambda **options: FrameStackObservation(kind(**options), 4)) as config:
        vector = make_env_vector(config, 1, [3])
        vector._envs[0].reset(seed=1)
        shown = vector._envs[0].step(0)[0]
        vector.close()
    stacked = FrameStackObservation(kind(), 4)
    stacked.reset(seed=1)
    frames = np.moveaxis(stacked.step(0)[0], 1 + channel_axes(shape)[0], 1)
    np.testing.assert_array_equal(shown, frames.reshape(12, 12, 16))


@pytest.mark.parametrize("part", ["observation_space", "action_space"])
def test_spaces_of_another_package_are_told_by_its_name(part):
    foreign = type("Box", (), {"__module__": "gym.spaces.box", "shape": (4,)})()
    told = "Box is of the package gym, not of gymnasium: import its spaces from gymnasium"
    with (
        registered(type("Old", (drawing(),), {part: foreign})) as config,
        pytest.raises(ConfigError, match=told),
    ):
        make_env_spec(config)
