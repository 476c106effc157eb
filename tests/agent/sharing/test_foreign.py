"""An unroll arrives as it was sent, or is refused: nothing impossible reaches a learner."""

from __future__ import annotations

import lz4.frame
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ritornello.agent.sharing.foreign import UnrollPost
from ritornello.core.errors import TransportError
from ritornello.core.unroll import UnrollSchema
from tests.replay.builders import SPEC, make_record

PLAIN = UnrollSchema(SPEC, 4)
RICH = UnrollSchema(SPEC, 4, feature_count=5, state_count=3)


def rich_record(seq: int) -> np.ndarray:
    record = make_record(seq, schema=RICH)
    RICH.view(record, "state")[...] = 7
    return record


def fields_of(schema: UnrollSchema, record: np.ndarray) -> dict[str, bytes]:
    return {name: schema.view(record, name).tobytes() for name in PLAIN.fields}


@pytest.mark.parametrize("theirs", [PLAIN, RICH])
@pytest.mark.parametrize("ours", [PLAIN, RICH])
def test_an_unroll_arrives_in_the_layout_of_who_takes_it(
    theirs: UnrollSchema, ours: UnrollSchema
) -> None:
    record = rich_record(5) if theirs is RICH else make_record(5, schema=PLAIN)
    got = UnrollPost(ours).open(UnrollPost(theirs).seal(record), agent=3)
    assert got.agent == 3
    assert len(got.record) == ours.nbytes
    assert fields_of(ours, got.record) == fields_of(theirs, record)
    if ours is RICH:  # the other network's memory and features mean nothing here
        assert not RICH.view(got.record, "state").any()
        assert not RICH.view(got.record, "features").any()
        assert got.payload is None
    else:
        assert lz4.frame.decompress(got.payload.tobytes()) == got.record.tobytes()


def changed(name: str, value: float) -> bytes:
    record = make_record(5, schema=PLAIN)
    array = PLAIN.view(record, name)
    if array.dtype == bool:
        array = array.view(np.uint8)
    if array.ndim:
        array[..., -1:] = value
    else:
        array[...] = value
    return UnrollPost(PLAIN).seal(record)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("frames", np.nan), ("reward", np.inf), ("behaviour_params", np.nan)),
        *(("behaviour_value", np.nan), ("last_reward", np.nan)),
        *(("action", 2), ("action", -1), ("last_action", 99)),
        *(("task_id", 1), ("task_id", -1), ("version", -1), ("seq", -5), ("worker_id", -1)),
        *(("first", 2), ("terminated", 255)),
    ],
)
def test_numbers_that_no_environment_can_give_are_refused(name: str, value: float) -> None:
    with pytest.raises(TransportError, match="agent 2"):
        UnrollPost(PLAIN).open(changed(name, value), agent=2)


def test_a_payload_that_unpacks_to_more_takes_no_memory() -> None:
    bomb = lz4.frame.compress(bytes(200_000_000))
    with pytest.raises(TransportError, match="another layout"):
        UnrollPost(PLAIN).open(bomb, agent=1)
    lying = lz4.frame.compress(bytes(50_000_000), store_size=False)
    with pytest.raises(TransportError):
        UnrollPost(PLAIN).open(lying, agent=1)


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_whatever_the_bytes_are_they_are_refused_or_a_possible_unroll(data: st.DataObject) -> None:
    message = bytearray(
        UnrollPost(PLAIN).seal(make_record(data.draw(st.integers(0, 50)), schema=PLAIN))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    message = message[: data.draw(st.integers(0, len(message)))]
    try:
        got = UnrollPost(RICH).open(bytes(message), agent=1)
    except TransportError:
        return
    RICH.check(RICH.unroll(got.record))
