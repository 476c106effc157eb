"""Atari ids of one's own: what they are registered with is played, by whichever backend can."""

import contextlib

import gymnasium
import numpy as np
import pytest

from ritornello.core.errors import ConfigError
from ritornello.wrappers.config import MAX_EPISODE_FRAMES, EnvConfig
from ritornello.wrappers.env_ids import as_registered, is_atari
from ritornello.wrappers.registry import (
    choose_backend,
    make_env_spec,
    make_env_vector,
    max_game_steps,
)
from ritornello.wrappers.start_line import describe
from tests.wrappers import lying
from tests.wrappers.twins import assert_rows_agree, play, play_twins

OWN = "tests/OwnGame-v0"
PLAIN = {
    "game": "breakout",
    "frameskip": 1,
    "repeat_action_probability": 0.0,
    "full_action_space": False,
    "max_num_frames_per_episode": 108_000,
}


@contextlib.contextmanager
def registered(kwargs, entry_point="ale_py.env:AtariEnv", **more):
    """Register OWN as a game of Atari; `kwargs` beside, or instead of, the usual ones."""
    given = {name: value for name, value in {**PLAIN, **kwargs}.items() if value != "missing"}
    play_twins.cache_clear()  # ids are the same, and what they stand for is not
    with lying.registered(entry_point, OWN, kwargs=given, **more):
        yield


def rows_of(config):
    vector = make_env_vector(config, 1, [3])
    actions = np.random.default_rng(0).integers(vector.spec.action_count, size=(60, 1))
    rows = [stacks.tobytes() for stacks, _ in play(vector, actions)]
    vector.close()
    return rows


BOTH = [
    ({"repeat_action_probability": "missing", "full_action_space": True}, {}),
    ({"max_num_frames_per_episode": 90, "game": "space_invaders"}, {}),
    ({"frameskip": "missing"}, {"max_episode_steps": 25}),
    ({"frameskip": 3, "max_num_frames_per_episode": 200}, {"max_episode_steps": 30}),
]


@pytest.mark.parametrize(("kwargs", "more"), BOTH, ids=str)
def test_both_backends_play_the_game_that_is_registered(kwargs, more):
    with registered(kwargs, **more):
        config = EnvConfig(OWN, action_repeat=3)
        assert choose_backend(config).name == "ale_vector"
        assert_rows_agree(*play_twins(config, steps=60))


@pytest.mark.parametrize(
    ("kwargs", "more", "asked", "frames"),
    [
        ({"frameskip": 4}, {"max_episode_steps": 100}, {}, 400),
        ({"frameskip": "missing"}, {"max_episode_steps": 100}, {}, 400),
        ({"max_num_frames_per_episode": 400}, {"max_episode_steps": 90}, {}, 90),
        ({"max_num_frames_per_episode": 400}, {}, {"max_episode_frames": 200}, 200),
        ({"max_num_frames_per_episode": 400}, {}, {"max_episode_frames": 900}, 400),
        ({"max_num_frames_per_episode": None}, {}, {}, MAX_EPISODE_FRAMES),
        ({}, {}, {"max_episode_frames": 300_000}, 300_000),
    ],
    ids=str,
)
def test_limits_of_an_id_are_counted_in_its_own_unit(kwargs, more, asked, frames):
    with registered(kwargs, **more):
        config = EnvConfig(OWN, **asked)
        honoured = as_registered(config)
        assert honoured.max_episode_frames == frames
        assert as_registered(honoured) == honoured
        assert max_game_steps(config) == -(-frames // 4)
        assert f"at most {frames} frames" in describe(config)


def test_a_mode_is_played_by_the_backend_that_has_modes():
    why = "mode=3, difficulty=1"
    with registered({"game": "freeway"}):
        config = EnvConfig(OWN, noop_max=0)
        plain = rows_of(config)
        asked = rows_of(EnvConfig(OWN, noop_max=0, kwargs='{"mode": 3, "difficulty": 1}'))
    with registered({"game": "freeway", "mode": 3, "difficulty": 1}):
        backend = choose_backend(config)
        assert (backend.name, why in backend.reason) == ("gymnasium", True)
        assert f"{OWN} is made with {why}" in describe(config)
        assert rows_of(config) != plain
        assert rows_of(config) == asked, "--env_kwargs says the same"
        with pytest.raises(ConfigError, match=f"backend is ale_vector, but .* {why}"):
            choose_backend(EnvConfig(OWN, backend="ale_vector"))


def test_a_wrapper_that_is_registered_is_kept():
    wrapper = gymnasium.envs.registration.WrapperSpec(
        "TransformReward", "gymnasium.wrappers:TransformReward", {"func": lambda reward: 7.0}
    )
    with registered({}, additional_wrappers=(wrapper,)):
        config = EnvConfig(OWN)
        assert "TransformReward" in choose_backend(config).reason
        vector = make_env_vector(config, 1, [3])
        vector.reset()
        assert vector.step(np.zeros(1, np.int64)).reward[0] == 4 * 7.0
        vector.close()


@pytest.mark.parametrize(
    ("kwargs", "why", "shape", "actions"),
    [
        ({"continuous": True}, "continuous=True", (3, 210, 160), "float32"),
        ({"sound_obs": True}, "sound_obs=True", (512 * 4 + 3 * 210 * 160,), "int64"),
        ({"obs_type": "ram", "frameskip": (2, 5)}, "obs_type='ram'", (128,), "int64"),
    ],
    ids=str,
)
def test_a_game_without_screen_or_joystick_is_taken_as_it_is(kwargs, why, shape, actions):
    with registered(kwargs):
        config = EnvConfig(OWN)
        assert not is_atari(OWN)
        assert f"Atari rules do not apply; backend gymnasium ({OWN} is made with {why})" in (
            describe(config)
        )
        vector = make_env_vector(config, 1, [1])
        assert vector.spec.frame_shape == shape
        assert vector.spec.actions.dtype == actions
        vector.reset()
        for _ in range(3):
            vector.step(np.zeros((1, *vector.spec.actions.shape), actions))
        vector.close()


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"mode": 77}, "Invalid game mode"),
        ({"colour": "red"}, "unexpected keyword argument 'colour'"),
        ({"game": "no_such_game"}, "no ROM named 'no_such_game'"),
        ({"repeat_action_probability": 1.0}, "expected 0 .* less than 1"),
    ],
    ids=str,
)
def test_what_no_game_can_be_is_refused_by_its_name(kwargs, message):
    with registered(kwargs), pytest.raises(ConfigError, match=message):
        make_env_spec(EnvConfig(OWN))
