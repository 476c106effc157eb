"""From names and configs to environments, and the words for what cannot be had."""

import os
import re
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from ritornello.core.errors import ConfigError, EnvironmentFault
from ritornello.core.process_death import FAMILY, mark_own_children
from ritornello.wrappers.ale_vector import AleVector
from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.env_ids import as_registered, check_env_id, is_atari, rom_name
from ritornello.wrappers.env_kwargs import kwargs_text
from ritornello.wrappers.gym_vector import GymVector
from ritornello.wrappers.registry import (
    advice_on_limit,
    choose_backend,
    make_env_spec,
    make_env_vector,
    max_game_steps,
    tried,
)
from ritornello.wrappers.trusted_modules import trust_modules_of
from tests import troubled
from tests.wrappers.lying import BlankEnv, edit, registered


@pytest.mark.parametrize(
    ("env_id", "near"),
    [
        ("PongNoFramskip-v4", "PongNoFrameskip-v4"),
        ("pong", "PongNoFrameskip-v4"),
        ("Pong", "ALE/Pong-v5"),
        ("CartPole-v7", "CartPole-v1"),
        ("tests.fakes:tests/Counting", "tests/Counting-v0"),
    ],
)
def test_an_unknown_id_is_refused_with_the_nearest_ones(env_id, near):
    with pytest.raises(ConfigError, match="Did you mean") as caught:
        check_env_id(env_id)
    assert near in str(caught.value)
    assert repr(env_id) in str(caught.value)
    assert not is_atari(env_id)


@pytest.mark.parametrize("env_id", ["", "xqzw", "no_such_module:CartPole-v1", ":"])
def test_hopeless_ids_are_refused_with_an_explanation(env_id):
    with pytest.raises(ConfigError, match=r"(?i)expected"):
        check_env_id(env_id)


def test_an_id_of_an_unknown_package_is_told_with_how_to_name_that():
    with pytest.raises(ConfigError, match=r"name that: <module>:highway/Merge-v0\."):
        check_env_id("highway/Merge-v0")


def test_a_game_without_a_rom_is_refused(monkeypatch):
    monkeypatch.setattr("ritornello.wrappers.env_ids.roms.get_all_rom_ids", lambda: ["breakout"])
    with pytest.raises(ConfigError, match="no ROM named 'pong'"):
        check_env_id("PongNoFrameskip-v4")
    check_env_id("BreakoutNoFrameskip-v4")


@pytest.mark.parametrize(
    ("env_id", "rom", "sticky"),
    [
        ("PongNoFrameskip-v4", "pong", 0.0),
        ("PongNoFrameskip-v0", "pong", 0.25),
        ("ALE/SpaceInvaders-v5", "space_invaders", 0.25),
    ],
)
def test_an_atari_id_stands_for_a_rom_and_for_sticky_actions(env_id, rom, sticky):
    check_env_id(env_id)
    assert is_atari(env_id)
    assert rom_name(env_id) == rom
    assert as_registered(EnvConfig(env_id)).sticky_action_probability == sticky
    for probability in (0.0, 0.1):
        given = EnvConfig(env_id, sticky_action_probability=probability)
        assert as_registered(given) == given


def test_a_limit_that_no_fast_backend_can_count_is_as_good_as_none():
    with closing(
        make_env_vector(EnvConfig("PongNoFrameskip-v4", max_episode_frames=10**12), 1, [1])
    ) as vector:
        assert vector.reset().any()


@pytest.mark.parametrize(
    ("config", "asked", "name", "reason"),
    [
        (EnvConfig("PongNoFrameskip-v4"), {}, "ale_vector", "fastest"),
        (EnvConfig("PongNoFrameskip-v4", backend="gymnasium"), {}, "gymnasium", "asked for"),
        (EnvConfig("PongNoFrameskip-v4"), {"restorable": True}, "gymnasium", "restore"),
        (EnvConfig("PongNoFrameskip-v4"), {"render_mode": "rgb_array"}, "gymnasium", "render"),
        (EnvConfig("CartPole-v1"), {}, "gymnasium", "not an Atari game"),
    ],
)
def test_the_fast_backend_is_taken_unless_it_cannot_do_what_is_asked(config, asked, name, reason):
    backend = choose_backend(config, **asked)
    assert backend.name == name
    assert reason in backend.reason
    vector = make_env_vector(config, 1, [7], **asked)
    assert isinstance(vector, {"ale_vector": AleVector, "gymnasium": GymVector}[name])
    vector.close()
    vector.close()  # closing twice is allowed


@pytest.mark.parametrize(
    ("env", "kwargs", "limit"),
    [
        ("CartPole-v1", "", 500),
        ("CartPole-v1", '{"max_episode_steps": 20}', 20),
        ("CartPole-v1", '{"max_episode_steps": -1}', None),
        ("CliffWalking-v1", "", None),
        ("CliffWalking-v1", '{"max_episode_steps": 500}', 500),
        ("PongNoFrameskip-v4", "", 27_000),
    ],
)
def test_a_game_without_an_end_gets_one_by_the_advice(env, kwargs, limit):
    trust_modules_of(env)
    config = EnvConfig(env, kwargs=kwargs)
    assert max_game_steps(config) == limit
    advice = advice_on_limit(config)
    assert bool(advice) == (limit is None)
    if advice:
        said = re.search(r"--env_kwargs='(.*)'", advice)[1]
        config = replace(config, kwargs=kwargs_text(said))
        assert config.kwargs != kwargs
        vector = make_env_vector(config, 1, [0])
        vector.reset()
        ends = [vector.step(np.zeros(1, np.int64)).episodes for _ in range(1001)]
        vector.close()
        assert any(ends)
        assert max_game_steps(config) == 1000


@pytest.mark.parametrize("backend", ["gymnasium", "gymnasium_vector"])
@pytest.mark.parametrize(
    ("edited", "told"),
    [
        ({"numbers": 1}, r"frame_shape is \(1,\), expected \(4,\)"),
        ({"numbers": 6}, r"frame_shape is \(6,\), expected \(4,\)"),
        ({"actions": 3}, r"action_meanings is \('0', '1', '2'\), expected \('0', '1'\)"),
    ],
    ids=str,
)
def test_an_environment_that_is_no_longer_as_it_was_tried_out_is_refused(backend, edited, told):
    with registered(BlankEnv) as config:
        config = replace(config, backend=backend)
        make_env_spec(config)
        edit(config, **edited)
        with pytest.raises(EnvironmentFault, match=rf"Lying-v0.*{told}.*edited"):
            make_env_vector(config, 2, [1, 2])


@pytest.mark.process
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks for processes in /proc")
@pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")
def test_what_an_environment_that_was_tried_out_forgets_is_ended(tmp_path, monkeypatch):
    monkeypatch.setenv("TROUBLE_DIR", str(tmp_path))
    monkeypatch.setenv(FAMILY, "")
    mark_own_children()
    tried("tests.troubled:tests/Careless-v0")
    (left,) = troubled.simulators(tmp_path)
    assert not troubled.lives(left)
