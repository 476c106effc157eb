"""MuJoCo, Box2D, MiniGrid and ViZDoom: without their packages, and with them."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.spaces import Box, Dict, Discrete

from ritornello.core.errors import ConfigError
from ritornello.wrappers import env_ids, extra_worlds
from ritornello.wrappers.check import check
from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.env_ids import check_env_id, find_gym_spec
from ritornello.wrappers.extra_worlds import WORLDS, is_installed, prepare_world
from ritornello.wrappers.plain_env import PlainEnv
from ritornello.wrappers.registry import make_env_spec, make_env_vector
from ritornello.wrappers.start_line import describe
from ritornello.wrappers.world_views import CELL_VALUES, as_shown, left_out_of
from tests.wrappers.lying import registered

BY_NAME = {world.name: world for world in WORLDS}


def needs(name):
    """Skip a test without the package of a world."""
    world = BY_NAME[name]
    reason = f"needs {world.package}: {world.install}"
    return pytest.mark.skipif(not is_installed(world), reason=reason)


@pytest.mark.parametrize(
    ("env_id", "name"),
    [
        ("HalfCheetah-v5", "mujoco"),
        ("LunarLander-v3", "box2d"),
        ("MiniGrid-DoorKey-5x5-v0", "minigrid"),
        ("VizdoomBasic-v1", "vizdoom"),
    ],
)
def test_an_id_of_a_world_whose_package_is_missing_is_told_with_what_to_install(
    monkeypatch, env_id, name
):
    monkeypatch.setattr(extra_worlds, "is_installed", lambda world: False)
    monkeypatch.setattr(env_ids, "envpool_worlds", frozenset)  # some are EnvPool's as well
    with pytest.raises(ConfigError, match=rf"{env_id}.*pip install -e '\.\[{name}\]'"):
        check_env_id(env_id)


def test_a_package_that_cannot_be_imported_is_told_in_one_line(monkeypatch):
    broken = extra_worlds.World("broken", "numpy", ("Broken-",), registers="no_such_module_here")
    monkeypatch.setattr(extra_worlds, "WORLDS", (broken,))
    with pytest.raises(ConfigError, match=r"package numpy raised ModuleNotFoundError.*imported"):
        find_gym_spec("Broken-v0")


class Symbols(gymnasium.Env):
    """Two by one cells, as MiniGrid shows them."""

    observation_space = Dict(
        {
            "image": Box(0, 255, (2, 1, 3), np.uint8),
            "direction": Discrete(4),
            "mission": gymnasium.spaces.Text(9),
        }
    )
    action_space = Discrete(2)
    __module__ = "minigrid.envs"
    cells = ([[5, 4, 0]], [[4, 0, 2]])  # a yellow key, and a red door that is locked

    def reset(self, *, seed=None, options=None):
        image = np.array(self.cells, np.uint8)
        return {"image": image, "direction": np.int64(3), "mission": "go"}, {}

    def step(self, action):
        return self.reset()[0], 0.0, True, False, {}


def test_symbols_become_a_one_for_each_property():
    env = PlainEnv(as_shown(Symbols()), "Symbols-v0")
    seen, _ = env.reset()
    kinds, colours, states = CELL_VALUES
    cell = kinds + colours + states
    ones = [5, kinds + 4, kinds + colours, cell + 4, cell + kinds, cell + kinds + colours + 2]
    assert np.flatnonzero(seen).tolist() == [*ones, 2 * cell + 3]
    assert seen.dtype == np.float32
    assert env.observation_space.contains(seen)


class Doom(gymnasium.Env):
    observation_space = Dict(
        {
            "screen": Box(0, 255, (240, 320, 3), np.uint8),
            "gamevariables": Box(-1, 1, (1,), np.float32),
            "audio": Box(-1, 1, (3,), np.float32),
        }
    )
    action_space = Discrete(2)
    __module__ = "vizdoom.gymnasium_wrapper"

    def reset(self, *, seed=None, options=None):
        screen = np.zeros((240, 320, 3), np.uint8)
        screen[:, 160:, 1] = 200  # the right half is green
        others = {"gamevariables": np.zeros(1, np.float32), "audio": np.zeros(3, np.float32)}
        return {"screen": screen, **others}, {}

    def step(self, action):
        return self.reset()[0], 0.0, True, False, {}


def test_a_screen_is_scaled_without_being_turned_or_mixed():
    env = as_shown(Doom())
    seen, _ = env.reset()
    assert seen.shape == (72, 128, 3)
    assert env.observation_space.contains(seen)
    assert (seen[:, 66:, 1] == 200).all()
    assert not seen[:, :62].any()
    assert not seen[:, :, [0, 2]].any()


class Robot(gymnasium.Env):
    """Shows a picture, a direction and a depth, and is of neither world."""

    observation_space = Dict(
        {
            "image": Box(0, 255, (40, 48, 3), np.uint8),
            "direction": Discrete(4),
            "screen": Box(0, 255, (40, 48, 3), np.uint8),
        }
    )
    action_space = Discrete(2)


def test_what_no_view_is_of_is_passed_on():
    env = Robot()
    assert as_shown(env) is env
    assert left_out_of(env) == ()


def test_an_id_of_ones_own_needs_no_package_however_it_begins(monkeypatch):
    monkeypatch.setattr(extra_worlds, "is_installed", lambda world: False)
    with registered(CartPoleEnv, "MiniGrid-MyOwn-v0") as config:
        check_env_id(config.env_id)
        assert make_env_spec(config).frame_shape == (4,)


def test_what_is_left_out_is_said_at_the_start_and_by_the_checker():
    with registered(Symbols) as config:
        assert ", without its mission, Atari" in describe(config)
        said = "note   observation_space: its mission is left out"
        assert any(line.startswith(said) for line in check(config).lines)


def play(env_id, kwargs="", steps=30):
    """Step two environments of an id with warnings as errors; return what they showed last."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = EnvConfig(env_id, kwargs=kwargs)
        spec = make_env_spec(config)
        vector = make_env_vector(config, 2, [1, 2])
        try:
            vector.reset()
            chance = np.random.default_rng(0)
            for _ in range(steps):
                result = vector.step(chance.integers(spec.action_count, size=2))
        finally:
            vector.close()
    return spec, result.stacks.copy()


