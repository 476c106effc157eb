from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace

import lz4.frame
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ritornello.agent.cluster import wire
from ritornello.agent.cluster.wire import Fingerprint, open_block, seal
from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import TransportError
from ritornello.core.spec import CHOICE, NUMBERS, ActionPart
from ritornello.core.unroll import UnrollSchema
from ritornello.transport.channel import WorkerStats
from tests.agent.cluster.players import ENVS, SCHEMA, SPEC, play


def sealed(seq=5, version=3, **values):
    return replace(seal(7, 0, 2, play(2, 0, seq, version)), **values)


def opened(block, newest=3):
    into = SCHEMA.allocate(ENVS)
    open_block(block, SCHEMA, into, newest)
    return into


def resealed(records, **values):
    """A block whose checksum fits, whatever is in its records."""
    return replace(seal(7, 0, 2, records), **values)


@given(st.integers(0, 10**6), st.integers(0, 3))
def test_a_block_arrives_byte_for_byte(seq, version):
    records = play(2, 0, seq, version)
    ends = (EpisodeEnd(1, 2.5, 3, 4),)
    block = seal(7, 0, 2, records, ends)
    np.testing.assert_array_equal(opened(block), records)
    assert block.episodes == ends


def test_a_sealed_block_shares_no_memory_with_the_ring():
    records = play(2, 0, 5, 3)
    block = seal(7, 0, 2, records)
    kept = records.copy()
    records[...] = 0
    np.testing.assert_array_equal(opened(block), kept)


@given(st.data())
def test_a_block_with_a_changed_byte_is_refused(data):
    block = sealed()
    which = data.draw(st.integers(0, ENVS - 1))
    payload = bytearray(block.payloads[which])
    payload[data.draw(st.integers(0, len(payload) - 1))] ^= data.draw(st.integers(1, 255))
    payloads = [*block.payloads]
    payloads[which] = bytes(payload)
    with pytest.raises(TransportError, match="checksum"):
        opened(replace(block, payloads=tuple(payloads)))


@given(st.data())
def test_a_payload_that_is_anything_is_refused_or_is_a_record(data):
    """Also if whoever changed it has made the checksum anew."""
    block = sealed()
    payload = data.draw(
        st.binary(max_size=200)
        | st.integers(0, len(block.payloads[0])).map(lambda cut: block.payloads[0][:cut])
        | st.binary(min_size=1, max_size=9).map(lambda more: block.payloads[0] + more)
    )
    payloads = (payload, block.payloads[1])
    checksum = wire._checksum(7, 0, 2, payloads)
    if payload == block.payloads[0]:
        return
    with pytest.raises(TransportError):
        opened(replace(block, payloads=payloads, crc32=checksum))


@pytest.mark.parametrize("states_size", [True, False])
def test_a_payload_that_would_fill_the_memory_is_refused_before_it_does(states_size):
    bomb = lz4.frame.compress(bytes(200_000_000), store_size=states_size, block_linked=False)
    if states_size:  # and one that lies about it
        bomb = lie_about_size(bomb)
    payloads = (bomb, sealed().payloads[1])
    block = sealed(payloads=payloads, crc32=wire._checksum(7, 0, 2, payloads))
    tracemalloc.start()
    try:
        with pytest.raises(TransportError):
            opened(block)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def lie_about_size(bomb):
    """Put another content size into the header, with a header checksum that fits."""
    honest = lz4.frame.compress(bytes(SCHEMA.nbytes))
    assert bomb[4:6] == honest[4:6]  # the same flags, but for the size
    return honest[:15] + bomb[15:]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"number": 1}, "checksum"),
        ({"epoch": 8}, "checksum"),
        ({"worker_id": 3}, "checksum"),
        ({"worker_id": "2"}, "numbers"),
        ({"crc32": -1}, "numbers"),
        ({"number": True}, "numbers"),
        ({"payloads": [b"", b""]}, "no bytes"),
        ({"payloads": (b"", "")}, "no bytes"),
        ({"payloads": (b"",)}, "1 records"),
        ({"episodes": ("won",)}, "EpisodeEnd"),
        ({"stats": None}, "WorkerStats"),
        ({"stats": WorkerStats(steps=1.5)}, "times that cannot be"),
        ({"stats": WorkerStats(env_s=math.nan)}, "times that cannot be"),
        ({"stats": WorkerStats(env_s="long")}, "times that cannot be"),
    ],
)
def test_a_block_that_is_not_what_it_says_is_refused(changes, words):
    with pytest.raises(TransportError, match=words):
        opened(sealed(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"env_id": ENVS},
        {"env_id": -1},
        {"env_id": None},
        {"return_raw": "a lot"},
        {"return_raw": math.inf},
        {"return_raw": math.nan},
        {"length_steps": -3},
        {"length_frames": 2.5},
        {"task_id": 1},
        {"task_id": -1},
        {"task_id": True},
    ],
)
def test_a_game_that_cannot_be_is_refused(changes):
    end = EpisodeEnd(1, 2.5, 3, 4)
    opened(sealed(episodes=(end,)))
    with pytest.raises(TransportError, match="a game that cannot be"):
        opened(sealed(episodes=(end, replace(end, **changes))))


