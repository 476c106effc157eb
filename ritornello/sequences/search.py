"""A search for good flags as data: what is varied, between what, and what a run is worth.

    name: cartpole
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

Next to read: tuner.py.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from ritornello.core.command_line import number_in
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import parse_json, read_text, shown, shown_text
from ritornello.core.plain_yaml import parse_yaml
from ritornello.core.project import import_extra
from ritornello.flags.names import named_flags
from ritornello.metrics.curve import Curve
from ritornello.sequences.forms import Form, Name, Seeds, checked
from ritornello.sequences.plan import MAX_PLAN_BYTES, MAX_RUNS, PlannedRun

Count = Annotated[int, Field(ge=1, le=10**15), BeforeValidator(number_in)]
Number = Annotated[int | float, Field(allow_inf_nan=False), BeforeValidator(number_in)]


class Range(Form):
    """Values that one flag may have: from `low` to `high`, or one of `choose`."""

    low: Number | None = Field(None, alias="from")
    high: Number | None = Field(None, alias="to")
    log: bool = False
    step: Number | None = None
    choose: Annotated[list[Any], Field(min_length=1)] | None = None

    def distribution(self, optuna: Any) -> Any:
        """Return Optuna's form of it, where whole bounds mean whole numbers, and choices are JSON.

        Raises:
          ValueError: if the range makes no sense.
        """
        if self.choose is not None and self.model_fields_set == {"choose"}:
            choices = dict.fromkeys(json.dumps(choice) for choice in self.choose)
            return optuna.distributions.CategoricalDistribution(list(choices))
        if self.choose is not None or self.low is None or self.high is None:
            raise ValueError("expected {from: number, to: number} or {choose: [a, b, ...]}")
        kind, step = optuna.distributions.FloatDistribution, self.step
        if self._is_whole:
            kind, step = optuna.distributions.IntDistribution, 1 if step is None else step
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an end that no step meets
            drawn = kind(self.low, self.high, self.log, step)
        if drawn.low == drawn.high < self.high:
            raise ValueError(f"expected a step of at most {self.high - self.low:g}, got {step}")
        return drawn

    @property
    def _is_whole(self) -> bool:
        return all(isinstance(value, int) for value in (self.low, self.high, self.step or 1))

    def flag(self, value: Any) -> Any:
        """Return the flag's value for a value of the study."""
        return json.loads(value) if self.choose is not None else value

    def extremes(self) -> list[Any]:
        """Return the values to check before the first trial; if it has fractions, one of them."""
        if self.choose is not None:
            return self.choose
        assert self.low is not None, "it has a distribution"
        assert self.high is not None, "it has a distribution"
        between = self.low + (self.step or (self.high - self.low) / math.pi)
        return [self.low, self.high] if self._is_whole else [self.low, between, self.high]


class Pruning(Form):
    """When a trial is compared with the others, and ended if it is below their median."""

    every: Count | None = None  # agent steps between two looks; None: a tenth of all
    after_steps: Count | None = None  # agent steps that every trial may have; None: `every`
    after_trials: Count = 5  # trials that come to their end before any is ended early


class Search(Form):
    """The keys of a search's file."""

    name: Name = "tuning"
    about: str = ""
    base: dict[str, Any] = Field({})
    search: Annotated[dict[str, Range], Field(min_length=1)]
    objective: Literal["area", "return"] = "area"
    steps: Count | None = None
    trials: Count = 20
    seeds: Seeds = Field([1])
    prune: Pruning | Literal[False] = Pruning()
    sampler_seed: Annotated[int, Field(ge=0, lt=2**31)] = 0

    @property
    def last_step(self) -> int:
        """Agent steps up to which a run counts."""
        return int(self.steps or number_in(self.base["environment_max_steps"]))

    @property
    def every(self) -> int:
        """Agent steps between two looks at a trial."""
        return (self.prune and self.prune.every) or max(1, self.last_step // 10)

    def flags(self, values: Mapping[str, Any], seed: int) -> dict[str, Any]:
        """Return the flags of the run with these values of the study."""
        chosen = {name: self.search[name].flag(value) for name, value in values.items()}
        return {**self.base, **chosen, "seed": seed}

    def extremes(self) -> list[PlannedRun]:
        """Return runs that check whether every value can be tried, see `Range.extremes`."""
        return [
            PlannedRun(f"{name}={shown(value, 60)}", self.seeds[0], {**self.base, name: value})
            for name, range_ in self.search.items()
            for value in range_.extremes()
        ]

    def worth(self, curve: Curve, steps: float) -> float:
        """Return the value of a run by its first `steps` agent steps, points.

        A run that ended before is taken to have kept its last return.
        """
        if self.objective == "area":
            return curve.area(steps)
        return float(np.interp(steps, curve.agent_steps, curve.mean_return))


def load_search(path: Path) -> Search:
    """Read a search from a .yaml file, or the tuning.json of a folder.

    Raises:
      ConfigError: if there is none, it is malformed, or Optuna is not installed.
    """
    where = shown_text(str(path))
    text = read_text(path, "the search", MAX_PLAN_BYTES)
    parse = parse_json if path.suffix == ".json" else parse_yaml
    search = checked(Search, parse(text, where), where)
    named = {
        key: named_flags(getattr(search, key), f"{where}: {key}") for key in ("base", "search")
    }
    search = search.model_copy(update=named)
    twice = [name for name in search.search if name in search.base]
    if twice or "seed" in {**search.base, **search.search}:
        raise ConfigError(
            f"{where}: {shown_text(', '.join(twice) or 'seed')}: a flag is in base or in search, "
            "and seeds have their own key."
        )
    runs = search.trials * len(search.seeds)
    if runs > MAX_RUNS:
        raise ConfigError(f"{where}: trials x seeds are {runs:,} runs, at most {MAX_RUNS:,} fit.")
    if (
        search.steps is None
        and type(number_in(search.base.get("environment_max_steps"))) is not int
    ):
        raise ConfigError(f"{where}: expected steps, or environment_max_steps under base.")
    optuna = import_optuna()
    for name, range_ in search.search.items():
        try:
            range_.distribution(optuna)
        except ValueError as error:
            raise ConfigError(f"{where}: search.{shown_text(name)}: {error}") from error
    for flags in (run.flags for run in search.extremes()):
        if "op_mode" in flags:
            raise ConfigError(f"{where} sets op_mode, but trials are trained: remove it.")
        url = flags.get("load_model_url")
        if isinstance(url, Mapping):
            raise ConfigError(
                f"{where}: load_model_url is {shown(url)}, expected a path: a search has no other "
                "run to start from."
            )
    return search


def import_optuna() -> Any:
    """Import and return Optuna; ConfigError if it is not installed."""
    return import_extra("optuna", "tune", "--tune")
