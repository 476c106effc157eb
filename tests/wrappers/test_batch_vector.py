"""BatchVector: one call steps all environments, and the rows are those of one at a time."""

from contextlib import closing
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from gymnasium.vector import AutoresetMode, VectorEnv

from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import CheckpointError, ConfigError, EnvironmentFault
from ritornello.wrappers.action_masks import all_allowed
from ritornello.wrappers.batch_vector import BatchVector
from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.env_kwargs import kwargs_text
from ritornello.wrappers.registry import (
    check_rendering,
    choose_backend,
    make_env_spec,
    make_env_vector,
    steps_per_s,
)
from ritornello.wrappers.trusted_modules import trust_kwargs
from tests.wrappers.lying import registered
from tests.wrappers.test_gym_vector import COUNTING, play, random_actions

MODES = ("NextStep", "SameStep", "Disabled")


def in_mode(mode, config=COUNTING, **kwargs):
    text = kwargs_text({"vector_kwargs": {"autoreset_mode": mode}, **kwargs})
    trust_kwargs(text)
    return replace(config, backend="gymnasium_vector", kwargs=text)


class Still(gymnasium.Env):
    """Its games are the same whatever their seed: their length follows from the actions."""

    action_space = MultiDiscrete([3, 2], start=[1, 0])

    def __init__(self, images=False, render_mode=None):
        self.render_mode = render_mode
        image = Box(0, 255, (8, 9, 3), np.uint8)
        self.observation_space = image if images else Dict(
            {"image": image, "turn": Discrete(5), "sum": Box(-100, 100, (2,), np.float64)}
        )  # fmt: skip

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.total, self.t = 0, 0
        return self._seen(), {}

    def step(self, action):
        self.total, self.t = self.total + int(action[0]), self.t + 1
        over = self.total >= 12
        return self._seen(), 0.1 * float(action[0]), over and action[1] == 0, over, {}

    def _seen(self):
        image = np.full((8, 9, 3), self.total, np.uint8)
        image[0, self.t] = (1, 2, 3)
        if isinstance(self.observation_space, Box):
            return image
        return {"image": image, "turn": self.t % 5, "sum": np.array([self.total, -self.t]) / 3}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("images", [False, True])
def test_every_mode_gives_the_rows_of_one_environment_at_a_time(mode, images):
    with registered(Still, "tests/Still-v0"):
        plain = EnvConfig("tests/Still-v0", kwargs=kwargs_text({"images": images}))
        vector = make_env_vector(in_mode(mode, plain, images=images), 3, [5, 6, 7])
        twin = make_env_vector(plain, 3, [5, 6, 7])
        assert isinstance(vector, BatchVector)
        assert vector.mode is AutoresetMode(mode)
        assert vector.spec == twin.spec
        assert vector.spec.frames_stacked == 4
        rng = np.random.default_rng(1)
        actions = np.stack([rng.integers(3, size=(60, 3)), rng.integers(2, size=(60, 3))], -1)
        np.testing.assert_array_equal(vector.reset(), twin.reset())
        rows = play(vector, actions)
        assert rows == play(twin, actions)
        assert sum(len(row[-1]) for row in rows) > 20


@pytest.mark.parametrize("mode", MODES[1:])
def test_games_have_the_seeds_of_one_environment_at_a_time(mode):
    vector, twin = (make_env_vector(c, 4, [1, 2, 3, 4]) for c in (in_mode(mode), COUNTING))
    np.testing.assert_array_equal(vector.reset(), twin.reset())
    actions = random_actions(3, 80, 4)
    assert play(vector, actions) == play(twin, actions)


