"""A search for good flags as data: what is varied, how a trial is judged, and when one is ended.

    name: cartpole
    about: One sentence.
    base:                        flags of every trial
      env: CartPole-v1
      environment_max_steps: 100000
    search:                      flags that are varied, and between what
      lr: {from: 0.0001, to: 0.01, log: true}
      r_f_steps: {from: 10, to: 40, step: 10}
      batch_size: {choose: [8, 16, 32]}
    objective: area              area: mean return from the start on; return: mean return at the end
    steps: 100000                agent steps up to which it counts (default: environment_max_steps)
    trials: 20
    seeds: [1]                   a trial is a run for each seed; its value is their mean
    prune: {every: 10000, after_steps: 20000, after_trials: 5}    or false: no trial is ended early
    sampler_seed: 0

Each trial is a run as any other (runner.py). Next to read: tuner.py.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ritornello.core.errors import ConfigError
from ritornello.core.nearest_names import did_you_mean
from ritornello.core.plain_data import read_text, shown, shown_text
from ritornello.core.plain_yaml import parse_yaml
from ritornello.metrics.curve import Curve
from ritornello.sequences.plan import MAX_GROUP_LENGTH, MAX_PLAN_BYTES, Plan, PlannedRun, source_of

KEYS = (
    *("name", "about", "base", "search", "objective", "steps", "trials", "seeds", "prune"),
    "sampler_seed",
)
RANGE_KEYS = ("from", "to", "log", "step", "choose")
PRUNE_KEYS = ("every", "after_steps", "after_trials")
MAX_TRIALS, MAX_SEEDS, MAX_FLAGS, MAX_CHOICES = 10_000, 100, 100, 1000
MAX_REPORTS = 10_000  # per trial
DEFAULT_REPORTS = 10  # looks at a trial, unless `every` says otherwise
Value = bool | int | float | str | None


@dataclass(frozen=True)
class Range:
    """What one flag may be: from `low` to `high`, or one of `choices`."""

    low: float = 0.0
    high: float = 0.0
    is_log: bool = False
    step: float | None = None
    choices: tuple[str, ...] = ()  # each as JSON

    @property
    def is_whole(self) -> bool:
        """Whether only whole numbers are meant, by how the bounds are written."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def contains(self, value: Any) -> bool:
        """Whether a value, from a study's file, can be one of these."""
        if self.choices:
            return value in self.choices
        kind = int if self.is_whole else float
        return type(value) is kind and self.low <= value <= self.high

    def flag(self, value: Any) -> Any:
        """Return the flag's value for a value of the study."""
        return json.loads(value) if self.choices else value

    def extremes(self) -> list[Any]:
        """Return the values to check before the first trial, as of flags."""
        if self.choices:
            return [json.loads(choice) for choice in self.choices]
        return [self.low, self.high]


@dataclass(frozen=True)
class Pruning:
    """When a trial is compared with the others, and ended if it is below their median."""

    every: int  # agent steps between two looks
    after_steps: int  # agent steps that every trial may have
    after_trials: int  # trials that come to their end before any is ended early


@dataclass(frozen=True)
class Tuning:
    """A search, checked."""

    name: str
    about: str
    base: dict[str, Any]
    search: dict[str, Range]
    objective: str  # area | return
    steps: int
    trials: int
    seeds: tuple[int, ...]
    pruning: Pruning | None
    sampler_seed: int
    data: dict[str, Any]  # as it was written

    def worth(self, curve: Curve, steps: float) -> float:
        """Return what a run is worth by its first `steps` agent steps, points.

        A run that ended before is taken to have stayed where it was.
        """
        if self.objective == "return":
            return float(np.interp(steps, curve.agent_steps, curve.mean_return))
        inside = (curve.agent_steps > 0) & (curve.agent_steps < steps)
        at = np.concatenate([[0.0], curve.agent_steps[inside], [steps]])
        returns = np.interp(at, curve.agent_steps, curve.mean_return)
        return float(np.sum(np.diff(at) * (returns[1:] + returns[:-1]) / 2) / steps)

    def flags(self, values: Mapping[str, Any], seed: int) -> dict[str, Any]:
        """Return the flags of the run with these values of the study."""
        chosen = {name: self.search[name].flag(value) for name, value in values.items()}
        return {**self.base, **chosen, "seed": seed}

    def extremes(self) -> Plan:
        """Return runs that show whether all that may be tried can be: one for each extreme."""
        runs = [
            PlannedRun(f"{name}={shown(value, 60)}", self.seeds[0], {**self.base, name: value})
            for name, range_ in self.search.items()
            for value in range_.extremes()
        ]
        return Plan(self.name, self.about, tuple(runs))


def load_tuning(path: str) -> Tuning:
    """Read a search from a YAML file.

    Raises:
      ConfigError: if there is none, or it is malformed.
    """
    where = shown_text(path)
    data = parse_yaml(read_text(path, "the search", MAX_PLAN_BYTES), where)
    return parse_tuning(data, where)