@needs("minigrid")
def test_minigrid_can_be_played():
    spec, seen = play("BabyAI-GoToRedBall-v0")
    assert spec.frame_shape == (7 * 7 * sum(CELL_VALUES) + 4,)
    assert spec.action_count == 7
    assert (seen.sum(axis=(-1)) == 7 * 7 * 3 + 1).all()


@needs("box2d")
def test_box2d_can_be_played():
    spec, _ = play("LunarLander-v3")
    assert (spec.frame_shape, spec.action_count) == ((8,), 4)
    spec, _ = play("CarRacing-v3", '{"continuous": false}', steps=3)
    assert (spec.frame_shape, spec.action_count) == ((3, 96, 96), 5)


@needs("vizdoom")
def test_doom_can_be_played():
    spec, seen = play("VizdoomBasic-v1", '{"frame_skip": 4}', steps=5)
    assert spec.frame_shape == (3, 72, 128)
    assert seen.any()


@needs("mujoco")
def test_mujoco_warns_in_the_log_and_leaves_no_file(tmp_path, monkeypatch, capfd, caplog):
    monkeypatch.chdir(tmp_path)
    extra_worlds._load.cache_clear()
    prepare_world("HalfCheetah-v5")
    caplog.set_level("INFO")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            gymnasium.make("HalfCheetah-v5").close()
    assert not list(tmp_path.iterdir())
    assert "settotalmass" not in capfd.readouterr().err
    assert sum("settotalmass" in record.message for record in caplog.records) == 1
