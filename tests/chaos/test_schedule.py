"""The schedule is a pure function of the seed."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from tests.chaos import report
from tests.chaos.bad_environments import BEHAVIOURS
from tests.chaos.catalogue import all_faults
from tests.chaos.configurations import from_plan
from tests.chaos.history import PROMISES, Violation
from tests.chaos.moments import PHASES, draw_moment
from tests.chaos.runner import Outcome
from tests.chaos.scenarios import environments
from tests.chaos.schedule import schedule

FAULTS = all_faults()


def first(count: int, seed: int, only: str = "") -> list[str]:
    return [entry.to_json() for entry in itertools.islice(schedule(seed, FAULTS, only), count)]


def test_the_same_seed_gives_the_same_schedule_and_another_seed_another() -> None:
    assert first(300, seed=7) == first(300, seed=7)
    assert first(300, seed=7)[:50] != first(300, seed=8)[:50]


def test_the_schedule_depends_on_nothing_but_the_seed() -> None:
    random.seed(1)
    before = first(50, seed=3)
    random.seed(2)
    random.random()
    assert first(50, seed=3) == before


def test_each_fault_has_its_turn_before_any_has_a_second_one() -> None:
    names = [json.loads(line)["fault"] for line in first(3 * len(FAULTS), seed=1)]
    for start in range(0, len(names), len(FAULTS)):
        assert sorted(names[start : start + len(FAULTS)]) == sorted(FAULTS)


def test_a_chosen_part_of_the_schedule_has_the_numbers_and_plans_of_the_whole() -> None:
    whole = first(4 * len(FAULTS), seed=5)
    part = [line for line in whole if "kill-" in json.loads(line)["fault"]]
    assert len(part) > 10
    assert first(len(part), seed=5, only="kill-") == part


def test_plans_are_plain_data_and_differ() -> None:
    entries = [json.loads(line) for line in first(20 * len(FAULTS), seed=2)]
    for name in FAULTS:
        plans = {json.dumps(each["plan"]) for each in entries if each["fault"] == name}
        assert len(plans) > 3, name
    for entry in entries:
        assert from_plan(entry["plan"]["configuration"]).save_period > 0


@pytest.mark.parametrize("phase", PHASES)
def test_every_phase_of_a_life_has_moments(phase: str) -> None:
    moments = [draw_moment(random.Random(seed), phase) for seed in range(20)]
    assert {moment["phase"] for moment in moments} == {phase}
    assert any(f"signal-once-in-{phase}" == name for name in FAULTS)


def test_every_behaviour_of_the_bad_environments_is_used() -> None:
    groups = ("RAISING", "DYING", "HANGING", "LEAKING", "SHAPES", "NUMBERS")
    used = [name for group in groups for name in getattr(environments, group)]
    assert sorted(used) == sorted({*BEHAVIOURS})


def test_every_fault_says_what_it_does() -> None:
    for fault in FAULTS.values():
        assert len(fault.about) > 20, fault.name


def test_the_report_names_each_failure_and_how_to_replay_it() -> None:
    broken = Outcome(
        number=17, fault="kill-worker", plan={}, verdict="LOST", injected=("SIGKILL",),
        statuses=(130, 0), violations=(Violation("finite", "update_3.pt has NaN"),),
    )  # fmt: skip
    held = Outcome(18, "kill-worker", {}, "held", ("SIGKILL", "SIGKILL"), (130, 0))
    skipped = Outcome(19, "disk-full", {}, "skipped", note="no mounts")
    text = report.markdown(
        [broken, held, skipped], command="python -m tests.chaos --seed=4 --minutes=60", minutes=61
    )
    assert "3 faults in 3 scenarios" in text
    assert "| kill-worker | 2 | 3 | 1 | 1 | 0 | 0 | 130 0 (2) | finite 1 |" in text
    assert "python -m tests.chaos --seed=4 --replay=17" in text
    assert "update_3.pt has NaN" in text
    assert "disk-full: no mounts" in text
    assert json.loads(json.dumps(broken.to_json()))["violations"][0]["promise"] == "finite"


def test_only_promises_that_exist_can_be_broken() -> None:
    with pytest.raises(AssertionError):
        Violation("no such promise", "text")
    assert all(Violation(name, "text") for name in PROMISES)