@pytest.mark.parametrize("mode", MODES)
def test_equal_seeds_give_equal_games_and_a_restored_vector_goes_on(mode):
    actions = random_actions(2, 60, 2)
    vector = make_env_vector(in_mode(mode), 2, [8, 9], restorable=True)
    vector.reset()
    rows = play(vector, actions)
    vector.reset()
    assert play(vector, actions[:30]) == rows[:30]
    shown, state = vector._stacks.copy(), vector.state_dict()
    other = make_env_vector(in_mode(mode), 2, [1, 2], restorable=True)
    other.reset()
    assert play(other, actions) != rows
    np.testing.assert_array_equal(other.load_state_dict(state), shown)
    assert play(other, actions[30:]) == rows[30:]
    with pytest.raises(CheckpointError, match="expected 1 x"):
        make_env_vector(in_mode(mode), 1, [1]).load_state_dict(state)
    other.load_state_dict({key: value for key, value in state.items() if key != "checksums"})
    state["checksums"][1] += 1
    with pytest.raises(CheckpointError, match="environment 2 of 2, is not where it was"):
        other.load_state_dict(state)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("game", ["Locks-info", "Locks-dict", "Locks-method", "Vault"])
def test_masks_are_those_of_one_environment_at_a_time(mode, game):
    plain = EnvConfig(f"tests.locked:tests/{game}-v0")
    config = in_mode(mode, plain)
    vector, twin = (make_env_vector(each, 3, [5, 6, 7]) for each in (config, plain))
    assert vector.spec.has_action_mask
    assert vector.spec == twin.spec
    shown, same = vector.reset(), twin.reset()
    rng, ends = np.random.default_rng(1), []
    for _ in range(60):
        np.testing.assert_array_equal(vector.action_mask, twin.action_mask)
        if mode != "NextStep" or game == "Vault":  # else the lamps of later games differ
            np.testing.assert_array_equal(shown, same)
        count, spec = vector.spec.actions.param_count, vector.spec.actions
        wanted = rng.integers(count, size=(3, *spec.shape)) % 3
        actions = all_allowed(wanted.astype(spec.dtype), vector.action_mask, spec)
        (shown, *mine), (same, *other) = (
            vars(each.step(actions)).values() for each in (vector, twin)
        )
        ends += mine[3]
        np.testing.assert_array_equal(mine[2], other[2])
    assert len(ends) > 10


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("game", ["Cut-info", "Cut-dict", "Cut-method"])
def test_the_last_observation_of_a_game_that_time_cuts_has_its_mask(mode, game):
    plain = EnvConfig(f"tests.locked:tests/{game}-v0")
    vector, twin = (make_env_vector(each, 2, [5, 6]) for each in (in_mode(mode, plain), plain))
    vector.reset(), twin.reset()
    for step in range(1, 13):
        actions = all_allowed(np.zeros(2, np.int64), twin.action_mask, twin.spec.actions)
        actions[0] = 19 if step == 2 else actions[0]  # a key that does not fit ends the game
        mine, other = vector.step(actions), twin.step(actions)
        ends = [end.env_id for end in other.episodes]
        assert ends == [end.env_id for end in mine.episodes]
        assert ends == [[], [], [0], [1]][step % 4]  # the second ends while the first is reset
        assert not twin.action_mask.all()
        # In SAME_STEP a method knows of the next game only.
        expected = twin.action_mask.copy()
        if mode == "SameStep" and game == "Cut-method":
            expected[ends] = True
        np.testing.assert_array_equal(vector.action_mask, expected)


def test_a_method_that_gives_masks_is_asked_of_environments_in_other_processes():
    plain = EnvConfig("tests.locked:tests/Locks-method-v0")
    config = in_mode("SameStep", plain, vectorization_mode="async")
    vector, twin = (make_env_vector(each, 2, [5, 6]) for each in (config, plain))
    with closing(vector):
        assert vector.spec == twin.spec
        vector.reset(), twin.reset()
        for _ in range(20):
            np.testing.assert_array_equal(vector.action_mask, twin.action_mask)
            actions = all_allowed(np.zeros(2, np.int64), vector.action_mask, twin.spec.actions)
            vector.step(actions), twin.step(actions)


