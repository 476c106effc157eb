"""A claim of a document, and the figures that the files have for it."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean

import numpy as np

from ritornello.agent.testing.human_scores import human_normalised
from ritornello.analysis.area import area, difference
from ritornello.analysis.runs import Run, find_runs
from tests.house import ROOT

RESULTS = ROOT / "docs" / "results"


SPEED = RESULTS / "performance"

# The runs of the default that went to 0.7 M steps, by game.
USUAL = {
    "Breakout": [
        "screen_a/control_BreakoutNoFrameskip-v4_seed1",
        *(f"impact_breakout/default_BreakoutNoFrameskip-v4_seed{seed}" for seed in (1, 2, 3)),
        "most_replayed/default_BreakoutNoFrameskip-v4_seed4",
    ],
    "SpaceInvaders": [
        "screen_a/control_SpaceInvadersNoFrameskip-v4_seed1",
        "most_replayed/default_SpaceInvadersNoFrameskip-v4_seed4",
    ],
    "Seaquest": ["screen_a/control_SeaquestNoFrameskip-v4_seed1"],
}


Value = Callable[[], float]


@dataclass(frozen=True)
class Claim:
    """A sentence of a document, and the values of its figures."""

    document: str
    sentence: str
    values: tuple[Value, ...]


@cache
def run(name: str) -> Run:
    """Read one exported run, e.g. "elite/standard_PongNoFrameskip-v4_seed1"."""
    (found,), _ = find_runs([str(RESULTS / f"{name}.csv")])
    return found


@cache
def returns_of(
    folder: str, env: str = "", seed: int | None = None, name: str = "test_games.csv"
) -> list[float]:
    """Return the returns of the test games in a folder, of one game or one seed of several."""
    with open(RESULTS / folder / name, encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["env"].startswith(env)]
    if seed is not None:
        rows = [row for row in rows if int(row["seed"]) == seed]
    return [float(row["return_raw"]) for row in rows]


def frames_of_tests(folder: str) -> list[int]:
    """Return how long each test game in a folder lasted, in frames."""
    with open(RESULTS / folder / "test_games.csv", encoding="utf-8") as file:
        return [int(row["length_frames"]) for row in csv.DictReader(file)]


def played(
    folder: str, of: Callable[[Sequence[float]], float], env: str = ""
) -> Callable[[], float]:
    """A figure of test games: `of` is len, fmean, min or max."""
    return lambda: float(of(returns_of(folder, env)))


def percent_of_human(folder: str, env: str) -> Value:
    """The mean of the test games, human-normalised, in percent."""
    return lambda: 100.0 * (human_normalised(env, fmean(returns_of(folder))) or 0.0)


def at(name: str, steps: float) -> Value:
    """The training return after so many agent steps, or at an end that a document rounds so."""

    def value() -> float:
        curve = run(name).curve
        end_rounded = curve.agent_steps[-1] < steps < 1.01 * curve.agent_steps[-1]
        return curve.at_steps(curve.agent_steps[-1] if end_rounded else steps)

    return value


def end(name: str) -> Value:
    """The training return at the end."""
    return lambda: float(run(name).curve.mean_return[-1])


def highest(name: str) -> Value:
    """The highest training return on the way."""
    return lambda: float(run(name).curve.mean_return.max())


def area_to(name: str, steps: float) -> Value:
    """The mean training return from the start to so many agent steps."""
    return lambda: float(area(run(name).curve, steps))


def mean_of(values: Sequence[Value]) -> Value:
    """The mean of several figures."""
    return lambda: fmean(value() for value in values)


def meanwhile(name: str, other: str) -> Value:
    """The training return at the time at which the run beside it was at its end."""
    return lambda: run(name).curve.at_seconds(run(other).curve.wall_s[-1])


def ratio(one: Value, other: Value) -> Value:
    """One figure divided by another."""
    return lambda: one() / other()


def best(name: str) -> Value:
    """The best single game of training."""
    return lambda: run(name).about.best or float("nan")


def minutes(name: str) -> Value:
    """The running time of the whole run."""
    return lambda: float(run(name).curve.wall_s[-1] / 60)


def steps_per_s(name: str) -> Value:
    """Agent steps per second over the whole run."""
    return lambda: float(run(name).curve.agent_steps[-1] / run(name).curve.wall_s[-1])


def first_at(name: str, mean_return: float) -> int:
    """Return the first record with at least this training return."""
    return int(np.argmax(run(name).curve.mean_return >= mean_return))


def minutes_to(name: str, mean_return: float) -> Value:
    """Running time until the training return is this high."""
    return lambda: float(run(name).curve.wall_s[first_at(name, mean_return)] / 60)


def steps_to(name: str, mean_return: float, unit: float = 1e6) -> Value:
    """Agent steps until the training return is this high, in millions."""
    return lambda: float(run(name).curve.agent_steps[first_at(name, mean_return)] / unit)


def over(of: Callable[[Sequence[float]], float], *values: Value) -> Value:
    """A figure of several: `of` is min, max, median or fmean."""
    return lambda: float(of([value() for value in values]))


def welch(ones: Sequence[Value], others: Sequence[Value]) -> tuple[Value, ...]:
    """The difference of means, and the ends of its 95 % interval."""

    def of(name: str) -> float:
        found = difference([value() for value in ones], [value() for value in others])
        return float(getattr(found, name))

    return tuple(lambda name=name: of(name) for name in ("value", "low", "high"))
