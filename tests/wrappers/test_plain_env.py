"""Environments that lie are caught in the step in which they do, and named with what they show."""

import math
import re

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict

from ritornello.core.errors import ConfigError, EnvironmentFault
from ritornello.wrappers.gym_observations import ObservationCode
from ritornello.wrappers.plain_env import PlainEnv
from ritornello.wrappers.registry import make_env_vector
from tests.wrappers.lying import LyingEnv, registered


def played(lie=None, reset_lie=None, space=None, steps=5, num_envs=3, lie_at=3):
    """Play a vector whose environments lie at their third step; return the last result."""
    with registered(lambda: LyingEnv(lie, lie_at, reset_lie, space)) as config:
        vector = make_env_vector(config, num_envs, range(num_envs))
        vector.reset()
        for _ in range(steps):
            result = vector.step(np.zeros(num_envs, np.int64))
        return result


def showing(observation):
    return lambda o, r, terminated, truncated, info: (observation, r, terminated, truncated, info)


def paying(reward):
    return lambda o, r, terminated, truncated, info: (o, reward, terminated, truncated, info)


def stepped(lie, space=None):
    """Return what one environment gives that lies in its first step."""
    env = PlainEnv(LyingEnv(lie, 1, space=space), "tests/Lying-v0")
    env.reset()
    return env.step(0)


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (np.zeros(5, np.float32), r"has shape \(5,\), expected \(4,\)"),
        ([[0.0], [0.0, 1.0]], r"is \[\[0.0\], .*expected an array"),
        (None, "is None, expected an array of numbers"),
        (np.array(["1", "2", "3", "4"]), "is array.*expected an array of numbers"),
        (np.zeros(4, complex), "has dtype complex128, expected float32"),
        (np.array([0, math.nan, 0, 0], np.float32), r"\[1\] is nan, expected a finite"),
        (np.array([0, 0, math.inf, 0]), r"\[2\] is inf, expected a finite"),
        (np.array([0, 0, 0, 1e5], np.float32), r"\[3\] is 100000, expected to be in .*Box"),
    ],
    ids=str,
)
def test_an_observation_of_another_kind_is_called_an_observation(observation, message):
    with pytest.raises(EnvironmentFault, match=f"^observation ?{message}"):
        stepped(showing(observation))


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        (paying(None), "reward is None, expected one number"),
        (paying(np.array([1.0])), "reward is array([1.]) of shape (1,), expected one number"),
        (paying(math.nan), "reward is nan, expected a finite number"),
        (paying(10**400), "reward is inf"),
        (lambda o, r, te, tr, info: (o, r, te, info), "step returned 4 values (four of them: Gym"),
        (lambda o, r, te, tr, info: (o, r, te, tr, None), "info of step is None"),
        (lambda o, r, te, tr, info: (o, r, te, "no", info), "truncated is 'no', expected True"),
        (lambda o, r, te, tr, info: (o, r, np.zeros(2), tr, info), "terminated is array"),
    ],
)
def test_what_step_returns_must_be_the_five_things_of_gymnasium(lie, message):
    with pytest.raises(EnvironmentFault, match=f"^{re.escape(message)}"):
        stepped(lie)


@pytest.mark.parametrize("dtype", [np.int64, bool, list])
def test_what_numpy_converts_without_a_loss_of_meaning_is_taken(dtype):
    ones = dtype((1, 1, 1, 1)) if dtype is list else np.ones(4, dtype)
    np.testing.assert_array_equal(stepped(showing(ones))[0], np.ones(4, np.float32))