class Own(VectorEnv):
    """A vector of one's own, in SAME_STEP: games of `length` steps; the reward is the step's."""

    single_observation_space = Box(-1, 1e6, (2,), np.float32)
    single_action_space = Discrete(2)

    def __init__(self, num_envs, length=4, masks=True, mode=AutoresetMode.SAME_STEP, lie=None):
        self.num_envs, self.length, self.lie = num_envs, length, lie
        self.metadata = {"autoreset_mode": mode, "reset_mask": masks}

    def reset(self, *, seed=None, options=None):
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        if seed is not None:
            self.game, self.t = np.zeros((2, self.num_envs), int)
        self.game[mask] += 1
        self.t[mask] = 0
        return self._seen(), {}

    def step(self, actions):
        self.t += 1
        over, final, reward = self.t == self.length, self._seen(), self.t.astype(np.float32)
        self.game[over] += 1
        self.t[over] = 0
        info = {"final_obs": final, "_final_obs": over} if over.any() else {}
        result = [self._seen(), reward, over, np.zeros_like(over), info]
        if self.lie:
            result[self.lie[0]] = self.lie[1]
        return tuple(result)

    def _seen(self):
        return np.stack([self.game, self.t], -1).astype(np.float32)


def own(**kwargs):
    return registered(None, "tests/Own-v0", vector_entry_point=lambda **k: Own(**k, **kwargs))


@pytest.mark.parametrize(
    ("masks", "shown"),
    [  # the number of the game, and of the step within it
        (True, [[1, 1], [1, 2], [1, 3], [3, 0], [3, 1]]),
        (False, [[1, 1], [1, 2], [1, 3], [2, 1], [2, 2]]),
    ],
)
def test_same_step_without_seeds_shows_the_last_observation_and_a_whole_return(masks, shown):
    with own(masks=masks, length=3) as config:
        assert choose_backend(config).name == "gymnasium_vector"
        vector = make_env_vector(config, 2, [0, 1])
        assert vector.reset().tolist() == [[[1, 0]], [[1, 0]]]
        results = []
        for _ in range(9):
            result = vector.step(np.zeros(2, np.int64))
            results.append((result.stacks[0, 0].tolist(), result.first[0], result.episodes))
        assert [result[0] for result in results[:5]] == shown
        assert [result[1] for result in results[:5]] == [False, False, False, True, False]
        ends = [end for *_, episodes in results for end in episodes if end.env_id == 0]
        assert ends == [EpisodeEnd(0, 6.0, 3, 3)] * len(ends)
        assert len(ends) == (2 if masks else 3)


