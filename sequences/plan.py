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

Flags have the names that `python main.py --help` lists. A run may start from the weights of an
earlier one, that of the same seed: `load_model_url: {run: queue}`. Next to read: runner.py.
"""

from __future__ import annotations

import difflib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from core.errors import ConfigError

SHIPPED = Path(__file__).resolve().parent
KEYS = ("name", "about", "base", "seeds", "runs", "grid", "test")
TEST_FLAGS = {"op_mode": "test", "test_all_checkpoints": True}


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


def load_plan(name_or_path: str) -> Plan:
    """Read a sequence: the name of a shipped one, or the path of a YAML file.

    Raises:
      ConfigError: if there is no such sequence or it is malformed.
    """
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        path = SHIPPED / f"{name_or_path}.yaml"
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        names = ", ".join(sorted(shipped_plans()))
        raise ConfigError(
            f"--sequence={name_or_path}: cannot read {path} ({error.strerror}). Give one of "
            f"{names}, or the path of a .yaml file."
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    return parse_plan(data, default_name=path.stem, where=str(path))


def shipped_plans() -> dict[str, Path]:
    """Return name -> file of the sequences that come with the program."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.yaml"))}


def parse_plan(data: Any, *, default_name: str, where: str) -> Plan:
    """Check a sequence and expand it: groups x grid, once per seed.

    Seeds are the outermost loop, points of the grid the next, so that a sequence stopped half-way
    still has runs to compare: of one seed, and of one game.

    Raises:
      ConfigError: naming the key that is wrong, and the nearest right one.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where}: expected a mapping with {', '.join(KEYS)}, got {data!r}.")
    _check_keys(data, KEYS, where)
    base = _mapping(data.get("base"), f"{where}: base")
    seeds = data.get("seeds", [1])
    if not _is_list(seeds) or not all(type(seed) is int and seed >= 0 for seed in seeds):
        raise ConfigError(f"{where}: seeds is {seeds!r}, expected a list of integers from 0.")
    test = None if data.get("test") is None else _mapping(data["test"], f"{where}: test")
    named_runs = _named_runs(data.get("runs"), where)
    groups: dict[str, dict[str, Any]] = {}
    for point in _grid_points(_mapping(data.get("grid"), f"{where}: grid"), where):
        for run_name, run_flags in named_runs:
            varied = [run_name, *(f"{key}={_short(value)}" for key, value in point.items())]
            group = " ".join(part for part in varied if part) or "run"
            if group in groups:
                raise ConfigError(f"{where}: there are two groups named {group!r}.")
            groups[group] = {**base, **run_flags, **point}
            _resolve_source(groups, group, varied[1:], where)
            if test is not None:
                groups[f"test {group}"] = {**TEST_FLAGS, **test, "load_model_url": {"run": group}}
    for group, flags in groups.items():
        if "seed" in flags:
            raise ConfigError(f"{where}: {group!r} sets the flag seed; list them under seeds.")
    runs = [
        PlannedRun(group, seed, {**flags, "seed": seed})
        for seed in dict.fromkeys(seeds)
        for group, flags in groups.items()
    ]
    return Plan(str(data.get("name", default_name)), str(data.get("about", "")), tuple(runs))


def source_of(flags: Mapping[str, Any]) -> str | None:
    """Return the group whose weights a run starts from or tests, None if it needs no other run."""
    url = flags.get("load_model_url")
    return str(url["run"]) if isinstance(url, Mapping) else None


def is_test(flags: Mapping[str, Any]) -> bool:
    """Whether a run plays with trained weights instead of training."""
    return flags.get("op_mode") == "test"


def check_flags(plan: Plan, known: Iterable[str]) -> None:
    """Raise ConfigError if a run gives a flag that main.py does not know.

    A typing error should be found before the first run, not before the last.
    """
    known = sorted(known)
    problems = {
        f"  {name} (in {run.group}){_nearest(name, known)}"
        for run in plan.runs
        for name in run.flags
        if name not in known
    }
    if problems:
        raise ConfigError(f"{plan.name} gives unknown flags:\n" + "\n".join(sorted(problems)))


def _named_runs(runs: Any, where: str) -> list[tuple[str, dict[str, Any]]]:
    if runs is None:
        return [("", {})]
    if not _is_list(runs):
        raise ConfigError(f"{where}: runs is {runs!r}, expected a list of {{name, flags}}.")
    named = []
    for index, run in enumerate(runs):
        place = f"{where}: runs[{index}]"
        if not isinstance(run, Mapping) or not isinstance(run.get("name"), str):
            raise ConfigError(f"{place} is {run!r}, expected {{name: text, flags: mapping}}.")
        _check_keys(run, ("name", "flags"), place)
        named.append((run["name"], _mapping(run.get("flags"), f"{place}: flags")))
    return named


def _resolve_source(
    groups: dict[str, dict[str, Any]], group: str, point: Sequence[str], where: str
) -> None:
    """Replace the name of the run that a group starts from by that of its group in the grid."""
    url = groups[group].get("load_model_url")
    if not isinstance(url, Mapping):
        return
    name = url.get("run")
    if url.keys() != {"run"} or not isinstance(name, str):
        raise ConfigError(
            f"{where}: {group!r} has load_model_url {url!r}, expected a path or {{run: name}}."
        )
    earlier = [other for other in groups if other != group]
    at_same_point = " ".join([name, *point])
    found = next((other for other in (at_same_point, name) if other in earlier), None)
    if found is None:
        raise ConfigError(
            f"{where}: {group!r} starts from {name!r}, but no earlier run has that name"
            f"{_nearest(name, earlier)} (earlier: {', '.join(earlier) or 'none'})."
        )
    groups[group]["load_model_url"] = {"run": found}


def _grid_points(grid: dict[str, Any], where: str) -> list[dict[str, Any]]:
    for key, values in grid.items():
        if not _is_list(values):
            raise ConfigError(f"{where}: grid: {key} is {values!r}, expected a list of values.")
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ConfigError(f"{where} is {value!r}, expected a mapping of flag: value.")
    return dict(value)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 24 else text[:21] + "..."


def _check_keys(data: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    known = list(known)
    for key in data:
        if key not in known:
            raise ConfigError(
                f"{where}: unknown key {key!r}{_nearest(str(key), known)} (keys: "
                f"{', '.join(known)})."
            )


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    return f": did you mean {near[0]}?" if near else ""