def parse_tuning(data: Any, where: str) -> Tuning:
    """Check a search.

    Args:
      data: plain types, from anywhere.
      where: where they are from, for messages.

    Raises:
      ConfigError: naming the key that is wrong.
    """
    data = _mapping(data, where, KEYS)
    base = _mapping(data.get("base", {}), f"{where}: base")
    search = _mapping(data.get("search"), f"{where}: search")
    if not 1 <= len(search) <= MAX_FLAGS:
        raise ConfigError(f"{where}: search has {len(search)} flags, expected 1 to {MAX_FLAGS}.")
    both = sorted(set(base) & set(search))
    if both or "seed" in {**base, **search}:
        wrong = ", ".join(both) or "seed"
        raise ConfigError(
            f"{where}: {shown_text(wrong)} is given twice, or is the seed: a flag is in base or in "
            "search, and seeds have a key of their own."
        )
    objective = data.get("objective", "area")
    if objective not in ("area", "return"):
        raise ConfigError(f"{where}: objective is {shown(objective)}, expected area or return.")
    steps = _count(data.get("steps", base.get("environment_max_steps")), f"{where}: steps", 10**15)
    seeds = data.get("seeds", [1])
    good = isinstance(seeds, list) and 1 <= len(seeds) <= MAX_SEEDS
    if not good or not all(type(seed) is int and 0 <= seed < 2**63 for seed in seeds):
        raise ConfigError(f"{where}: seeds is {shown(seeds)}, expected a list of integers from 0.")
    sampler_seed = data.get("sampler_seed", 0)
    if type(sampler_seed) is not int or not 0 <= sampler_seed < 2**31:
        raise ConfigError(f"{where}: sampler_seed is {shown(sampler_seed)}, expected an integer.")
    name = data.get("name", "tuning")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_GROUP_LENGTH:
        raise ConfigError(f"{where}: name is {shown(name)}, expected a short text.")
    tuning = Tuning(
        name,
        str(data.get("about", "")),
        dict(base),
        {
            flag: _range(range_, f"{where}: search: {shown(flag)}")
            for flag, range_ in search.items()
        },
        objective,
        steps,
        _count(data.get("trials", 20), f"{where}: trials", MAX_TRIALS),
        tuple(dict.fromkeys(seeds)),
        _pruning(data.get("prune", {}), steps, f"{where}: prune"),
        sampler_seed,
        dict(data),
    )
    for run in tuning.extremes().runs:
        if source_of(run.flags) is not None:
            url = shown(run.flags["load_model_url"])
            raise ConfigError(
                f"{where}: load_model_url is {url}, expected a path: no run of a search starts "
                "from another one."
            )
    return tuning


def _range(data: Any, where: str) -> Range:
    data = _mapping(data, where, RANGE_KEYS)
    if "choose" in data:
        choices = data["choose"]
        if len(data) > 1 or not isinstance(choices, list) or not 1 <= len(choices) <= MAX_CHOICES:
            raise ConfigError(f"{where} is {shown(data)}, expected {{choose: [a, b, ...]}}.")
        return Range(choices=tuple(dict.fromkeys(json.dumps(choice) for choice in choices)))
    low, high, step, is_log = (data.get(key) for key in ("from", "to", "step", "log"))
    if not _is_number(low) or not _is_number(high) or low >= high:
        raise ConfigError(
            f"{where} is {shown(data)}, expected {{from: number, to: larger number}}, or "
            "{choose: [a, b, ...]}."
        )
    if is_log not in (None, True, False) or (is_log and low <= 0):
        raise ConfigError(f"{where}: log is {shown(is_log)}, expected true with numbers above 0.")
    whole = isinstance(low, int) and isinstance(high, int)
    if step is not None and (is_log or not _is_number(step) or not 0 < step <= high - low):
        raise ConfigError(f"{where}: step is {shown(step)}, expected a part of the range, no log.")
    if step is not None and whole and not isinstance(step, int):
        raise ConfigError(f"{where}: step is {shown(step)}, expected a whole number.")
    if not whole:
        low, high = float(low), float(high)
    return Range(low, high, bool(is_log), step)


def _pruning(data: Any, steps: int, where: str) -> Pruning | None:
    if data is False or data is None:
        return None
    data = _mapping({} if data is True else data, where, PRUNE_KEYS)
    every = _count(data.get("every", max(1, steps // DEFAULT_REPORTS)), f"{where}: every", steps)
    if steps / every > MAX_REPORTS:
        raise ConfigError(f"{where}: every is {every}, expected at least {steps // MAX_REPORTS}.")
    after_steps = _count(data.get("after_steps", every), f"{where}: after_steps", steps)
    after_trials = _count(data.get("after_trials", 5), f"{where}: after_trials", MAX_TRIALS)
    return Pruning(every, after_steps, after_trials)


def _mapping(data: Any, where: str, keys: Sequence[str] = ()) -> Mapping[str, Any]:
    if not isinstance(data, Mapping) or not all(isinstance(key, str) for key in data):
        expected = f" with {', '.join(keys)}" if keys else ""
        raise ConfigError(f"{where} is {shown(data)}, expected a mapping{expected}.")
    for key in data:
        if keys and key not in keys:
            hint = did_you_mean(key, keys)
            raise ConfigError(f"{where}: unknown key {shown(key)}{'; ' + hint if hint else ''}.")
    return data


def _count(value: Any, where: str, limit: int) -> int:
    if type(value) is not int or not 1 <= value <= limit:
        raise ConfigError(f"{where} is {shown(value)}, expected an integer from 1 to {limit:,}.")
    return value


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and abs(value) <= 1e15
