from __future__ import annotations

from ritornello.core.nearest_names import did_you_mean


def test_the_nearest_known_name_is_offered_and_nothing_where_none_is_near() -> None:
    known = ["batch_size", "buffer_size", "lr"]
    assert did_you_mean("batchsize", known) == "did you mean batch_size?"
    assert did_you_mean("batchsize", iter(known)) == "did you mean batch_size?"
    assert did_you_mean("zzz", known) == ""
