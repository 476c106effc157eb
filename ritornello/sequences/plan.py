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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ritornello.core.errors import ConfigError
from ritornello.core.nearest_names import did_you_mean
from ritornello.core.plain_data import read_text, shown, shown_text
from ritornello.core.plain_yaml import parse_yaml
from ritornello.flags.values import MAX_AGENTS

SHIPPED = Path(__file__).resolve().parent
KEYS = ("name", "about", "base", "seeds", "runs", "grid", "test", "at_once")
MAX_RUNS = 10_000
MAX_PLAN_BYTES = 200_000  # PyYAML reads about as many in a second
MAX_PROBLEMS_SHOWN = 10
MAX_GROUP_LENGTH = 300  # characters of the name of a group or a sequence
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
    at_once: int = 1


def load_plan(name_or_path: str) -> Plan:
    """Read a sequence: the name of a shipped one, or the path of a YAML file.

    Raises:
      ConfigError: if there is no such sequence or it is malformed.
    """
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        if name_or_path not in shipped_plans():
            raise ConfigError(
                f"--sequence={shown_text(name_or_path)}: there is no such sequence. Give one of "
                f"{', '.join(sorted(shipped_plans()))}, or the path of a .yaml file."
            )
        path = shipped_plans()[name_or_path]
    where = shown_text(str(path))
    text = read_text(path, "the sequence", MAX_PLAN_BYTES)
    data = parse_yaml(text, where)
    return parse_plan(data, default_name=path.stem, where=where)


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
        raise ConfigError(f"{where}: expected a mapping with {', '.join(KEYS)}, got {shown(data)}.")
    _check_keys(data, KEYS, where)
    base = _mapping(data.get("base"), f"{where}: base")
    seeds = data.get("seeds", [1])
    if not _is_list(seeds) or not all(type(seed) is int and seed >= 0 for seed in seeds):
        raise ConfigError(f"{where}: seeds is {shown(seeds)}, expected a list of integers from 0.")
    test = None if data.get("test") is None else _mapping(data["test"], f"{where}: test")
    named_runs = _named_runs(data.get("runs"), where)
    grid = _mapping(data.get("grid"), f"{where}: grid")
    _check_count(grid, named_runs, seeds, where)
    groups: dict[str, dict[str, Any]] = {}
    for point in _grid_points(grid):
        for run_name, run_flags in named_runs:
            varied = [run_name, *(f"{key}={_short(value)}" for key, value in point.items())]
            group = " ".join(part for part in varied if part) or "run"
            if group in groups:
                raise ConfigError(f"{where}: there are two groups named {shown(group)}.")
            groups[group] = {**base, **run_flags, **point}
            _resolve_source(groups, group, varied[1:], where)
            if test is not None:
                groups[f"test {group}"] = {**TEST_FLAGS, **test, "load_model_url": {"run": group}}
    for group, flags in groups.items():
        if "seed" in flags:
            raise ConfigError(f"{where}: {shown(group)} sets the flag seed; list them under seeds.")
    name, about = (str(data.get(key) or "") for key in ("name", "about"))
    name = name or default_name
    for text in (name, *groups):
        if len(text) > MAX_GROUP_LENGTH:
            raise ConfigError(
                f"{where}: the name {shown(text)} is too long, expected {MAX_GROUP_LENGTH} "
                "characters at most."
            )
    runs = [
        PlannedRun(group, seed, {**flags, "seed": seed})
        for seed in dict.fromkeys(seeds)
        for group, flags in groups.items()
    ]
    at_once = check_at_once(data.get("at_once", 1), f"{where}: at_once is ")
    _check_replay_is_saved(groups, where)
    return Plan(name, about, tuple(runs), at_once)


def check_at_once(value: Any, what: str) -> int:
    """Return how many runs are under way at the same time.

    Args:
      value: what a sequence or a command says.
      what: the beginning of a message about it.

    Raises:
      ConfigError: if it is no number from 1 to MAX_AGENTS.
    """
    if type(value) is not int or not 1 <= value <= MAX_AGENTS:
        raise ConfigError(f"{what}{shown(value)}, expected a number from 1 to {MAX_AGENTS}.")
    return value


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