def test_a_game_that_ends_in_its_hidden_step_leaves_nothing_in_the_next():
    with own(masks=False, length=1) as config:
        vector = make_env_vector(config, 1, [0])
        vector.reset()
        ends = [vector.step(np.zeros(1, np.int64)).episodes for _ in range(4)]
        assert ends == [[EpisodeEnd(0, 1.0, 1, 1)], [], [EpisodeEnd(0, 1.0, 1, 1)], []]


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"mode": None}, "autoreset_mode.*None, expected one of gymnasium.vector.Auto"),
        ({"length": 1, "lie": (4, {})}, "no final_obs of environment 1.*SAME_STEP"),
        ({"lie": (1, np.array([0.0, np.nan]))}, "step 1: reward is .*nan.*expected 2 finite"),
        ({"lie": (1, np.zeros(3))}, "reward is float64 .*expected 2 finite numbers"),
        ({"lie": (2, np.zeros(2))}, "terminated is float64 .*expected 2 truth values"),
        ({"lie": (0, np.full((2, 2), np.nan, np.float32))}, "observation.*nan, expected a finite"),
        ({"lie": (0, np.zeros((1, 2)))}, r"observation has shape \(1, 2\), expected \(2, 2\)"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_what_is_wrong_with_a_vector_is_told_before_the_run(kwargs, said):
    with own(**kwargs) as config, pytest.raises(ConfigError, match=said):
        make_env_spec(config)


def test_a_vector_that_ignores_the_reset_mask_is_told():
    with own(length=3) as config:
        vector = make_env_vector(config, 2, [0, 1])
        vector.reset()
        vector._env.t = np.array([2, 0])  # so that one game ends before the other
        reset = vector._env.reset
        vector._env.reset = lambda seed=None, options=None: reset()
        vector.step(np.zeros(2, np.int64))
        with pytest.raises(EnvironmentFault, match="games that reset_mask leaves out"):
            vector.step(np.zeros(2, np.int64))


def test_what_a_vector_raises_names_it_and_the_step():
    with own() as config:
        vector = make_env_vector(config, 2, [0, 1])
        vector.reset()
        vector._env.step = lambda actions: 1 / 0
        with pytest.raises(
            EnvironmentFault, match=r"Own-v0, a vector of 2, step 1: raised ZeroDiv"
        ):
            vector.step(np.zeros(2, np.int64))


def test_what_a_vector_cannot_do_is_refused():
    with own() as config:
        with pytest.raises(ConfigError, match="no pictures"):
            choose_backend(config, render_mode="rgb_array")
        with pytest.raises(ConfigError, match="multiple values for .*num_envs"):
            make_env_vector(replace(config, kwargs='{"num_envs": 3}'), 1, [0])
    with pytest.raises(ConfigError, match="cannot make .*Pong.* rules of Atari"):
        choose_backend(EnvConfig("PongNoFrameskip-v4", backend="gymnasium_vector"))
    drawn = choose_backend(replace(COUNTING, backend="gymnasium_vector"), render_mode="rgb_array")
    assert drawn.name == "gymnasium"


def test_pictures_are_drawn_without_the_arguments_of_vectors():
    config = in_mode("SameStep", EnvConfig("MountainCar-v0"), vectorization_mode="sync")
    check_rendering(config, "rgb_array")
    assert steps_per_s(config) == 30
    with pytest.raises(ConfigError, match="unexpected keyword argument 'vector"):
        make_env_spec(replace(config, backend="gymnasium"))


def test_gymnasiums_own_vector_is_played():
    config = EnvConfig("CartPole-v1", backend="gymnasium_vector")
    assert make_env_spec(config) == make_env_spec(EnvConfig("CartPole-v1"))
    vector = make_env_vector(config, 8, list(range(8)))
    vector.reset()
    actions = random_actions(1, 300, 8, action_count=2)
    results = [vector.step(row) for row in actions]
    ends = [end for result in results for end in result.episodes]
    assert len(ends) > 50
    assert all(end.return_raw == end.length_steps for end in ends)
    assert type(vector._env.unwrapped).__name__ == "CartPoleVectorEnv"


class Tensors(Own):
    """Shows, and insists on, arrays of another package."""

    def __init__(self, num_envs, package):
        super().__init__(num_envs, mode=AutoresetMode.NEXT_STEP)
        self._package = package

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        return self._made(observation), info

    def step(self, actions):
        assert type(actions).__module__.partition(".")[0] in (self._package.__name__, "jaxlib")
        *arrays, info = super().step(actions)
        return (*map(self._made, arrays), info)

    def _made(self, array):
        return getattr(self._package, "asarray", None)(array)


@pytest.mark.parametrize("name", ["torch", "jax.numpy"])
def test_vectors_of_torch_and_jax_are_played(name):
    pytest.importorskip("array_api_compat", reason="needs array-api-compat, as Gymnasium's wrapper")
    package = pytest.importorskip(name)
    with registered(
        None, "tests/Tensors-v0", vector_entry_point=lambda num_envs: Tensors(num_envs, package)
    ) as config:
        vector = make_env_vector(config, 3, [0, 1, 2])
        vector.reset()
        result = vector.step(np.ones(3, np.int64))
        assert result.stacks[:, 0].tolist() == [[1, 1]] * 3
        assert result.reward.tolist() == [1.0] * 3