@pytest.mark.parametrize("task", [-1, 1, 99])
def test_unrolls_of_a_game_that_there_is_not_are_refused(task):
    records = play(2, 0, 5, 3)
    SCHEMA.view(records, "task_id")[1] = task
    with pytest.raises(TransportError, match=rf"games \[0, {task}\], expected 0 to 0"):
        opened(resealed(records))


@pytest.mark.parametrize("name", ["action", "last_action"])
@pytest.mark.parametrize("chosen", [-1, 2, 77])
def test_unrolls_with_an_action_that_there_is_not_are_refused(name, chosen):
    records = play(2, 0, 5, 3)
    SCHEMA.view(records, name)[1] = chosen
    with pytest.raises(TransportError, match=f"has {name} of 2 choices"):
        opened(resealed(records))


def test_a_choice_among_numbers_that_is_none_is_refused():
    parts = (ActionPart(CHOICE, 3), ActionPart(NUMBERS, 1))
    schema = UnrollSchema(replace(SPEC, action_parts=parts), 3)
    records = np.zeros((1, schema.nbytes), np.uint8)
    into = schema.allocate(1)
    schema.view(records, "action")[..., 1] = -1.5
    open_block(seal(0, 0, 0, records), schema, into, 0)
    for chosen in (0.5, 3.0, math.nan):
        schema.view(records, "action")[0, 2, 0] = chosen
        with pytest.raises(TransportError, match="has action of 3 choices"):
            open_block(seal(0, 0, 0, records), schema, into, 0)


def test_something_else_than_a_block_is_refused():
    with pytest.raises(TransportError, match="dict"):
        opened({"payloads": ()})


def test_records_of_another_worker_time_or_future_are_refused():
    stranger = play(3, 0, 5, 3)
    with pytest.raises(TransportError, match="another worker"):
        opened(resealed(stranger))
    mixed = play(2, 0, 5, 3)
    SCHEMA.view(mixed, "seq")[1] = 6
    with pytest.raises(TransportError, match="one and the same"):
        opened(resealed(mixed))
    swapped = play(2, 0, 5, 3)[::-1]
    with pytest.raises(TransportError, match="env_id"):
        opened(resealed(swapped))
    with pytest.raises(TransportError, match="newest that were sent"):
        opened(resealed(play(2, 0, 5, 4)), newest=3)
    with pytest.raises(TransportError, match="newest that were sent"):
        opened(resealed(play(2, 0, 5, -1)), newest=3)


def test_a_record_of_another_layout_is_refused():
    records = np.zeros((ENVS, SCHEMA.nbytes + 64), np.uint8)
    with pytest.raises(TransportError, match="another layout"):
        opened(resealed(records))


def test_programs_are_told_apart_by_the_smallest_difference():
    own = Fingerprint.own()
    assert own.differences(own) == []
    for known in ("agent/acting/rollout.py", "flags/environment.py"):
        assert any(path == known for path, _ in own.files)
    changed = tuple(
        (path, "0" if path == "agent/acting/rollout.py" else digest) for path, digest in own.files
    )
    assert own.differences(replace(own, files=changed)) == [
        "another version of agent/acting/rollout.py"
    ]
    fewer = replace(own, files=own.files[4:], python="3.1.0", libraries=own.libraries[1:])
    python, torch, files = own.differences(fewer)
    assert python == f"Python 3.1.0 instead of {own.python}"
    assert torch.startswith("torch missing instead of")
    assert files.endswith("and 1 more")
