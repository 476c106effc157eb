from __future__ import annotations

import json

import pytest

from ritornello.metrics.__main__ import markdown
from ritornello.metrics.record import METRICS, Record, UndeclaredMetricError, check_declared


def test_values_that_are_not_finite_are_absent():
    record = Record(values={"loss/total": float("nan"), "loss/value": float("inf"), "grad/x": 1})
    assert record.values == {"grad/x": 1.0}
    assert "NaN" not in record.to_json()


def test_a_record_survives_its_line_of_json():
    record = Record(10, 40, 3, 2, 1.5, {"loss/total": 0.1, "value/mean": -2.0})
    assert Record.from_json(record.to_json()) == record
    assert json.loads(record.to_json())["values"] == {"loss/total": 0.1, "value/mean": -2.0}
    assert "\n" not in record.to_json()


@pytest.mark.parametrize(
    "name", ["loss/total", "replay/elite_2/mean_age_updates", "popart/sigma_0", "replay/ratio"]
)
def test_declared_names_are_known_also_through_their_pattern(name):
    assert check_declared(name).doc


@pytest.mark.parametrize("name", ["loss/polcy", "replay/elite/colour", "loss/*x", ""])
def test_an_undeclared_name_is_refused_with_the_nearest_one(name):
    with pytest.raises(UndeclaredMetricError, match="add it to metrics"):
        check_declared(name)
    with pytest.raises(UndeclaredMetricError, match=r"did you mean loss/policy\?"):
        check_declared("loss/polcy")


def test_each_declaration_has_a_group_a_quantity_and_a_sentence():
    for name, info in METRICS.items():
        group, _, quantity = name.partition("/")
        assert group, name
        assert quantity, name
        assert info.doc.endswith("."), name
        for suffix, unit in (("_per_s", "1/s"), ("_fraction", "fraction"), ("_updates", "updates")):
            if name.endswith(suffix):
                assert info.unit == unit, name


def test_the_page_has_each_metric_once_and_sound_tables():
    page = markdown()
    for name in METRICS:
        assert page.count(f"| `{name}` |") == 1
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {5}
    groups = [line for line in page.splitlines() if line.startswith("## ")]
    assert len(groups) == len(set(groups))
