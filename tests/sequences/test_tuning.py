"""Searches as data: what may be written, and what it means."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ritornello.core.errors import ConfigError
from ritornello.core.plain_yaml import parse_yaml
from ritornello.flags.options import Flags
from ritornello.flags.parsing import check_values
from ritornello.metrics.curve import Curve
from ritornello.sequences.plan import check_flags
from ritornello.sequences.tuning import KEYS, load_tuning, parse_tuning
from tests.house import ROOT

GOOD = {
    "base": {"env": "CartPole-v1", "environment_max_steps": 1000},
    "search": {"lr": {"from": 0.001, "to": 0.1, "log": True}},
}


def test_what_is_not_said_has_a_default():
    tuning = parse_tuning(GOOD, "x")
    assert (tuning.name, tuning.objective, tuning.steps) == ("tuning", "area", 1000)
    assert (tuning.trials, tuning.seeds) == (20, (1,))
    assert tuning.pruning is not None
    assert (tuning.pruning.every, tuning.pruning.after_steps) == (100, 100)
    assert parse_tuning({**GOOD, "prune": False}, "x").pruning is None


def test_ranges_are_whole_or_not_by_how_they_are_written():
    search = {
        "r_f_steps": {"from": 10, "to": 40, "step": 10},
        "lr": {"from": 0.001, "to": 1},
        "replay_parameters": {"choose": [[{"type": "queue"}], [{"type": "elite"}]]},
    }
    ranges = parse_tuning({**GOOD, "search": search}, "x").search
    assert ranges["r_f_steps"].is_whole
    assert not ranges["lr"].is_whole
    assert ranges["lr"].high == 1.0
    assert [ranges["r_f_steps"].contains(v) for v in (20, 41, 20.0, True)] == [
        True, False, False, False,
    ]  # fmt: skip
    choices = ranges["replay_parameters"]
    assert choices.flag(choices.choices[1]) == [{"type": "elite"}]
    assert not choices.contains('[{"type": "evil"}]')


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"serch": {}}, "did you mean search"),
        ({"search": {}}, "0 flags"),
        ({"search": None}, "expected a mapping"),
        ({"search": {"lr": {"from": 1, "to": 1}}}, "larger number"),
        ({"search": {"lr": {"from": 0, "to": 1, "log": True}}}, "above 0"),
        ({"search": {"lr": {"from": 1, "to": 9, "step": 2.5}}}, "whole number"),
        ({"search": {"lr": {"from": 1, "to": 9, "step": 9}}}, "part of the range"),
        ({"search": {"lr": {"from": 0.1, "to": float("inf")}}}, "larger number"),
        ({"search": {"lr": {"choose": []}}}, "choose"),
        ({"search": {"lr": {"choose": [1], "from": 2}}}, "choose"),
        ({"search": {"env": {"choose": ["a"]}}}, "given twice"),
        ({"search": {"seed": {"choose": [1]}}}, "seeds have a key"),
        ({"objective": "loss"}, "area or return"),
        ({"steps": 0}, "integer from 1"),
        ({"trials": True}, "integer from 1"),
        ({"trials": 10**9}, "integer from 1"),
        ({"seeds": []}, "seeds"),
        ({"seeds": [1.5]}, "seeds"),
        ({"prune": {"every": 2000}}, "every"),
        ({"prune": {"after": 1}}, "unknown key"),
        ({"name": ""}, "short text"),
        ({"sampler_seed": -1}, "sampler_seed"),
    ],
)
def test_what_makes_no_sense_is_told_with_its_key(changes, message):
    with pytest.raises(ConfigError, match=message):
        parse_tuning({**GOOD, **changes}, "x")


def test_the_worth_of_a_run_that_ended_early_is_that_it_stayed_where_it_was():
    tuning = parse_tuning(GOOD, "x")
    steps = np.array([100.0, 200.0])
    curve = Curve(steps, steps, np.array([10.0, 20.0]), None)
    assert tuning.worth(curve, 200) == pytest.approx((100 * 10 + 100 * 15) / 200)
    assert tuning.worth(curve, 1000) == pytest.approx((100 * 10 + 100 * 15 + 800 * 20) / 1000)
    at_end = parse_tuning({**GOOD, "objective": "return"}, "x")
    assert at_end.worth(curve, 150) == 15
    assert at_end.worth(curve, 1000) == 20


def test_the_extremes_are_what_is_checked_before_the_first_trial():
    plan = parse_tuning({**GOOD, "search": {"lr": {"from": 0.1, "to": 1}}}, "x").extremes()
    assert [run.flags["lr"] for run in plan.runs] == [0.1, 1.0]
    assert {run.flags["env"] for run in plan.runs} == {"CartPole-v1"}


def test_a_file_that_is_not_there_or_no_mapping_is_a_message(tmp_path):
    with pytest.raises(ConfigError, match="the search"):
        load_tuning(str(tmp_path / "none.yaml"))
    (tmp_path / "list.yaml").write_text("[1]")
    with pytest.raises(ConfigError, match="expected a mapping"):
        load_tuning(str(tmp_path / "list.yaml"))


def test_the_search_on_the_page_can_be_searched():
    page = (ROOT / "docs" / "tuning.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    tuning = parse_tuning(parse_yaml(text, "the page"), "the page")
    check_flags(tuning.extremes(), Flags.model_fields, check_values)
    assert set(tuning.search) == {"lr", "r_f_steps", "batch_size"}
    rows = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert {key for key in KEYS if key not in ("name", "about")} <= rows
