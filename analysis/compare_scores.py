"""Tables of tested agents, compared: `python -m analysis compare --scores=...`.

A scores.csv holds the games of every checkpoint of a run, played in test mode
(`--op_mode=test --test_all_checkpoints=True`); a scores_per_life.csv the same, life by life. The
columns model_id, model_steps, env, episode_steps and episode_return are read; others may follow.
One table is one training; tables with the same label are its repetitions with other seeds.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import numpy as np
from scipy import stats

from agent.atomic_file import atomic_path
from agent.human_scores import TABLE, anchors, human_normalised
from analysis.statistics import RESAMPLES, Estimate
from core.errors import ConfigError
from metrics.charts import COLOURS, INK, tick
from wrappers.env_ids import is_atari, rom_name

COLUMNS = ("model_id", "model_steps", "env", "episode_steps", "episode_return")
FILE = "scores.csv"
COLUMNS_OF_PANELS = 3


@dataclass(frozen=True)
class Checkpoint:
    """One model, tested in one game."""

    model_steps: int
    returns: np.ndarray  # [games] float64, raw
    lengths: np.ndarray  # [games] float64, agent steps


@dataclass(frozen=True)
class Table:
    """The checkpoints of one training in one game, the oldest first."""

    label: str
    env: str
    checkpoints: tuple[Checkpoint, ...]
    source: Path
    per_life: bool  # rows are lives, not games

    def at(self, steps: float | None) -> Checkpoint | None:
        """Return the newest checkpoint, or the newest of up to so many agent steps."""
        reached = [c for c in self.checkpoints if steps is None or c.model_steps <= steps]
        return reached[-1] if reached else None


def read_tables(places: Sequence[str]) -> list[Table]:
    """Read tables of tested agents.

    Args:
      places: each a CSV file, a folder that holds scores.csv (a run), or a pattern of such;
        `label=place` gives a label, else it is the name of the folder.

    Raises:
      ConfigError: if there is no table, one is damaged, or games and lives are mixed.
    """
    tables: list[Table] = []
    for place in places:
        # A path may hold "=" too; one that is there is no label.
        label, _, pattern = ("", "", place) if glob(place) else place.rpartition("=")
        paths = [Path(path) for path in sorted(glob(pattern))]
        files = [path / FILE if path.is_dir() else path for path in paths]
        found = [file for file in files if file.is_file()]
        if not found:
            raise ConfigError(
                f"--scores={pattern}: there is no {FILE}. Expected such a file, or a run folder "
                "with one: python main.py --op_mode=test --test_all_checkpoints=True writes it."
            )
        for file in found:
            tables += _read(file, label or file.resolve().parent.name)
    if len({table.per_life for table in tables}) > 1:
        raise ConfigError(
            "some tables hold whole games and others single lives, whose returns cannot be "
            f"compared. Give {FILE} of all runs, or scores_per_life.csv of all."
        )
    return tables


def scores_markdown(tables: Sequence[Table], at_steps: float | None = None) -> str:
    """Return the comparison as a Markdown page: a table per game, and one over games.

    Args:
      tables: of `read_tables`.
      at_steps: take the newest checkpoint of up to so many agent steps; None: the newest.

    Raises:
      ConfigError: if no table has a checkpoint of so few steps.
    """
    unit = "lives" if tables[0].per_life else "games"
    lines = [
        f"Score: mean raw return of the {unit} of one checkpoint in test mode [95 % bootstrap "
        f"interval: over {unit} where a label has one table, else over its tables]."
    ]
    if unit == "games":
        lines[0] += f" Human-normalised by the table of {TABLE}."
    cells: dict[str, dict[str, list[float]]] = {}  # label -> env -> what is drawn again
    for env in sorted({table.env for table in tables}):
        rows = _rows(tables, env, at_steps, unit, cells)
        heading = ["agent", "agent steps", "tables", unit, "return", "length in steps"]
        lines += [
            "",
            f"## {env}",
            "",
            *_table([*heading, "human-normalised"][: len(rows[0])], rows),
        ]
    known = [env for env in sorted({t.env for t in tables}) if human_normalised(env, 0) is not None]
    if len(known) > 1 and unit == "games":
        lines += ["", "## Human-normalised, mean over games", ""]
        whole = {
            label: bootstrap_mean([_normalised(env, of_env[env]) for env in known])
            for label, of_env in cells.items()
            if all(env in of_env for env in known)
        }
        best_first = sorted(whole.items(), key=lambda item: -item[1].value)
        shown = [[label, _text(estimate, percent=True)] for label, estimate in best_first]
        lines += _table(["agent", "score"], shown)
    sources = dict.fromkeys(f"* {table.label}: {table.source}" for table in tables)
    return "\n".join([*lines, "", "## Tables", "", *sources]) + "\n"


def bootstrap_mean(strata: Sequence[Sequence[float]]) -> Estimate:
    """Return the mean of the strata's means, with a 95 % percentile interval.

    Args:
      strata: one list of numbers per game, drawn again within the game. Where a list has fewer
        than two numbers, nothing can be said about the interval.
    """
    lists = [np.asarray(numbers, np.float64) for numbers in strata]
    value = float(np.mean([numbers.mean() for numbers in lists]))
    if min(map(len, lists)) < 2:
        return Estimate(value, None, None)
    rng = np.random.default_rng(0)  # the same games give the same interval
    resampled = [rng.choice(x, (RESAMPLES, len(x))).mean(1) for x in lists]
    low, high = np.quantile(np.mean(resampled, 0), (0.025, 0.975))
    return Estimate(value, float(low), float(high))


def draw_scores(tables: Sequence[Table], output: Path) -> Path:
    """Draw the mean return of each label over training, a panel per game.

    The band is the range over tables where a label has several, else the 95 % interval of the mean
    over games. A dotted line is the human level, where it is known.
    """
    # Lazily, and without pyplot: no global figure, no display.
    from matplotlib.figure import Figure

    envs = sorted({table.env for table in tables})
    labels = list(dict.fromkeys(table.label for table in tables))
    colours = {label: COLOURS[n % len(COLOURS)] for n, label in enumerate(labels)}
    columns = min(COLUMNS_OF_PANELS, len(envs))
    rows = -(-len(envs) // columns)
    size = (max(6.0, 4.2 * columns), 3.2 * rows + 0.4 + 0.2 * len(labels))
    figure = Figure(figsize=size, dpi=120, layout="constrained", facecolor="white")
    for number, env in enumerate(envs, start=1):
        axes = figure.add_subplot(rows, columns, number)
        for label in labels:
            curve = _curve([t for t in tables if (t.label, t.env) == (label, env)])
            if len(curve):
                steps, mean, low, high = curve.T
                marker = "o" if len(steps) < 30 else None
                axes.plot(steps, mean, color=colours[label], linewidth=1.8, marker=marker, ms=3)
                axes.fill_between(steps, low, high, color=colours[label], alpha=0.15, linewidth=0)
        if is_atari(env) and rom_name(env) in anchors() and not tables[0].per_life:
            axes.axhline(anchors()[rom_name(env)][1], color="#999999", linestyle=":", linewidth=1)
        axes.set_title(env, loc="left", color=INK, fontsize=10)
        axes.set_xlabel("agent steps", color=INK, fontsize=9)
        axes.tick_params(colors=INK, labelsize=8, length=0)
        axes.grid(color="#E5E5E5", linewidth=0.8)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.xaxis.set_major_formatter(lambda value, _: tick(value))
    figure.supylabel(
        f"mean raw return per {'life' if tables[0].per_life else 'game'}", color=INK, fontsize=9
    )
    for label, colour in colours.items():
        figure.axes[0].plot([], [], color=colour, linewidth=2, label=label)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9, labelcolor=INK)
    with atomic_path(output) as temporary:
        figure.savefig(temporary, format="png")
    return output


def _read(path: Path, label: str) -> list[Table]:
    """Return the tables of a file, one per game."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        names = reader.fieldnames or []
        if tuple(names[: len(COLUMNS)]) != COLUMNS:
            raise ConfigError(
                f"{path} is another table: expected the columns {','.join(COLUMNS)} first, got "
                f"{','.join(names) or 'nothing'}."
            )
        found: dict[str, dict[int, list[tuple[float, float]]]] = {}
        for row in reader:
            try:
                steps = int(row["model_steps"])
                numbers = float(row["episode_return"]), float(row["episode_steps"])
            except (ValueError, TypeError) as error:
                raise ConfigError(f"{path}, line {reader.line_num}: {error}.") from error
            found.setdefault(row["env"], {}).setdefault(steps, []).append(numbers)
    if not found:
        raise ConfigError(f"{path} holds no game yet.")
    tables = []
    for env, by_steps in found.items():
        checkpoints = [Checkpoint(s, *np.array(by_steps[s]).T) for s in sorted(by_steps)]
        tables.append(Table(label, env, tuple(checkpoints), path, "life" in names))
    return tables


