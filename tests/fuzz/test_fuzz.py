"""10,000 cases at the doors of the program, and whether the fuzzer would see anything at all."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ritornello.core.errors import ConfigError
from tests.fuzz.harness import Target, run_cases
from tests.fuzz.targets import TARGETS

FEW = 200  # of 10,000, in the fast tests
SEED = 1


def cases_of(target: Target, of_all: int) -> range:
    return range(max(1, target.share * of_all // 10_000))


def run(target: Target, tmp_path: Path, of_all: int) -> None:
    outcome = run_cases(target, SEED, tmp_path, cases_of(target, of_all))
    assert not outcome.findings, "\n\n".join(outcome.findings[:5])
    assert sum(outcome.counts.values()) == len(cases_of(target, of_all))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_few_cases_are_honoured_or_refused_in_one_message(target: Target, tmp_path: Path) -> None:
    run(target, tmp_path, FEW)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_ten_thousand_cases_are_honoured_or_refused_in_one_message(
    target: Target, tmp_path: Path
) -> None:
    run(target, tmp_path, 10_000)


def test_the_cases_of_a_seed_are_the_same_every_time(tmp_path: Path) -> None:
    def draws(seed: int) -> list[float]:
        seen: list[float] = []

        def case(rng: Random, place: Path) -> Any:
            return lambda: seen.append(rng.random())

        run_cases(Target("any", 1, case), seed, tmp_path, range(3))
        return seen

    assert draws(1) == draws(1)
    assert len({*draws(1), *draws(2)}) == 6


def spin() -> None:
    while True:
        pass


def swallow() -> None:
    while True:
        try:
            spin()
        except Exception:
            continue


def refuse_with(message: str) -> Any:
    def action() -> None:
        raise ConfigError(message)

    return action


BAD: dict[str, tuple[Any, str]] = {
    "another exception": (lambda: {}["key"], "KeyError"),
    "an assertion": (lambda: os.kill(os.getpid(), "x"), "TypeError"),  # type: ignore[arg-type]
    "a way out": (lambda: exit(0), "SystemExit"),
    "no message": (refuse_with("  "), "the message is empty"),
    "a long message": (refuse_with("x" * 10_000), "10000 characters"),
    "many lines": (refuse_with("x\n" * 100), "100 lines"),
    "an escape": (refuse_with("\x1b[31mred"), "a terminal obeys"),
    "a loop": (spin, "processor time"),
    "a loop that catches": (swallow, "processor time"),
}


@pytest.mark.parametrize("name", BAD)
def test_the_harness_sees_what_is_wrong(name: str, tmp_path: Path) -> None:
    action, expected = BAD[name]
    target = Target("planted", 1, lambda rng, place: action)
    outcome = run_cases(target, 3, tmp_path, range(1), limit_s=0.2)
    (finding,) = outcome.findings
    assert expected in finding
    assert "--target=planted --seed=3 --case=0" in finding


@pytest.mark.parametrize("message", [None, "no"])
@pytest.mark.parametrize("name", ["left.txt", ".results.json.1.tmp", "made/deep.txt"])
def test_the_harness_sees_files_that_are_left(
    name: str, message: str | None, tmp_path: Path
) -> None:
    def case(rng: Random, place: Path) -> Any:
        def action() -> None:
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text("x")
            if message is not None:
                raise ConfigError(message)

        return action

    outcome = run_cases(Target("planted", 1, case, leaves=("made/*",)), 1, tmp_path, range(1))
    assert bool(outcome.findings) == (message is not None or not name.startswith("made"))
    assert list(tmp_path.iterdir()) == []
