"""Writes the tables of docs/results.md, and the list of everything that was tried.

    python -m research.tables

A table stands in the page between `<!-- table: NAME -->` and `<!-- end -->`. What is in it says
research/tables.yaml: rows of runs, and columns, each a figure of these runs. A row names its runs
as `folder/arm_game:seeds` below research/results; without seeds it is all that there are, and
`{game}` is the game of the column. What can be a column:

    each area 400_000        the figure of each seed, in the order of seeds
    mean end                 its mean; likewise min, max
    difference area {steps}  the mean of the row's runs minus that of `against`, and its 95 %
                             interval (Welch), or with a single seed its ratio to that
    log area {steps}         the logarithm of the ratio of the row's mean to that of `against`
    rule area {steps}        its mean over the eight games by which a default is chosen, and the
                             95 % interval of this mean (bootstrap of the seeds)
    ... @Breakout            at its end: in this game

A row may compare with other runs at another step (`against_steps`) or by a `figure` of its own:
`return-with ARM`, the return at the time at which ARM, which was started beside it, was at its end.

The figures: `area N` (mean return over the first N agent steps), `late-area N` (over the second
half of them), `return N`, `end`, `best`, `minutes`, `minutes-to R`, `steps-to R` (in millions,
until the return is R), and `tests` (the mean of the test games). A row `left <file>: <group>` is
how much of the score in a game a group of a forgetting experiment has kept, in percent, by its test
games.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import yaml

from ritornello.analysis.runs import Run, find_runs
from ritornello.analysis.statistics import Estimate, difference, interval
from ritornello.core import markdown

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PAGE = HERE.parent / "docs" / "results.md"
TRIED = HERE / "tried.md"
BLOCK = re.compile(r"<!-- table: (\S+) -->\n.*?<!-- end -->", re.DOTALL)
ATARI = "NoFrameskip-v4"
EIGHT_GAMES = (
    "Pong", "Breakout", "SpaceInvaders", "Seaquest",
    "DemonAttack", "NameThisGame", "Carnival", "AirRaid",
)  # fmt: skip
BEFORE = "two games"  # the group of a forgetting experiment from which the others go on


# --- runs and their figures ----------------------------------------------------------------------


@cache
def read(path: Path) -> Run:
    """Return the run of one CSV file."""
    (run,), _ = find_runs([str(path)])
    return run


def runs_of(spec: str | Sequence[str], game: str) -> list[Run]:
    """Return the runs that a row names, by seed within each of its parts.

    Args:
      spec: `folder/arm_game` or `folder/arm_game:4,5,6`, or several of these.
      game: for `{game}`.
    """
    if not isinstance(spec, str):
        return [run for part in spec for run in runs_of(part, game)]
    name, _, seeds = spec.replace("{game}", game).partition(":")
    runs = [read(path) for path in sorted(RESULTS.glob(f"{name}*_seed*.csv"))]
    wanted = {int(seed) for seed in seeds.split(",")} if seeds else None
    return [run for run in runs if wanted is None or run.about.seed in wanted]


def figure(run: Run, what: str, number: float) -> float:
    """Return one figure of a run; see the module.

    Raises:
      ValueError: if the run does not reach so far, or there is no such figure.
    """
    curve = run.curve
    last = float(curve.agent_steps[-1])
    if what in ("area", "late-area", "return"):
        if number > 1.01 * last:
            raise ValueError(f"{run.source} ends after {last:,.0f} steps, not {number:,.0f}")
        number = min(number, last)
        if what == "late-area":  # of the second half of the steps
            return 2 * curve.area(number) - curve.area(number / 2)
        return curve.area(number) if what == "area" else curve.at_steps(number)
    if what in ("minutes-to", "steps-to"):
        first = int(np.argmax(curve.mean_return >= number))
        if curve.mean_return[first] < number:
            return float("nan")
        return float(
            curve.wall_s[first] / 60 if what == "minutes-to" else curve.agent_steps[first] / 1e6
        )
    if what == "tests":
        return fmean(test_returns(run.source.parent / "test_games.csv", run))
    if what == "best":
        return float(run.about.best or np.nan)
    if what in ("end", "minutes"):
        return float(curve.mean_return[-1] if what == "end" else curve.wall_s[-1] / 60)
    raise ValueError(f"there is no figure {what!r}")


def beside(run: Run, arm: str) -> float:
    """Return a run's return at the time at which another arm, started with it, was at its end."""
    (other,) = RESULTS.glob(
        f"{run.source.parent.name}/{arm}_{run.about.env}_seed{run.about.seed}.csv"
    )
    return run.curve.at_seconds(float(read(other).curve.wall_s[-1]))


