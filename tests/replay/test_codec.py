import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp

from ritornello.replay.codec import CODECS, decode, encode


@pytest.mark.parametrize("codec", CODECS)
@given(record=hnp.arrays(np.uint8, hnp.array_shapes(max_dims=1, max_side=300)))
def test_a_record_comes_back_read_only_whatever_becomes_of_the_original(codec, record):
    kept = record.copy()
    payload = encode(record, codec)
    record[:] = 0
    decoded = decode(payload, codec)
    assert decoded.dtype == np.uint8
    np.testing.assert_array_equal(decoded, kept)
    with pytest.raises(ValueError, match="read-only"):
        decoded[0] = 1