def check_flags(
    plan: Plan,
    known: Iterable[str],
    check_values: Callable[[Mapping[str, Any]], list[str]] = lambda flags: [],
    where: str = "",
) -> None:
    """Raise ConfigError if a run gives a flag that main.py does not know, or not in this way.

    A typing error should be found before the first run, not before the last.

    Args:
      plan: the plan whose runs are checked.
      known: names of all flags.
      check_values: flags of a run -> what is wrong with each of them, a line each.
      where: the file that has the plan, for messages; by default the name of the plan.
    """
    where = where or plan.name
    known = sorted(known)
    problems = {
        f"  {shown_text(name)} (in {shown_text(run.group)}){_nearest(name, known)}"
        for run in plan.runs
        for name in run.flags
        if name not in known
    }
    if problems:
        raise ConfigError(f"{where} gives unknown flags:\n" + _listed(problems))
    problems = set()
    for run in {run.group: run for run in plan.runs}.values():  # seeds apart, they are the same
        # The name of another run stands for a path that is not known yet.
        flags = {**run.flags, **({"load_model_url": "x"} if source_of(run.flags) else {})}
        problems |= {f"  {line} (in {shown_text(run.group)})" for line in check_values(flags)}
        if len(problems) > MAX_PROBLEMS_SHOWN:
            break
    if problems:
        raise ConfigError(f"{where} gives values that no run can have:\n" + _listed(problems))


def _listed(problems: Iterable[str]) -> str:
    lines = sorted(problems)
    more = len(lines) - MAX_PROBLEMS_SHOWN
    return "\n".join(lines[:MAX_PROBLEMS_SHOWN] + [f"  and {more} more"] * (more > 0))


def _named_runs(runs: Any, where: str) -> list[tuple[str, dict[str, Any]]]:
    if runs is None:
        return [("", {})]
    if not _is_list(runs):
        raise ConfigError(f"{where}: runs is {shown(runs)}, expected a list of {{name, flags}}.")
    named = []
    for index, run in enumerate(runs):
        place = f"{where}: runs[{index}]"
        if not isinstance(run, Mapping) or not isinstance(run.get("name"), str):
            raise ConfigError(f"{place} is {shown(run)}, expected {{name: text, flags: mapping}}.")
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
            f"{where}: {shown(group)} has load_model_url {shown(url)}, expected a path or "
            "{run: name}."
        )
    earlier = [other for other in groups if other != group]
    at_same_point = " ".join([name, *point])
    found = next((other for other in (at_same_point, name) if other in earlier), None)
    if found is None:
        raise ConfigError(
            f"{where}: {shown(group)} starts from {shown(name)}, but no earlier run has that name"
            f"{_nearest(name, earlier)} (earlier: {shown_text(', '.join(earlier)) or 'none'})."
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


def _check_count(
    grid: dict[str, Any], named_runs: Sequence[Any], seeds: Sequence[int], where: str
) -> None:
    """Raise ConfigError before a grid is unfolded that has more points than fit into memory."""
    count = len(named_runs) * len(seeds)
    for key, values in grid.items():
        if not _is_list(values):
            raise ConfigError(
                f"{where}: grid: {shown_text(key)} is {shown(values)}, expected a list of values."
            )
        count *= len(values)
    if count > MAX_RUNS:
        raise ConfigError(
            f"{where}: runs, grid and seeds make {count:,} runs, expected at most {MAX_RUNS:,}."
        )


def _grid_points(grid: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ConfigError(f"{where} is {shown(value)}, expected a mapping of flag: value.")
    return dict(value)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 24 else text[:21] + "..."


def _check_keys(data: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    known = list(known)
    for key in data:
        if key not in known:
            raise ConfigError(
                f"{where}: unknown key {shown(key)}{_nearest(str(key), known)} (keys: "
                f"{', '.join(known)})."
            )


def _nearest(name: str, known: Iterable[str]) -> str:
    hint = did_you_mean(name, known)
    return f": {hint}" if hint else ""
