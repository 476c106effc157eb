import json

import pytest

from ritornello.metrics.record import Record, UndeclaredMetricError, check_declared


def test_a_record_survives_its_line_of_json():
    odd = {"loss/value": float("nan"), "grad/x": float("inf"), "grad/y": -1e101}  # are absent
    record = Record(10, 40, 3, 2, 1.5, {"loss/total": 0.1, "value/mean": -2.0, **odd})
    assert Record.from_json(record.to_json()) == record
    assert json.loads(record.to_json())["values"] == {"loss/total": 0.1, "value/mean": -2.0}
    assert "\n" not in record.to_json()


def test_declared_names_are_known_and_others_refused_with_the_nearest_one():
    for name in ("loss/total", "replay/elite_2/mean_age_updates", "popart/sigma_0"):
        assert check_declared(name).doc
    for name in ("replay/elite/colour", "loss/*x", ""):
        with pytest.raises(UndeclaredMetricError, match="add it to metrics"):
            check_declared(name)
    with pytest.raises(UndeclaredMetricError, match=r"did you mean loss/policy\?"):
        check_declared("loss/polcy")
