"""What is to be run: queue.yaml, checked, and its runs in the order in which they are taken.

    - name: screen_a
      question: Does more replay per frame pay?      both are written before the runs
      what_counts: The area under the curve ...
      priority: 10                                   the lowest number is run first
      games: [BreakoutNoFrameskip-v4]
      seeds: [1, 2]
      steps: 700_000                                 agent steps of each run
      flags: {charts: false}                         of every run; left out: none
      arms:                                          what is compared; left out: one, "default"
        control: {}
        nature: {model: nature}

Each arm is run once per seed and game. Seeds are the outermost loop, games the next: an experiment
that is stopped half-way still has arms to compare. Next to read: queue_loop.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from ritornello.agent.stored.run_folder import safe_name
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import MAX_INT, check_plain, read_text, shown, shown_text
from ritornello.core.plain_yaml import load_yaml
from ritornello.flags.names import flag_of
from ritornello.flags.parsing import parse

SHIPPED_QUEUE = Path(__file__).resolve().parent.parent / "queue.yaml"
# Files of the queue in the store and in the results, beside the folders of experiments.
QUEUE_LOCK, TRAINER_LOCK, TRAINER_FILE = "queue.lock", "trainer.lock", "trainer.json"
INDEX_FILE = "index.csv"
# What the queue itself decides about each run.
TAKEN_FLAGS = {
    *("env", "seed", "environment_max_steps", "op_mode", "load_model_url", "results_dir"),
    *("new_run_folder", "training_seconds", "background"),
}
MAX_SHOWN = 60  # characters of a wrong value, and of each part of its place
# What no run of the queue may have, wherever it is set, and why.
REFUSED_FLAGS = {
    "run_name": "the queue resumes a run in its folder, which no resume may name",
    "stop_at_mean_return": "a run is done when its steps are done, and fails if it ends before",
}


def _refuse_files_of_ours(name: str) -> str:
    if name.lower() in (QUEUE_LOCK, TRAINER_LOCK, TRAINER_FILE, INDEX_FILE):
        raise ValueError(f"{name} is a file of the queue's own: take another name")
    return name


# Names become folders and parts of file names, also where a capital is no other letter.
PlainName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+-]*$", max_length=50)
]
ExperimentName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$", max_length=50),
    AfterValidator(_refuse_files_of_ours),
]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Game = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_./:,+-]*$")]
Steps = Annotated[int, Field(strict=True, ge=1, lt=MAX_INT)]
Seed = Annotated[int, Field(strict=True, ge=0, lt=MAX_INT)]


def _one_arm() -> dict[PlainName, dict[str, Any]]:
    return {"default": {}}


class Experiment(BaseModel):
    """One entry of the queue."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: ExperimentName
    question: Text
    what_counts: Text
    priority: Annotated[int, Field(strict=True)]
    games: Annotated[tuple[Game, ...], Field(min_length=1)]
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)]
    steps: Steps
    flags: dict[str, Any] = Field(default_factory=dict)
    arms: Annotated[dict[PlainName, dict[str, Any]], Field(min_length=1)] = Field(
        default_factory=_one_arm
    )

    @model_validator(mode="after")
    def _check(self) -> Experiment:
        for what, values in (("games", self.games), ("seeds", self.seeds)):
            if len(set(values)) < len(values):
                raise ValueError(f"{what} names one twice: {list(values)}")
        if len({arm.lower() for arm in self.arms}) < len(self.arms):
            raise ValueError("two arms differ in nothing but capitals")
        for where, flags in (("flags", self.flags), *self.arms.items()):
            taken = sorted(name for name in flags if flag_of(name) in TAKEN_FLAGS)
            if taken:
                raise ValueError(
                    f"{where} sets {', '.join(taken)}: games, seeds and steps have keys of their "
                    "own, and the rest is the queue's"
                )
            try:
                for name, value in flags.items():
                    check_plain(value, f"{where}: {name}")
            except ConfigError as error:
                raise ValueError(str(error)) from error
        return self


