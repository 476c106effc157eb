"""A sequence of runs as data: what is varied, over which seeds; and its expansion to runs.

    name: compare_replay
    about: One sentence, shown by --list.
    base:                      flags of every run
      env: PongNoFrameskip-v4
    seeds: [1, 2, 3]           each group is run once per seed
    runs:                      groups, by name, each with the flags that make it different
      - name: queue
        flags: {batch_size: 8}
    grid:                      and/or: one group per combination of these values
      lr: [0.0005, 0.001]
    test:                      after each run, all its checkpoints are tested with these flags
      test_episode_count: 20
    at_once: 3                 so many runs at the same time; left out: 1

Flags have the names that `python main.py --help=all` lists. A run may start from the weights of an
earlier one, that of the same seed: `load_model_url: {run: queue}`. With `op_mode: train_w_load`
beside that it goes on from it: steps, optimiser and statistics are kept, and so is what is in the
replay, for which the earlier run needs `save_replay: true`; `load_replay: false` goes on without.
Next to read: runner.py.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ritornello.core.errors import ConfigError
from ritornello.core.nearest_names import did_you_mean
from ritornello.core.plain_data import read_text, shown, shown_text
from ritornello.core.plain_yaml import parse_yaml
from ritornello.flags.kinds import MAX_AGENTS
from ritornello.flags.names import named_flags
from ritornello.sequences.forms import MAX_NAME, Form, Name, Seeds, checked

SHIPPED = Path(__file__).resolve().parent
MAX_RUNS = 2_000  # with their tests; of more, sequence.json could grow too large to be read again
MAX_PLAN_BYTES = 200_000  # PyYAML reads about as many in a second
TEST_FLAGS = {"op_mode": "test", "test_all_checkpoints": True}

AtOnce = Annotated[int, Field(ge=1, le=MAX_AGENTS)]


class _NamedFlags(Form):
    name: str
    flags: dict[str, Any] = Field({})


class _PlanFile(Form):
    """The keys of a sequence's file."""

    name: Name | None = None
    about: str = ""
    base: dict[str, Any] = Field({})
    seeds: Seeds = Field([1])
    runs: list[_NamedFlags] = Field([_NamedFlags(name="", flags={})], min_length=1)
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field({})
    test: dict[str, Any] | None = None
    at_once: AtOnce = 1


@dataclass(frozen=True)
class PlannedRun:
    """One run: the flags it gives to main.py, and the group that it is averaged with."""

    group: str
    seed: int
    flags: dict[str, Any]  # load_model_url may be {"run": group}, see `source_of`


@dataclass(frozen=True)
class Plan:
    """A sequence, expanded."""

    name: str
    about: str
    runs: tuple[PlannedRun, ...]
    at_once: int = 1


def load_plan(name_or_path: str) -> Plan:
    """Read a sequence: the name of a shipped one, or the path of a YAML file.

    Raises:
      ConfigError: if there is no such sequence or it is malformed.
    """
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        if name_or_path not in shipped_plans():
            files = [path.name for path in Path().glob("*.y*ml")]
            hint = shown_text(did_you_mean(name_or_path, [*files, *shipped_plans()]))
            raise ConfigError(
                f"--sequence={shown_text(name_or_path)}: there is no such sequence"
                f"{f', {hint}' if hint else '.'} Give one of "
                f"{', '.join(sorted(shipped_plans()))}, or the path of a .yaml file."
            )
        path = shipped_plans()[name_or_path]
    where = shown_text(str(path))
    text = read_text(path, "the sequence", MAX_PLAN_BYTES)
    return parse_plan(parse_yaml(text, where), default_name=path.stem, where=where)


