"""What is known of an environment: actions of every kind, and files that knew of one only."""

import json

import pytest

from ritornello.core.errors import ConfigError
from ritornello.core.spec import CHOICE, NUMBERS, ActionPart, ActionSpec, EnvSpec

PLAIN = EnvSpec("CartPole-v1", (4,), "float32", 1, ("0", "1"), 1)
TUPLE = ActionSpec((ActionPart(CHOICE, 3), ActionPart(NUMBERS, 2), ActionPart(CHOICE, 3)))


def with_actions(actions):
    return EnvSpec("Own-v0", (4,), "float32", 1, actions.meanings(), 1, actions.parts)


def test_a_spec_of_one_choice_is_written_and_read_as_it_always_was():
    written = PLAIN.to_dict()
    assert list(written) == [
        "env_id", "frame_shape", "frame_dtype", "frames_stacked", "action_meanings",
        "action_repeat",
    ]  # fmt: skip
    assert EnvSpec.from_dict(json.loads(json.dumps(written))) == PLAIN
    assert PLAIN.actions == ActionSpec((ActionPart(CHOICE, 2),))
    assert (PLAIN.actions.shape, PLAIN.actions.dtype, PLAIN.actions.param_count) == ((), "int64", 2)


def test_a_spec_of_other_actions_survives_json():
    spec = with_actions(TUPLE)
    assert EnvSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    assert spec.actions == TUPLE


def test_actions_are_described_and_each_number_of_them_has_a_name_of_its_own():
    assert PLAIN.actions.describe() == "1 of 2 actions"
    assert TUPLE.describe() == "2 choices of 3 each and 2 real numbers"
    assert len(set(TUPLE.meanings())) == 4
    assert not any("," in name for name in TUPLE.meanings()), "flags join them with commas"


def test_who_asks_for_a_number_of_actions_where_there_is_none_is_told():
    assert PLAIN.action_count == 2
    with pytest.raises(ConfigError, match="2 real numbers"):
        _ = with_actions(TUPLE).action_count