@pytest.mark.parametrize(
    ("space", "observation", "is_taken"),
    [
        (Box(-1, 1, (4,)), 150.0, True),  # a little outside happens, far outside is another unit
        (Box(-1, 1, (4,)), 250.0, False),
        (Box(0, 1, (4,)), 255.0, False),  # pixels that should have been divided
        (Box(0, np.inf, (4,)), 1e30, True),
        (Box(0, np.inf, (4,)), -1e30, False),
        (Box(-np.inf, np.inf, (4,), np.float64), 1e300, False),  # inf in float32
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.filterwarnings("ignore:.*precision lowered")
def test_bounds_are_those_of_the_space_with_a_wide_margin(space, observation, is_taken):
    frame = np.full(4, observation, space.dtype)
    if is_taken:
        assert (stepped(showing(frame), space)[0] == np.float32(observation)).all()
    else:
        with pytest.raises(EnvironmentFault, match="observation"):
            stepped(showing(frame), space)


@pytest.mark.parametrize("dtype", [np.uint16, np.int8])
def test_numbers_that_would_wrap_among_bytes_are_refused(dtype):
    code = ObservationCode(Box(0, 255, (2, 2), np.uint8))
    with pytest.raises(EnvironmentFault, match=f"dtype {np.dtype(dtype)}, expected uint8"):
        code.encode(np.full((2, 2), 100, dtype))
    assert code.encode(np.ones((2, 2), bool)).tolist() == [[[1, 1], [1, 1]]]


def leave(*honest):
    raise SystemExit(0)


@pytest.mark.parametrize(
    ("broken", "raised"),
    [(lambda *honest: 1 // 0, "ZeroDivisionError"), (leave, "SystemExit: 0")],
)
def test_the_environment_the_game_the_step_and_the_line_of_an_error_are_told(broken, raised):
    place = r"env tests/Lying-v0, environment 1 of 3, game 1, step 3, action 0: raised"
    with pytest.raises(EnvironmentFault, match=rf"{place} {raised}.*test_plain_env.py, line"):
        played(broken)


@pytest.mark.parametrize(
    ("lies", "message"),
    [
        ({"reset_lie": lambda o, info: o}, "its reset: reset returned array"),
        ({"reset_lie": lambda o, info: (o, None)}, "its reset: info of reset is None, expected"),
        ({"reset_lie": lambda o, info: (o * np.nan, info)}, "its reset: .*a finite number"),
        ({"reset_lie": lambda o, info: 1 // 0}, "its reset: raised ZeroDivisionError"),
        ({"lie": paying(None), "lie_at": 1}, "step 1, action 0: reward is None"),
    ],
)
def test_a_lie_of_the_first_step_is_told_before_anything_is_started(lies, message):
    with pytest.raises(ConfigError, match=f"game 1, {message}"):
        played(**lies)


def test_every_environment_is_closed_even_if_one_refuses(caplog):
    closed = []

    class Refusing(LyingEnv):
        def close(self):
            closed.append(self)
            if self._lie:
                raise OSError("no")

    with registered(Refusing) as config:
        vector = make_env_vector(config, 3, range(3))
        vector._envs[0].unwrapped._lie = paying(0.0)
        closed.clear()
        vector.close()
    assert len(closed) == 3
    assert "raised OSError: no" in caplog.text


def test_environments_that_were_made_are_closed_if_a_later_one_cannot_be():
    made, closed = [], []

    class Third(LyingEnv):
        def __init__(self):
            super().__init__()
            made.append(self)
            if len(made) == 4:  # the first one was tried out
                raise RuntimeError("port in use")

        def close(self):
            closed.append(self)

    with (
        registered(Third) as config,
        pytest.raises(
            EnvironmentFault,
            match="environment 3 of 3, when it was made: raised RuntimeError: port in use",
        ),
    ):
        make_env_vector(config, 3, range(3))
    assert closed == made[:3]


@pytest.mark.parametrize(
    "space",
    [
        Box(0, 1, (0,)),
        Dict({"a": Box(0, 255, (4, 0, 3), np.uint8), "b": Box(0, 1, (2,))}),
    ],
    ids=["vector", "part"],
)
def test_spaces_in_which_there_is_nothing_are_refused(space):
    with pytest.raises(ConfigError, match="not supported .*(shows nothing|has no pixels)"):
        PlainEnv(LyingEnv(space=space), "tests/Lying-v0")


@pytest.mark.parametrize("info", [{"life_lost": np.array([True, False])}])
def test_what_an_environment_calls_a_lost_life_ends_nothing(info):
    def lie(observation, reward, terminated, truncated, _):
        return observation, reward, terminated, True, {**info, "episode_frame_number": None}

    result = played(lie, steps=3)
    assert not result.terminated.any()
    assert [(end.length_steps, end.length_frames) for end in result.episodes] == [(3, 3)] * 3
