from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ritornello.core.layout import ALIGNMENT_BYTES, lay_out

SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)
TABLES = st.lists(st.tuples(SHAPES, st.sampled_from(["bool", "float16", "int64"])), max_size=6)


@given(TABLES, st.integers(1, 3))
def test_fields_lie_aligned_side_by_side_and_are_views(table, count):
    fields, nbytes = lay_out((str(n), *each) for n, each in enumerate(table))
    places = [(field.offset, field.offset + field.nbytes) for field in fields.values()]
    assert all(start % ALIGNMENT_BYTES == 0 for start, _ in places)
    assert all(end <= start for (_, end), (start, _) in pairwise(places))
    assert all(end <= nbytes for _, end in places)
    blocks = np.zeros((count, nbytes), np.uint8)
    for number, field in enumerate(fields.values(), start=1):
        view = field.view(blocks)
        assert (view.shape, view.dtype) == ((count, *field.shape), field.dtype)
        view[...] = number % 2
    for number, field in enumerate(fields.values(), start=1):
        assert (field.view(blocks) == number % 2).all(), "a field was overwritten by another"