def shipped_plans() -> dict[str, Path]:
    """Return name -> file of the sequences that come with the program."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.yaml"))}


def parse_plan(data: Any, *, default_name: str, where: str) -> Plan:
    """Check a sequence and expand it: groups x grid, once per seed.

    Seeds are the outermost loop, points of the grid the next, so that a sequence stopped half-way
    still has runs to compare: of one seed, and of one game.

    Raises:
      ConfigError: the message names the key that is wrong, and the nearest right one.
    """
    file = checked(_PlanFile, data, where)
    base = named_flags(file.base, f"{where}: base")
    points = [dict(zip(file.grid, values, strict=True)) for values in _product(file, where)]
    groups: dict[str, dict[str, Any]] = {}
    for point in points:
        for run in file.runs:
            chosen = (f"{key}={_short(value, file.grid[key])}" for key, value in point.items())
            varied = [run.name, *chosen]
            group = " ".join(part for part in varied if part) or "run"
            if group in groups:
                raise ConfigError(f"{where}: there are two groups named {shown(group)}.")
            own = named_flags(run.flags, f"{where}: {shown(run.name)}")
            groups[group] = {**base, **own, **named_flags(point, f"{where}: grid")}
            _resolve_source(groups, group, varied[1:], where)
            if file.test is not None and not is_test(groups[group]):
                of_test = {**TEST_FLAGS, **named_flags(file.test, f"{where}: test")}
                groups[f"test {group}"] = {**of_test, "load_model_url": {"run": group}}
    for group, flags in groups.items():
        if len(group) > MAX_NAME:
            raise ConfigError(
                f"{where}: the group {shown(group)} has {len(group)} characters, expected at most "
                f"{MAX_NAME}: give its run a shorter name, or the grid fewer flags."
            )
        if "seed" in flags:
            raise ConfigError(f"{where}: {shown(group)} sets the flag seed; list them under seeds.")
    _check_replay_is_saved(groups, where)
    runs = [
        PlannedRun(group, seed, {**flags, "seed": seed})
        for seed in file.seeds
        for group, flags in groups.items()
    ]
    return Plan(file.name or default_name, file.about, tuple(runs), file.at_once)


def source_of(flags: Mapping[str, Any]) -> str | None:
    """Return the group whose weights a run starts from or tests, None if it needs no other run."""
    url = flags.get("load_model_url")
    if not isinstance(url, Mapping) or url.keys() != {"run"}:
        return None
    return str(url["run"])


def goes_on(flags: Mapping[str, Any]) -> bool:
    """Whether a run goes on from an earlier one, in a folder of its own, with all of its state."""
    return flags.get("op_mode") == "train_w_load" and source_of(flags) is not None


def is_test(flags: Mapping[str, Any]) -> bool:
    """Whether a run plays with trained weights instead of training."""
    return flags.get("op_mode") == "test"


def _resolve_source(
    groups: dict[str, dict[str, Any]], group: str, point: Sequence[str], where: str
) -> None:
    """Replace the group that a group starts from by the one at the same point of the grid."""
    url = groups[group].get("load_model_url")
    if not isinstance(url, Mapping):
        return
    name = url.get("run")
    if url.keys() != {"run"} or not isinstance(name, str):
        raise ConfigError(
            f"{where}: {shown(group)} has load_model_url {shown(url)}, expected a path or "
            "{run: name}."
        )
    earlier = [other for other in groups if other != group]
    at_same_point = " ".join([name, *point])
    found = next((other for other in (at_same_point, name) if other in earlier), None)
    if found is None:
        raise ConfigError(
            f"{where}: {shown(group)} starts from {shown(name)}, but no earlier run has that name "
            f"(earlier: {shown_text(', '.join(earlier)) or 'none'}). {did_you_mean(name, earlier)}"
        )
    if is_test(groups[found]):
        raise ConfigError(
            f"{where}: {shown(group)} starts from {shown(name)}, which only tests and makes no "
            "weights: expected the name of a run that is trained."
        )
    groups[group]["load_model_url"] = {"run": found}


def _check_replay_is_saved(groups: Mapping[str, Mapping[str, Any]], where: str) -> None:
    """Raise ConfigError if a run goes on with a replay which the run before it does not save.

    It would begin with an empty one, and nobody would be told.
    """
    for group, flags in groups.items():
        source = groups.get(source_of(flags) or "")
        if not goes_on(flags) or source is None or not flags.get("load_replay", True):
            continue
        if not any(source.get(name) for name in ("save_replay", "reproducible")):
            raise ConfigError(
                f"{where}: {shown(group)} goes on from {shown(source_of(flags))}, which does not "
                f"save what is in its replay: expected save_replay: true there, or load_replay: "
                f"false in {shown(group)}, which then begins with an empty replay."
            )


def _product(file: _PlanFile, where: str) -> list[tuple[Any, ...]]:
    """Return the points of the grid; refuse more than fit into memory."""
    count = len(file.runs) * len(file.seeds) * (1 if file.test is None else 2)
    for values in file.grid.values():
        count *= len(values)
    if count > MAX_RUNS:
        raise ConfigError(f"{where} makes {count:,} runs, expected at most {MAX_RUNS:,}.")
    return list(itertools.product(*file.grid.values()))


def _short(value: Any, among: Sequence[Any]) -> str:
    """Return a value of a grid as text, cut if that tells it from all others."""
    text, *texts = (
        each if isinstance(each, str) else json.dumps(each, ensure_ascii=False)
        for each in (value, *among)
    )
    is_told = sum(each[:21] == text[:21] for each in texts) == 1
    return text[:21] + "..." if len(text) > 24 and is_told else text
