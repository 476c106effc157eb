"""The layout of a record: every field has its own bytes, and says what was written to it."""

import itertools

import numpy as np
import pytest

from core.errors import ShapeError
from core.spec import EnvSpec
from core.unroll import UnrollSchema

SPEC = EnvSpec("x", (1, 4, 5), "uint8", 3, ("a", "b", "c"), 4)
OPTIONS = {
    "plain": {},
    "features": {"feature_count": 7},
    "memory": {"state_count": 9},
    "both": {"feature_count": 7, "state_count": 9},
}


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


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_fields_share_no_bytes_and_lie_on_cache_lines(options):
    schema = UnrollSchema(SPEC, 6, **options)
    places = sorted((f.offset, f.offset + f.nbytes) for f in schema.fields.values())
    for (_, end), (start, _) in itertools.pairwise(places):
        assert end <= start
        assert start % 64 == 0
    assert places[-1][1] <= schema.nbytes


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_optional_fields_are_there_if_they_are_asked_for(options):
    schema = UnrollSchema(SPEC, 6, **options)
    unroll = schema.unroll(written(schema))
    assert (unroll.features is not None) == ("feature_count" in options)
    assert (unroll.state is not None) == ("state_count" in options)
    if unroll.state is not None:
        assert (unroll.state.shape, unroll.state.dtype) == ((9,), np.float32)
    schema.check(unroll)


def test_a_batch_has_time_first_and_the_header_by_column():
    schema = UnrollSchema(SPEC, 6, state_count=9)
    records = [written(schema, seed) for seed in range(4)]
    batch = schema.stack(records)
    shapes = {name: batch[name].shape for name in ("action", "last_action", "last_reward", "state")}
    assert shapes == {"action": (6, 4), "last_action": (4,), "last_reward": (4,), "state": (4, 9)}
    for column, record in enumerate(records):
        unroll = schema.unroll(record)
        np.testing.assert_array_equal(batch["action"][:, column], unroll.action)
        np.testing.assert_array_equal(batch["state"][column], unroll.state)
        assert batch["last_reward"][column] == unroll.last_reward


@pytest.mark.parametrize("name", ["action", "last_action"])
def test_an_action_that_is_none_is_refused_by_name(name):
    schema = UnrollSchema(SPEC, 6)
    record = written(schema)
    schema.view(record, name)[...] = 3
    with pytest.raises(ShapeError, match=f"^{name} is in .3, 3., expected .0, 2."):
        schema.check(schema.unroll(record))


@pytest.mark.parametrize("name", ["reward", "last_reward", "state"])
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
