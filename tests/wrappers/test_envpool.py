"""EnvPool as a backend: its ids, and the rules of Atari with it."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from ritornello.core.errors import ConfigError
from ritornello.wrappers import env_ids
from ritornello.wrappers.atari import WaitAtStart
from ritornello.wrappers.batch_vector import BatchVector
from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.env_ids import check_env_id
from ritornello.wrappers.registry import choose_backend, make_env_spec, make_env_vector
from tests.wrappers.test_gym_vector import play, random_actions
from tests.wrappers.twins import Starts

PONG = EnvConfig("PongNoFrameskip-v4", backend="envpool")


def test_without_envpool_the_backend_is_refused_with_the_command_that_installs_it(monkeypatch):
    for name in ("envpool", "envpool.registration"):
        monkeypatch.setitem(sys.modules, name, None)
    env_ids.envpool_tasks.cache_clear(), env_ids.envpool_worlds.cache_clear()
    with pytest.raises(ConfigError, match=r"pip install .*envpool"):
        choose_backend(PONG)
    with pytest.raises(ConfigError, match=r"HalfCheetah.* EnvPool .*pip install .*\[envpool\]"):
        check_env_id("CheetahRun-v1")
    env_ids.envpool_tasks.cache_clear(), env_ids.envpool_worlds.cache_clear()


def needs_envpool():
    pytest.importorskip("envpool", reason="needs envpool: pip install -e '.[envpool]'")


def started_alike(config, vector, frame):
    """A readable twin whose first game starts at `frame`, with the same seed of the emulator."""
    twin = make_env_vector(replace(config, backend="gymnasium"), 1, [0])
    env = twin._envs[0]
    Starts._seed_only_the_first_game(env.unwrapped, vector._game_seeds()[0])
    while env is not env.unwrapped:
        if isinstance(env, WaitAtStart):
            env.start_frame = lambda: frame
        env = env.env
    return twin


@pytest.mark.parametrize(
    ("game", "options"),
    [
        ("Pong", {"max_episode_frames": 1000, "height": 60, "width": 70}),
        ("Seaquest", {"grayscale": False, "frames_stacked": 2}),
        ("SpaceInvaders", {"episodic_life": False, "actions": ("NOOP", "LEFT", "FIRE", "RIGHT")}),
        ("Breakout", {"fire_reset": False, "action_repeat": 3}),
    ],
)
def test_games_of_atari_are_those_of_the_readable_wrappers(game, options):
    needs_envpool()
    config = EnvConfig(f"{game}NoFrameskip-v4", backend="envpool", **options)
    vector = make_env_vector(config, 1, [3])
    assert isinstance(vector, BatchVector)
    shown = vector.reset().copy()
    actions = random_actions(0, 1500, 1, action_count=vector.spec.action_count)
    rows = play(vector, actions)
    over = next(n for n, row in enumerate(rows) if row[-1])
    for frame in range(31):  # at which EnvPool has handed its game over is not said
        twin = started_alike(config, vector, frame)
        assert twin.spec == vector.spec
        if not np.array_equal(twin.reset(), shown):
            continue
        other = play(twin, actions[: over + 1])
        # Which frame is shown where a game ends within a repeated action is EnvPool's own.
        if [row[:4] for row in other[:-1]] == [row[:4] for row in rows[:over]]:
            break
    else:
        pytest.fail("no start gives the same game")
    assert other[-1][1:4] == rows[over][1:4]
    (mine,), (theirs,) = rows[over][-1], other[-1][-1]
    assert (mine.return_raw, mine.length_steps) == (theirs.return_raw, theirs.length_steps)
    assert mine.length_frames == mine.length_steps * config.action_repeat
    assert rows[over + 1][3] == [True]
    vector.close()


@pytest.mark.parametrize("env_id", ["CartPole-v1", "CheetahRun-v1"])
def test_equal_seeds_give_equal_games_and_a_restored_pool_goes_on(env_id):
    needs_envpool()
    # What EnvPool alone has is its own whatever is asked for.
    config = EnvConfig(env_id, backend="envpool" if env_id == "CartPole-v1" else "gymnasium_vector")
    assert choose_backend(config).name == "envpool"
    vector, other = (
        make_env_vector(config, 2, seeds, restorable=True) for seeds in ([1, 2], [8, 9])
    )
    first = vector.reset().copy()
    other.reset()
    vector._one.action_space.seed(1)
    kind = vector.spec.actions.dtype
    actions = np.array(
        [[vector._one.action_space.sample() for _ in range(2)] for _ in range(80)], kind
    )
    rows = play(vector, actions)
    assert play(other, actions) != rows
    np.testing.assert_array_equal(vector.reset(), first)
    assert play(vector, actions[:40]) == rows[:40]
    np.testing.assert_array_equal(other.load_state_dict(vector.state_dict()), vector._stacks)
    assert play(other, actions[40:]) == rows[40:]
    assert make_env_spec(config) == vector.spec


def test_ids_that_envpool_does_not_have_are_refused():
    needs_envpool()
    with pytest.raises(ConfigError, match="Did you mean CheetahRun-v1"):
        check_env_id("CheetahRunn-v1")
    with pytest.raises(ConfigError, match="Did you mean ALE/Pong-v5"):
        check_env_id("Pong-v5")
    with pytest.raises(ConfigError, match="none of the .* ids of EnvPool"):
        make_env_spec(EnvConfig("tests.fakes:tests/Counting-v0", backend="envpool"))
    with pytest.raises(ConfigError, match="a vector alone"):
        choose_backend(EnvConfig("CheetahRun-v1"), render_mode="human")