def _rows(
    tables: Sequence[Table],
    env: str,
    at_steps: float | None,
    unit: str,
    cells: dict[str, dict[str, list[float]]],
) -> list[list[str]]:
    """Return the rows of one game, the best first; notes in `cells` what may be drawn again."""
    rows: list[tuple[float, list[str]]] = []
    members: dict[str, list[Checkpoint]] = {}
    for table in tables:
        checkpoint = table.at(at_steps) if table.env == env else None
        if checkpoint is not None:
            members.setdefault(table.label, []).append(checkpoint)
    if not members:
        first = min(t.checkpoints[0].model_steps for t in tables if t.env == env)
        raise ConfigError(
            f"--at_steps={at_steps:.0f}: no model was tested in {env} that early; the first has "
            f"{first:,} agent steps."
        )
    for label, checkpoints in members.items():
        numbers = _again(checkpoints)
        cells.setdefault(label, {})[env] = numbers
        score = bootstrap_mean([numbers])
        steps = sorted({f"{checkpoint.model_steps:,}" for checkpoint in checkpoints})
        row = [
            label,
            " to ".join([steps[0], steps[-1]][: len(steps)]),
            str(len(checkpoints)),
            str(sum(len(checkpoint.returns) for checkpoint in checkpoints)),
            _text(score),
            f"{np.mean([checkpoint.lengths.mean() for checkpoint in checkpoints]):,.0f}",
        ]
        if unit == "games" and human_normalised(env, 0.0) is not None:
            row.append(_text(bootstrap_mean([_normalised(env, numbers)]), percent=True))
        rows.append((score.value, row))
    return [row for _, row in sorted(rows, key=lambda item: -item[0])]