def test_returns(path: Path, run: Run) -> list[float]:
    """Return the returns of the test games of a run."""
    with open(path, encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["env"] == run.about.env]
    return [
        float(x["return_raw"]) for x in rows if int(x.get("seed", run.about.seed)) == run.about.seed
    ]


def left(spec: str, game: str) -> list[float]:
    """Return the percent that each seed of a group has left of its score before, in a game."""
    path, group = spec.removeprefix("left ").split(": ")
    scores: dict[tuple[str, str], list[float]] = defaultdict(list)
    with open(RESULTS / path, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["env"] == game + ATARI:
                scores[row["group"], row["seed"]].append(float(row["return_raw"]))
    seeds = sorted(seed for found, seed in scores if found == group)
    return [100 * fmean(scores[group, x]) / fmean(scores[BEFORE, x]) for x in seeds]


# --- tables --------------------------------------------------------------------------------------


def values_of(spec: str | Sequence[str], column: Sequence[str], game: str) -> list[float]:
    """Return the figure of each run of a row; none if it has no run of this game.

    Args:
      spec: the runs.
      column: the figure, and its number if it has one.
      game: for `{game}`.
    """
    if isinstance(spec, str) and spec.startswith("left "):
        return left(spec, game)
    what, number = column[0], column[1] if len(column) > 1 else "0"
    return [
        beside(run, number) if what == "return-with" else figure(run, what, float(number))
        for run in runs_of(spec, game)
    ]


def cell(row: Mapping[str, Any], column: str, digits: int | None) -> str:
    """Return the text of one cell."""
    text, _, game = column.partition(" @")
    how, *what = text.format(steps=row.get("steps", ""), game=game).split()
    if how == "steps":
        steps = row["steps"]
        return steps if isinstance(steps, str) else f"{steps / 1e6:g} M"
    what = row["figure"].split() if "figure" in row else what
    if how == "rule":
        return by_the_rule(row, what)
    values = values_of(row["runs"], what, game)
    if not values:
        return ""
    if how == "each":
        digits = decimals(max(map(abs, values))) if digits is None else digits
        return ", ".join(shown(value, digits) for value in values)
    if how == "difference":
        return compared(values, others_of(row, what, game), digits)
    if how == "log":
        return f"{log_ratio(game, fmean(values), fmean(others_of(row, what, game))):.2f}"
    return shown({"mean": fmean, "min": min, "max": max}[how](values), digits)


def others_of(row: Mapping[str, Any], what: Sequence[str], game: str) -> list[float]:
    """Return the figure of each run that a row is compared with."""
    against = [what[0], str(row["against_steps"])] if "against_steps" in row else what
    return values_of(row["against"], against, game)


def log_ratio(game: str, ours: Any, theirs: Any) -> Any:
    """Return the logarithm of the ratio of two mean returns (numbers or arrays) in a game."""
    plus = 21.0 if game == "Pong" else 0.0  # Pong's are -21 to 21
    # Which run leaves the plateau of Carnival is luck, and then has three times its return.
    most = 0.5 if game == "Carnival" else np.inf
    return np.minimum(np.log((ours + plus) / (theirs + plus)), most)


def by_the_rule(row: Mapping[str, Any], what: Sequence[str]) -> str:
    """Return the score by which a default is chosen: over the eight games, with its interval."""
    ours = [np.array(values_of(row["runs"], what, game)) for game in EIGHT_GAMES]
    theirs = [np.array(others_of(row, what, game)) for game in EIGHT_GAMES]

    def score(*strata: np.ndarray, axis: int) -> np.ndarray:
        means = [runs.mean(axis=axis) for runs in strata]
        pairs = zip(EIGHT_GAMES, means[: len(ours)], means[len(ours) :], strict=True)
        return np.mean([log_ratio(*one) for one in pairs], axis=0)

    mean, bounds = score(*ours, *theirs, axis=0), interval([*ours, *theirs], score)
    return f"{mean:.3f}" + ("" if bounds is None else f" [{bounds[0]:.3f}, {bounds[1]:.3f}]")


def compared(values: Sequence[float], others: Sequence[float], digits: int | None) -> str:
    """Return a difference of means with its interval; with a single seed, the ratio of means."""
    if len(values) < 2:
        return f"× {fmean(values) / fmean(others):.2f}"
    found: Estimate = difference(values, others)
    assert found.low is not None
    assert found.high is not None
    ends = (found.value, found.low, found.high)
    digits = decimals(max(map(abs, ends))) if digits is None else digits
    return "{} [{}, {}]".format(*(shown(end, digits) for end in ends))


def decimals(value: float) -> int:
    """Return how many decimals are shown of a value of this size."""
    return 1 if abs(value) < 100 else 0


def shown(value: float, digits: int | None) -> str:
    """Return a number as tables show it."""
    if np.isnan(value):
        return "not reached"
    return f"{value:.{decimals(value) if digits is None else digits}f}"


def table_of(spec: Mapping[str, Any], groups: Mapping[str, Any]) -> list[str]:
    """Return the lines of a table."""
    rows = []
    for name, row in spec["rows"].items():
        row = row if isinstance(row, Mapping) else {"runs": row}
        row = {"steps": spec.get("steps", ""), "against": spec.get("against")} | dict(row)
        for key in ("runs", "against"):
            row[key] = groups.get(row[key], row[key]) if isinstance(row[key], str) else row[key]
        cells = [cell(row, column, spec.get("digits")) for column in spec["columns"].values()]
        if not any(cells):
            raise ValueError(f"there are no runs for {name!r}")
        rows.append((name, *cells))
    return markdown.table((spec["of"], *spec["columns"]), rows)


def page(text: str) -> str:
    """Return a page with its tables as the files have them."""
    data = yaml.safe_load((HERE / "tables.yaml").read_text("utf-8"))

    def block(match: re.Match[str]) -> str:
        lines = table_of(data["tables"][match[1]], data["groups"])
        return "\n".join([f"<!-- table: {match[1]} -->", *lines, "<!-- end -->"])

    return BLOCK.sub(block, text)


# --- everything that was tried -------------------------------------------------------------------


def entries() -> dict[str, Mapping[str, Any]]:
    """Return the experiments of the queue, and those that are decided, by name."""
    files = [HERE / name for name in ("queue.yaml", "decided.yaml")]
    return {one["name"]: one for file in files for one in yaml.safe_load(file.read_text("utf-8"))}


def words_of(entry: Mapping[str, Any]) -> list[str]:
    """Return what an experiment asked, and its answer if it is decided, as Markdown."""
    answer = entry.get("answer", "not decided yet.")
    return [
        " ".join(entry["question"].split()),
        "",
        f"**Answer**: {' '.join(answer.split())}",
        "",
    ]


def tried() -> str:
    """Return tried.md: each experiment, what it asked, what its runs showed, and the answer."""
    asked = entries()
    lines = [
        "# Everything that was tried",
        "",
        "Written by `make docs`; do not edit. Of each arm and game: the mean over the seeds of the",
        "mean return over the steps that all reached (area), and of the return at the end. Runs",
        "that were stopped long before the others of their arm have a line of their own.",
        "[decided.yaml](decided.yaml) has what was to count, written before the runs, and",
        "[docs/results.md](../docs/results.md) says what is known by them.",
    ]
    for folder in sorted(path for path in RESULTS.iterdir() if path.is_dir()):
        arms: dict[tuple[str, str], list[Run]] = defaultdict(list)
        for run in map(read, sorted(folder.glob("*_seed*.csv"))):
            arms[run.about.env.removesuffix(ATARI), run.about.label].append(run)
        if not arms:
            continue
        rows = [
            (game, arm, *summary(part))
            for (game, arm), runs in sorted(arms.items())
            for part in by_length(runs)
        ]
        head = ("game", "arm", "seeds", "steps", "area", "return")
        text = words_of(asked[folder.name]) if folder.name in asked else []
        lines += ["", f"## {folder.name}", "", *text, *markdown.table(head, rows)]
    return "\n".join(lines) + "\n"


def by_length(runs: Sequence[Run]) -> list[list[Run]]:
    """Return the runs, and apart from them those that are not a quarter of the longest."""
    least = max(run.curve.agent_steps[-1] for run in runs) / 4
    long = [run for run in runs if run.curve.agent_steps[-1] >= least]
    short = [run for run in runs if run.curve.agent_steps[-1] < least]
    return [long, short] if short else [long]


def summary(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return seeds, common steps, mean area and mean return at the end of the runs of an arm."""
    steps = min(float(run.curve.agent_steps[-1]) for run in runs)
    seeds = ", ".join(str(seed) for seed in sorted({run.about.seed for run in runs}))
    areas = fmean(figure(run, "area", steps) for run in runs)
    ends = fmean(figure(run, "end", 0) for run in runs)
    return seeds, f"{steps / 1e6:.2f} M", f"{areas:.4g}", f"{ends:.4g}"


def pages() -> dict[Path, str]:
    """Return the content of each page as it has to be."""
    return {PAGE: page(PAGE.read_text("utf-8")), TRIED: tried()}


if __name__ == "__main__":
    for path, content in pages().items():
        path.write_text(content, "utf-8")
