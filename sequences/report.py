"""Compares the groups of a sequence: a table (terminal, Markdown, CSV) and one figure.

The score of a run is its mean return over the last 100 games at the largest number of agent steps
that every compared run has reached. The score of a group is the interquartile mean over its seeds
(the mean of the middle half: robust as the median, with less spread) with a 95 % percentile
bootstrap interval, as Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical
Precipice" (2021), https://arxiv.org/abs/2108.13264, recommend for few seeds.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text
from scipy import stats

from agent.atomic_file import atomic_path, write_text
from core.plain_data import shown_text
from sequences.curves import Curve, read_curve
from sequences.plan import is_test
from sequences.runner import RunState, SequenceFolder
from sequences.scores import write_scores

CURVE_POINTS = 200


@dataclass(frozen=True)
class GroupScore:
    """The row of one group in the comparison."""

    group: str
    runs_done: int
    runs_planned: int
    scores: tuple[float, ...]  # one per compared run
    score: float | None  # interquartile mean
    low: float | None  # 95 % interval; None with a single seed
    high: float | None
    best: float | None  # best single game of all seeds
    steps_per_s: float | None


@dataclass(frozen=True)
class Comparison:
    """Everything that the tables and the figure show."""

    name: str
    agent_steps: float  # at which the scores are taken
    groups: tuple[GroupScore, ...]
    curves: dict[str, list[Curve]]  # by group
    runs: tuple[tuple[RunState, Curve | None], ...]


def interquartile_mean(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Return the mean without the lowest and highest quarter along `axis`."""
    return np.asarray(stats.trim_mean(values, 0.25, axis=axis))


def interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the 95 % bootstrap interval of the interquartile mean over axis 0.

    Args:
      values: [seeds, ...] float64.

    Returns:
      (low, high), each `[...]`; None with fewer than two seeds, of which nothing can be said.
    """
    if len(values) < 2:
        return None
    result = stats.bootstrap(
        (values,),
        interquartile_mean,
        axis=0,
        vectorized=True,
        n_resamples=2000,
        batch=100,
        method="percentile",
        # The same runs give the same interval.
        rng=np.random.default_rng(0),
    )
    return result.confidence_interval.low, result.confidence_interval.high


def compare(folder: SequenceFolder) -> Comparison:
    """Read the results of every run and score the groups.

    Finished runs are compared; while there are none, those that are under way.
    """
    trained = [run for run in folder.runs if not is_test(run.flags)]
    runs = []
    for run in trained:
        files = [made.metrics_file for made in folder.run_folders(run)]
        runs.append((run, read_curve(files)))
    done = [(run, curve) for run, curve in runs if curve is not None and run.status == "done"]
    compared = done or [(run, curve) for run, curve in runs if curve is not None]
    agent_steps = min((float(curve.agent_steps[-1]) for _, curve in compared), default=0.0)
    curves: dict[str, list[Curve]] = {}
    for run, curve in compared:
        curves.setdefault(run.group, []).append(curve)
    groups = []
    for group in dict.fromkeys(run.group for run in trained):
        members = [run for run in trained if run.group == group]
        groups.append(_score(group, members, curves.get(group, []), agent_steps))
    return Comparison(folder.name, agent_steps, tuple(groups), curves, tuple(runs))


def _score(
    group: str, members: Sequence[RunState], curves: Sequence[Curve], agent_steps: float
) -> GroupScore:
    scores = np.array([curve.at_steps(agent_steps) for curve in curves])
    bounds = interval(scores)
    bests = [curve.best for curve in curves if curve.best is not None]
    speeds = [curve.agent_steps[-1] / max(curve.wall_s[-1], 1e-9) for curve in curves]
    return GroupScore(
        group=group,
        runs_done=sum(run.status == "done" for run in members),
        runs_planned=len(members),
        scores=tuple(float(score) for score in scores),
        score=float(interquartile_mean(scores)) if curves else None,
        low=None if bounds is None else float(bounds[0]),
        high=None if bounds is None else float(bounds[1]),
        best=max(bests, default=None),
        steps_per_s=float(np.mean(speeds)) if speeds else None,
    )


CSV_HEADINGS = (
    *("run", "group", "seed", "status", "exit_code", "seconds", "agent_steps"),
    *("score_agent_steps", "score", "final_mean_return_100", "best_return"),
)
HEADINGS = ("group", "runs", "score", "95 % interval", "best game", "agent steps/s")


def rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """Return the comparison as text, one row per group under `HEADINGS`, the best first."""
    ranked = sorted(
        comparison.groups, key=lambda g: -np.inf if g.score is None else g.score, reverse=True
    )
    return [
        (
            shown_text(g.group),
            f"{g.runs_done}/{g.runs_planned}",
            _number(g.score),
            "-" if g.low is None else f"{_number(g.low)} to {_number(g.high)}",
            _number(g.best),
            _number(g.steps_per_s, digits=0),
        )
        for g in ranked
    ]


def caption(comparison: Comparison) -> str:
    """Return the sentence that says what the scores are."""
    return (
        f"{shown_text(comparison.name)}: interquartile mean over seeds of the mean return of the "
        f"last 100 games, at {comparison.agent_steps:,.0f} agent steps"
    )


def rich_table(comparison: Comparison) -> Table:
    """Return the comparison for the terminal."""
    # As `Text`, in which nothing is markup: groups have whatever names their authors gave them.
    table = Table(*HEADINGS, title=Text(caption(comparison), style="table.title"))
    for row in rows(comparison):
        table.add_row(*map(Text, row))
    return table


def write_report(folder: SequenceFolder) -> Comparison:
    """Write table.md, table.csv (one line per run) and comparison.png; return the comparison.

    If the sequence tests its runs, scores.md too (sequences/scores.py).
    """
    comparison = compare(folder)
    lines = [caption(comparison), "", _markdown_row(HEADINGS), _markdown_row(["---"] * 6)]
    lines += [_markdown_row(row) for row in rows(comparison)]
    write_text(folder.path / "table.md", "\n".join(lines) + "\n")
    write_text(folder.path / "table.csv", _csv(comparison))
    if comparison.curves:
        draw(comparison, folder)
    write_scores(folder)
    return comparison


def _csv(comparison: Comparison) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_HEADINGS)
    for run, curve in comparison.runs:
        row: list[object] = [run.name, run.group, run.seed, run.status, run.exit_code, run.seconds]
        if curve is not None:
            row += [curve.agent_steps[-1], comparison.agent_steps]
            row += [curve.at_steps(comparison.agent_steps), curve.mean_return[-1], curve.best]
        writer.writerow(row)
    return text.getvalue()


def draw(comparison: Comparison, folder: SequenceFolder) -> None:
    """Draw comparison.png: scores with intervals, curves against steps and against time."""
    # Lazily, and without pyplot: no global figure, no window, no display needed.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 5), layout="constrained")
    FigureCanvasAgg(figure)
    bars, by_steps, by_time = figure.subplots(1, 3)
    scored = [g for g in comparison.groups if g.score is not None]
    for place, g in enumerate(scored):
        colour = f"C{place % 10}"
        if g.low is not None and g.high is not None:
            bars.hlines(place, g.low, g.high, color=colour, linewidth=6, alpha=0.4)
        bars.plot(g.scores, [place] * len(g.scores), "|", color=colour, markersize=14)
        bars.plot([g.score], [place], "o", color=colour)
        curves = comparison.curves[g.group]
        _band(by_steps, curves, lambda curve: curve.agent_steps, _plain(g.group), colour)
        _band(by_time, curves, lambda curve: curve.wall_s / 60, _plain(g.group), colour)
    bars.set_yticks(range(len(scored)), [_plain(g.group) for g in scored])
    bars.invert_yaxis()
    bars.set_xlabel(f"mean return at {comparison.agent_steps:,.0f} agent steps")
    bars.set_title("interquartile mean, 95 % interval, seeds")
    by_steps.set_xlabel("agent steps")
    by_time.set_xlabel("wall-clock, minutes")
    for axes in (by_steps, by_time):
        axes.set_ylabel("mean return of the last 100 games, raw")
        axes.grid(alpha=0.3)
    by_steps.legend(fontsize="small")
    figure.suptitle(_plain(comparison.name))
    with atomic_path(folder.path / "comparison.png") as temporary:
        figure.savefig(temporary, format="png", dpi=120)


def _band(
    axes: Any,
    curves: Sequence[Curve],
    abscissa: Callable[[Curve], np.ndarray],
    label: str,
    colour: str,
) -> None:
    """Draw the interquartile mean of a group over the range that all its seeds cover."""
    start = max(float(abscissa(curve)[0]) for curve in curves)
    end = min(float(abscissa(curve)[-1]) for curve in curves)
    if end <= start:
        return
    x = np.linspace(start, end, CURVE_POINTS)
    y = np.stack([np.interp(x, abscissa(curve), curve.mean_return) for curve in curves])
    axes.plot(x, interquartile_mean(y), color=colour, label=label)
    bounds = interval(y)
    if bounds is not None:
        axes.fill_between(x, *bounds, color=colour, alpha=0.15, linewidth=0)


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _plain(text: str) -> str:
    """Return text for a figure, in which dollars would begin a formula; short, to leave it room."""
    return shown_text(text, 60).replace("$", r"\$")
