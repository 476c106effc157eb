"""The layout of a record: every field has its own bytes, and says what was written to it."""

import numpy as np
import pytest

from ritornello.core.errors import ShapeError
from ritornello.core.spec import CHOICE, NUMBERS, ActionPart, ActionSpec, EnvSpec, ObservationPart
from ritornello.core.unroll import UnrollSchema

SPEC = EnvSpec("x", (1, 4, 5), "uint8", 3, ("a", "b", "c"), 4)


def written(schema, seed=0):
    """A valid record with other numbers in each field."""
    draw, record = np.random.default_rng(seed), schema.allocate()
    for field in schema.fields.values():
        view = schema.view(record, field.name)
        if field.dtype.kind == "f":
            view[...] = draw.standard_normal(field.shape)
        else:
            view[...] = draw.integers(0, 2 if field.dtype.kind == "b" else 3, field.shape)
    return record


@pytest.mark.parametrize("name", ["action", "last_action"])
def test_an_action_that_is_none_is_refused_by_name(name):
    schema = UnrollSchema(SPEC, 6)
    record = written(schema)
    schema.view(record, name)[...] = 3
    with pytest.raises(ShapeError, match=f"^{name} is in .3, 3., expected whole numbers in .0, 2."):
        schema.check(schema.unroll(record))


@pytest.mark.parametrize("name", ["reward", "state"])
def test_a_field_that_nobody_wrote_is_refused_by_name(name):
    schema = UnrollSchema(SPEC, 6, state_count=9)
    record, poisoned = written(schema), schema.allocate()
    schema.view(record, name)[...] = schema.view(poisoned, name)
    with pytest.raises(ShapeError, match=rf"^{name}\b"):
        schema.check(schema.unroll(record))


def test_a_record_of_another_layout_is_refused():
    record = UnrollSchema(SPEC, 6, state_count=9).allocate()
    with pytest.raises(ShapeError, match="another schema"):
        UnrollSchema(SPEC, 6).view(record, "action")


TUPLE = ActionSpec((ActionPart(NUMBERS, 2), ActionPart(CHOICE, 3)))
OTHER = EnvSpec("x", (4,), "float32", 1, TUPLE.meanings(), 1, TUPLE.parts)


def test_actions_of_several_numbers_are_stored_as_rows_and_checked_by_their_choices():
    schema = UnrollSchema(OTHER, 6)
    record = written(schema)
    unroll = schema.unroll(record)
    assert (unroll.action.shape, unroll.action.dtype) == ((6, 3), np.float32)
    assert unroll.behaviour_params.shape == (6, 7)
    assert unroll.last_action.shape == (3,)
    unroll.action[:, 2] = unroll.last_action[2] = 2
    schema.check(unroll)
    unroll.action[4, 2] = 3
    with pytest.raises(ShapeError, match="^action is in .2.0, 3.0., expected whole .* .0, 2."):
        schema.check(unroll)
    unroll.action[4, 2] = 0.5
    with pytest.raises(ShapeError, match="expected whole numbers"):
        schema.check(unroll)
    unroll.action[4, 2] = 0
    unroll.last_action[0] = np.nan
    with pytest.raises(ShapeError, match="last_action"):
        schema.check(unroll)


def test_a_record_of_one_choice_has_the_bytes_that_it_always_had():
    """Replay that was saved by the first versions is read by this one."""
    schema = UnrollSchema(EnvSpec("x", (2,), "float32", 1, ("a", "b"), 1), 3, state_count=1)
    assert {name: field.offset // 64 for name, field in schema.fields.items()} == {
        "frames": 0, "first": 1, "action": 2, "reward": 3, "terminated": 4,
        "behaviour_params": 5, "behaviour_value": 6, "worker_id": 7, "env_id": 8, "seq": 9,
        "version": 10, "task_id": 11, "last_action": 12, "last_reward": 13, "state": 14,
    }  # fmt: skip
    assert schema.nbytes == 15 * 64
    assert schema.fields["action"].dtype == np.int64


def test_numbers_beside_an_image_are_checked_where_they_lie_in_a_frame():
    parts = (
        ObservationPart("numbers", (2,), "float32"),
        ObservationPart("eye", (1, 2, 2), "uint8"),
    )
    spec = EnvSpec("x", (12,), "uint8", 2, ("a", "b", "c"), 1, (), parts)
    schema = UnrollSchema(spec, 6)
    record = written(schema)
    unroll = schema.unroll(record)
    unroll.frames[...] = 255  # as pixels fine, and as float32 not a number
    unroll.frames[..., :8] = np.array([0.5, 3], np.float32).view(np.uint8)
    schema.check(unroll)
    unroll.frames[3, :4] = np.array([np.inf], np.float32).view(np.uint8)
    with pytest.raises(ShapeError, match=r"numbers of frames\[3, 0\] is inf"):
        schema.check(unroll)
