"""The three ways in which environments say what is allowed, and what is no mask."""

import re
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from hypothesis import given
from hypothesis import strategies as st

from ritornello.core.errors import ConfigError, EnvironmentFault
from ritornello.core.spec import CHOICE
from ritornello.wrappers.action_masks import nearest_allowed
from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.gym_actions import ActionCode
from ritornello.wrappers.plain_env import PlainEnv
from ritornello.wrappers.registry import make_env_spec, make_env_vector
from tests.locked import LOCKS
from tests.wrappers.lying import LyingEnv, registered


class SayingEnv(gymnasium.Env):
    """Gives a mask at its reset, and the next ones of a list at each step."""

    observation_space = Box(0, 1, (1,), np.float32)

    def __init__(self, space, masks, end=None):
        self.action_space, self.masks = space, list(masks)
        self.ends = end == "terminated", end == "truncated"

    def told(self):
        return {"action_mask": self.masks.pop(0)} if self.masks else {}

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), self.told()

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, *self.ends, self.told()


def mask_of(space, given_mask):
    return PlainEnv(SayingEnv(space, [given_mask]), "Saying-v0").reset()[1]["action_mask"]


SEVERAL = MultiDiscrete([3, 2])
NESTED = Dict(a=Discrete(2), b=Tuple((Box(-1, 1, (2,)), MultiBinary(1))))


@pytest.mark.parametrize(
    ("space", "said", "expected"),
    [
        (Discrete(3), np.array([1, 0, 1], np.int8), "101"),
        (Discrete(3, start=5), [True, False, False], "100"),
        (Discrete(2), np.array([0.0, 1.0]), "01"),
        (SEVERAL, np.array([1, 0, 0, 0, 1], bool), "10001"),
        (SEVERAL, ([1, 1, 0], np.array([0, 1])), "11001"),
        (MultiBinary(2), [1, 0, 1, 1], "1011"),
        # Real numbers have none; their four parameters are always there.
        (NESTED, {"a": [0, 1], "b": (None, [1, 0])}, "01" + "1111" + "10"),
        (NESTED, np.array([0, 1, 1, 0]), "01" + "1111" + "10"),
    ],
    ids=repr,
)
def test_a_mask_may_have_any_shape_that_people_give_it(space, said, expected):
    mask = mask_of(space, said)
    assert mask.dtype == np.bool_
    assert "".join(str(int(own)) for own in mask) == expected


class LateEnv(SayingEnv):
    """Forgets the mask at its reset."""

    def __init__(self, space, end=None):
        super().__init__(space, [[1, 0], [0, 1]], end)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}


@pytest.mark.parametrize("backend", ["gymnasium", "gymnasium_vector"])
def test_a_mask_that_reset_has_forgotten_is_not_passed_over(backend):
    told = "step 1.*: info has action_mask, expected one in the info of each reset"
    with registered(lambda: LateEnv(Discrete(2))) as config, pytest.raises(ConfigError, match=told):
        make_env_spec(replace(config, backend=backend))
    for env in (lambda: LateEnv(Discrete(2), "terminated"), lambda: LateEnv(Box(-1, 1, (2,)))):
        with registered(env) as config:
            assert not make_env_spec(replace(config, backend=backend)).has_action_mask


@pytest.mark.parametrize("backend", ["gymnasium", "gymnasium_vector"])
@pytest.mark.parametrize("games", [0, 1])
def test_a_mask_that_only_later_games_have_is_not_passed_over(backend, games):
    said = {}
    with registered(lambda: LyingEnv(reset_lie=lambda seen, _: (seen, dict(said)))) as config:
        config = replace(config, backend=backend)
        assert not make_env_spec(config).has_action_mask
        vector = make_env_vector(config, 1, [1])
    for _ in range(games):
        vector.reset()
    said["action_mask"] = [1, 0]
    with pytest.raises(EnvironmentFault, match="its reset: info has action_mask, expected one in"):
        vector.reset()


def test_a_mask_of_real_numbers_says_nothing():
    with registered(lambda: SayingEnv(Box(-1, 1, (2,)), [[1, 0]] * 4)) as config:
        assert make_env_vector(config, 1, [1]).reset().shape == (1, 1, 1)


@pytest.mark.parametrize(
    "said",
    [[1, 0], [1, 0, 2], [1, 0, np.nan], "110", None, [[1], [1]], {"a": [1, 0, 1]}, [1, 0, "x"]],
    ids=repr,
)
def test_what_is_no_mask_is_refused_with_what_was_expected(said):
    with pytest.raises(EnvironmentFault, match="action_mask is .* expected 3 of 0 and 1"):
        mask_of(Discrete(3), said)


