import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ritornello.core.errors import ConfigError
from ritornello.replay.codec import make_codec

CODECS = [("none", 0), ("lz4", 0), ("lz4", -5), ("lz4", 9)]


@pytest.mark.parametrize(("name", "level"), CODECS)
@given(record=hnp.arrays(np.uint8, st.integers(1, 300)))
def test_a_record_is_decoded_to_the_same_bytes(name, level, record):
    codec = make_codec(name, level)
    decoded = codec.decode(codec.encode(record))
    assert decoded.dtype == np.uint8
    np.testing.assert_array_equal(decoded, record)


@pytest.mark.parametrize(("name", "level"), CODECS)
def test_a_payload_does_not_change_with_the_record_it_was_made_of(name, level):
    record = np.arange(64, dtype=np.uint8)
    codec = make_codec(name, level)
    payload = codec.encode(record)
    record[:] = 0
    np.testing.assert_array_equal(codec.decode(payload), np.arange(64, dtype=np.uint8))


@pytest.mark.parametrize(("name", "level"), CODECS)
def test_a_decoded_record_cannot_be_written_to(name, level):
    codec = make_codec(name, level)
    decoded = codec.decode(codec.encode(np.zeros(8, np.uint8)))
    with pytest.raises(ValueError, match="read-only"):
        decoded[0] = 1


def test_unknown_codecs_and_levels_are_refused():
    with pytest.raises(ConfigError, match="zip"):
        make_codec("zip")
    with pytest.raises(ConfigError, match="99"):
        make_codec("lz4", 99)
