"""Actions of every kind of space: from rows of numbers to what environments take."""

import numpy as np
import pytest
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Sequence,
    Text,
    Tuple,
)
from hypothesis import given
from hypothesis import strategies as st

from ritornello.core.errors import ConfigError, ShapeError
from ritornello.core.spec import CHOICE
from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.gym_actions import ActionCode
from ritornello.wrappers.registry import make_env_spec, make_env_vector

MIXED = EnvConfig("tests.worlds:tests/Mixed-v0")


def taken(space, row):
    code = ActionCode(space)
    return code.decode(row), code.actions


SPACES = st.recursive(
    st.one_of(
        st.builds(lambda n, start: Discrete(n, start=start), st.integers(1, 4), st.integers(-2, 2)),
        st.builds(MultiDiscrete, st.lists(st.integers(1, 4), min_size=1, max_size=3)),
        st.builds(MultiBinary, st.sampled_from([1, 3, [2, 2]])),
        st.builds(lambda shape: Box(-1, 2, shape), st.sampled_from([(), (2,), (2, 1, 2)])),
        st.just(Box(-np.inf, 3, (1,), np.float64)),
    ),
    lambda inner: st.one_of(
        st.builds(Tuple, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda spaces: Dict(dict(enumerate_names(spaces))), st.lists(inner, min_size=1)),
    ),
    max_leaves=5,
)


def enumerate_names(spaces):
    return ((f"part{number}", space) for number, space in enumerate(spaces))


@given(SPACES, st.integers(0, 2**32 - 1))
def test_whatever_row_is_drawn_the_environment_is_given_an_action_of_its_space(space, seed):
    draw = np.random.default_rng(seed)
    actions = ActionCode(space).actions
    row = []
    for part in actions.parts:
        if part.kind == CHOICE:
            row.append(int(draw.integers(part.count)))
        else:
            row += (draw.standard_normal(part.count) * 5).astype(np.float32).tolist()
    action, _ = taken(space, row[0] if actions.is_single_choice else row)
    assert space.contains(action), f"{action!r} is not in {space}"


@pytest.mark.parametrize(
    ("space", "told"),
    [
        (Box(0, 9, (2,), np.int64), "make it MultiDiscrete"),
        (Text(3), "is none of Box"),
        (Tuple((Discrete(2), Sequence(Discrete(2)))), "is none of Box"),
        (MultiBinary(20_000), "20000 numbers"),
    ],
    ids=str,
)
def test_other_spaces_are_refused_with_the_reason(space, told):
    with pytest.raises(ConfigError, match=told):
        ActionCode(space)


def drawn(spec, count, seed):
    """Random actions as a policy stores them, many of them beyond the bounds."""
    draw = np.random.default_rng(seed)
    columns = []
    for part in spec.actions.parts:
        if part.kind == CHOICE:
            columns.append(draw.integers(part.count, size=(count, 1)))
        else:
            columns.append(draw.standard_normal((count, part.count)) * 2)
    return np.concatenate(columns, 1).astype(spec.actions.dtype)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda rows: rows[:2], "has shape"),
        (lambda rows: rows * np.nan, "has diverged"),
        (
            lambda rows: np.full_like(rows, 3),
            r"choice in .3.0, 3.0., expected whole numbers in .0, 1.",
        ),
    ],
)
def test_rows_that_are_no_actions_are_refused(change, told):
    spec = make_env_spec(MIXED)
    vector = make_env_vector(MIXED, 3, [1, 2, 3])
    vector.reset()
    with pytest.raises(ShapeError, match=told):
        vector.step(change(drawn(spec, 3, 0)))


@pytest.mark.parametrize(
    ("space", "stored"),
    [
        (MultiBinary([2, 1]), MultiDiscrete([2, 2])),
        (Box(0, 1, (1, 2)), Box(-np.inf, np.inf, (2,))),
        (
            Tuple([Box(-1, 1, (1,), np.float64), Discrete(4)]),
            Box(np.array([-np.inf, 0], np.float32), np.array([np.inf, 3], np.float32)),
        ),
    ],
    ids=str,
)
def test_the_space_of_a_wrapped_environment_is_of_what_its_step_takes(space, stored):
    code = ActionCode(space)
    own = code.stored_space()
    assert own == stored
    assert own.dtype == code.actions.dtype
    own.seed(0)
    for _ in range(20):
        assert space.contains(code.decode(own.sample()))