@dataclass(frozen=True)
class PlannedRun:
    """One run: an arm of an experiment, in a game, with a seed."""

    experiment: str
    arm: str
    env: str
    seed: int
    steps: int
    flags: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What tells it from all others; the path of its folder in the store."""
        return f"{self.experiment}/{self.arm}_{safe_name(self.env)}_seed{self.seed}"

    def arguments(self) -> list[str]:
        """Return what main.py is told about the run, without where it lies."""
        flags = {name: _as_text(value) for name, value in self.flags.items()}
        flags |= {"env": self.env, "seed": str(self.seed)}
        flags["environment_max_steps"] = str(self.steps)
        return [f"--{name}={value}" for name, value in flags.items()]


class Queue(NamedTuple):
    """All of a queue.yaml, checked."""

    experiments: tuple[Experiment, ...]  # as they stand in the file
    runs: list[PlannedRun]  # in the order in which they are taken


def planned_runs(experiments: Iterable[Experiment]) -> list[PlannedRun]:
    """Return all runs in the order in which they are taken."""
    return [
        PlannedRun(
            experiment.name, arm, game, seed, experiment.steps, {**experiment.flags, **flags}
        )
        for experiment in sorted(experiments, key=lambda each: each.priority)  # stable
        for seed in experiment.seeds
        for game in experiment.games
        for arm, flags in experiment.arms.items()
    ]


def load_queue(path: Path) -> Queue:
    """Read and check a queue.yaml: its keys, its names, and the flags of every run.

    Raises:
      ConfigError: one message with every mistake that was found, and where.
    """
    try:
        text = read_text(path, "the queue")
    except ConfigError as error:
        raise ConfigError(f"{error} Give a file: --queue=<path>") from error
    data = load_yaml(text, str(path))
    if not isinstance(data, list) or not data:
        raise ConfigError(
            f"{path}: expected a list of experiments (- name: ...), got {type(data).__name__}."
        )
    experiments: list[Experiment] = []
    problems: list[str] = []
    for number, entry in enumerate(data, start=1):
        name = entry.get("name") if isinstance(entry, Mapping) else None
        where = f"  {name if isinstance(name, str) else f'entry {number}'}"
        try:
            experiments.append(Experiment.model_validate(entry))
        except ValidationError as error:
            problems += [f"{where}: {line}" for line in _lines(error)]
    names = [experiment.name.lower() for experiment in experiments]
    problems += [
        f"  {name}: two experiments have this name" for name in names if names.count(name) > 1
    ]
    queue = Queue(tuple(experiments), planned_runs(experiments))
    problems += _folder_problems(queue.runs)
    problems += _flag_problems(queue.runs)
    if problems:
        raise ConfigError(f"{path}:\n" + "\n".join(dict.fromkeys(problems)))
    return queue


def _folder_problems(planned: Iterable[PlannedRun]) -> Iterator[str]:
    first: dict[str, PlannedRun] = {}
    for each in planned:
        other = first.setdefault(each.name.lower(), each)
        if other.env != each.env:
            yield (
                f"  {each.experiment}: the games {other.env!r} and {each.env!r} would have one run "
                "folder, as a name in a path is cut, has - in the place of other characters, and "
                "may not differ in capitals alone. Give one of them an entry of its own"
            )


def _flag_problems(runs: list[PlannedRun]) -> Iterator[str]:
    checked: set[tuple[str, str]] = set()
    for run in runs:
        # Each arm and each game once: a check takes 25 ms.
        parts = {(run.experiment, f"arm {run.arm}"), (run.experiment, f"game {run.env}")}
        if parts <= checked:
            continue
        checked |= parts
        try:
            parsed = parse(run.arguments())
        except ConfigError as error:
            for line in str(error).splitlines():
                yield f"  {run.experiment}, {run.arm}: {line}"
            continue
        for name, reason in REFUSED_FLAGS.items():
            if getattr(parsed, name) is not None:
                yield f"  {run.experiment}, {run.arm}: sets --{name}: {reason}"


def _lines(error: ValidationError) -> Iterator[str]:
    for problem in error.errors():
        # A key that is no text is shown by pydantic itself, in full.
        place = ".".join(
            shown_text(str(part), MAX_SHOWN) for part in problem["loc"] if part != "[key]"
        )
        message = problem["msg"].removeprefix("Value error, ")
        got = (
            ""
            if problem["type"] in ("missing", "value_error")
            else f", got {shown(problem['input'], MAX_SHOWN)}"
        )
        yield f"{place}: {message}{got}" if place else f"{message}{got}"


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, bool) else json.dumps(value)