def saying(*masks):
    """Have Gymnasium know an environment that gives these masks."""
    return registered(lambda: SayingEnv(Discrete(2), masks))


def test_a_mask_that_allows_nothing_names_the_environment_the_game_and_the_step():
    with saying([1, 1], [1, 0], [0, 0]) as config:
        vector = make_env_vector(config, 1, [0])
    vector.reset()
    vector.step(np.array([1]))
    assert vector.action_mask.tolist() == [[True, False]]
    place = f"env {vector.spec.env_id}, environment 1 of 1, game 1, step 2, action 0: "
    nothing = "action_mask allows nothing, expected at least one action"
    with pytest.raises(EnvironmentFault, match=re.escape(place + nothing)):
        vector.step(np.array([0]))


def test_a_mask_must_come_with_each_step_if_the_reset_has_one():
    told = "game 1, step 1, action 0: info has no action_mask, expected one"
    with saying([1, 1]) as config, pytest.raises(ConfigError, match=told):
        make_env_spec(config)


def test_of_several_choices_the_one_without_anything_allowed_is_named():
    with pytest.raises(EnvironmentFault, match="allows nothing of choice 2, expected"):
        mask_of(SEVERAL, [1, 1, 1, 0, 0])


@pytest.mark.parametrize("last", [[], [[0, 0]], [None], [[1]]], ids=repr)
@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_where_a_game_is_over_and_no_mask_comes_everything_is_allowed(end, last):
    env = PlainEnv(SayingEnv(Discrete(2), [[1, 0], *last], end), "Saying-v0")
    env.reset()
    assert env.step(0)[4]["action_mask"].tolist() == [True, True]


def test_where_time_cuts_a_game_its_mask_stays():
    for end, mask in (("terminated", [True, True]), ("truncated", [False, True])):
        env = PlainEnv(SayingEnv(Discrete(2), [[1, 0], [0, 1]], end), "Saying-v0")
        env.reset()
        assert env.step(0)[4]["action_mask"].tolist() == mask


def test_taxi_of_gymnasium_is_understood():
    config = EnvConfig("Taxi-v4")
    assert make_env_spec(config).has_action_mask
    vector, draw = make_env_vector(config, 2, [1, 2]), np.random.default_rng(0)
    stacks = vector.reset().copy()
    for _ in range(50):
        mask = vector.action_mask
        action = np.array([draw.choice(np.flatnonzero(row)) for row in mask])
        result = vector.step(action)
        assert result.action_mask is vector.action_mask
        assert (result.first | (result.stacks != stacks).any((1, 2))).all(), "a step into a wall"
        stacks = result.stacks.copy()
    vector.close()


def test_a_saved_game_goes_on_with_its_mask():
    config = EnvConfig("tests.locked:tests/Locks-dict-v0")
    vector, again = (make_env_vector(config, 1, [3], restorable=True) for _ in range(2))
    vector.reset()
    for lock in range(LOCKS // 2):
        vector.step(np.array([2 * lock]))
    again.load_state_dict(vector.state_dict())
    assert np.array_equal(again.action_mask, vector.action_mask)
    assert vector.action_mask[0, LOCKS]


SPACES = st.one_of(
    st.integers(1, 5).map(Discrete),
    st.lists(st.integers(1, 4), min_size=1, max_size=3).map(MultiDiscrete),
    st.just(NESTED),
)


@given(SPACES, st.data())
def test_the_nearest_allowed_action_is_allowed_and_one_that_is_allowed_stays(space, data):
    actions = ActionCode(space).actions
    action, mask = [], []
    for part in actions.parts:
        if part.kind == CHOICE:
            own = data.draw(st.lists(st.booleans(), min_size=part.count, max_size=part.count))
            own[data.draw(st.integers(0, part.count - 1))] = True
            action.append(data.draw(st.integers(0, part.count - 1)))
            mask.append(own)
        else:
            action += [0.5] * part.count
            mask.append([True] * part.param_count)
    stored = np.array(action, actions.dtype).reshape(actions.shape)
    moved = nearest_allowed(stored, np.concatenate(mask), actions)
    choices = [own for own, part in zip(mask, actions.parts, strict=True) if part.kind == CHOICE]
    pairs = zip(actions.choices_in(moved), actions.choices_in(stored), choices, strict=True)
    for (now, _), (before, _), own in pairs:
        assert own[int(now)]
        assert now == before or not own[int(before)]