def _again(checkpoints: Sequence[Checkpoint]) -> list[float]:
    """Return what the bootstrap draws from: tables where there are several, else games."""
    if len(checkpoints) > 1:
        return [float(checkpoint.returns.mean()) for checkpoint in checkpoints]
    return [float(x) for x in checkpoints[0].returns]


def _curve(tables: Sequence[Table]) -> np.ndarray:
    """Return [n, 4] rows of (agent steps, mean, low, high), where all tables have a checkpoint.

    Of several tables the mean is taken at the steps of the first, between its neighbours.
    """
    if not tables:
        return np.empty((0, 4))
    series = []
    for table in tables:
        steps = [float(checkpoint.model_steps) for checkpoint in table.checkpoints]
        series.append((steps, [float(c.returns.mean()) for c in table.checkpoints]))
    start, end = max(s[0] for s, _ in series), min(s[-1] for s, _ in series)
    first = tables[0].checkpoints
    kept = [c for c in first if start <= c.model_steps <= end]
    if len(tables) == 1:
        means = np.array([c.returns.mean() for c in kept])
        errors = np.array([stats.sem(c.returns) if len(c.returns) > 1 else 0.0 for c in kept])
        low, high = means - 1.96 * errors, means + 1.96 * errors
    else:
        places = [c.model_steps for c in kept]
        every = np.array([np.interp(places, steps, means) for steps, means in series])
        means, low, high = every.mean(0), every.min(0), every.max(0)
    return np.stack([np.array([c.model_steps for c in kept], np.float64), means, low, high], 1)


def _normalised(env: str, scores: Sequence[float]) -> list[float]:
    normalised = (human_normalised(env, score) for score in scores)
    return [score for score in normalised if score is not None]


def _text(value: Estimate, percent: bool = False) -> str:
    factor, sign = (100, " %") if percent else (1, "")
    text = f"{factor * value.value:,.1f}"
    if value.low is not None and value.high is not None:
        text += f" [{factor * value.low:,.1f}, {factor * value.high:,.1f}]"
    return text + sign


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [headings, ["---"] * len(headings), *rows]
    return [f"| {' | '.join(text.replace('|', '/') for text in row)} |" for row in cells]
