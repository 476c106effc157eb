"""Tables of tested agents, compared: `python -m ritornello.analysis compare --scores=...`.

A scores.csv holds the games of every checkpoint of a run, played in test mode
(`--op_mode=test --test_all_checkpoints=True`); a scores_per_life.csv the same, life by life. The
columns model_id, model_steps, env, episode_steps and episode_return are read; others may follow.
Where they say which of how many games a row is (game, games), a checkpoint that lacks games does
not count, nor does a last line that was cut: the test was stopped, or goes on. One table is one
training; tables with the same label are its repetitions with other seeds.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ritornello.agent.testing.human_scores import TABLE, all_human_normalised, anchors
from ritornello.analysis.comparison import left_out_lines, over_games
from ritornello.analysis.figure import LOOKS, plot_seeds, save
from ritornello.analysis.options import matching, split_label
from ritornello.analysis.statistics import interval, mean_estimate
from ritornello.core import markdown
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.metrics.charts import INK, figure_text, new_figure, style
from ritornello.wrappers.env_ids import is_atari, rom_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = ("model_id", "model_steps", "env", "episode_steps", "episode_return")
COUNTED = ("game", "games")  # which of how many games a row is
FILE = "scores.csv"
MAX_NOTES = 3  # in a message
AGAIN = "Run the test again: it keeps what is whole and plays the rest."
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
    left_out: tuple[str, ...] = ()  # sentences about what of the source does not count

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the agent steps and the mean return of each checkpoint."""
        steps = [float(checkpoint.model_steps) for checkpoint in self.checkpoints]
        means = [float(checkpoint.returns.mean()) for checkpoint in self.checkpoints]
        return np.array(steps), np.array(means)

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
      ConfigError: if there is no table, one is damaged or given twice, or games and lives are
        mixed.
    """
    tables: list[Table] = []
    given: dict[Path, Path] = {}  # resolved -> as it was found first
    for place in places:
        label, pattern = split_label(place)
        paths = matching(pattern)
        files = [path / FILE if path.is_dir() else path for path in paths]
        found = [file for file in files if file.is_file()]
        if not found:
            raise ConfigError(
                f"--scores={pattern}: there is no {FILE}. Expected such a file, or a run folder "
                "with one: python main.py --op_mode=test --test_all_checkpoints=True writes it."
            )
        for file in found:
            first = given.setdefault(file.resolve(), file)
            if first is not file:  # it would pass for another seed with the same returns
                raise ConfigError(
                    f"--scores={pattern}: {file} is given twice, before as {first}. Expected each "
                    "table once: leave one out, or give patterns that do not overlap."
                )
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
      tables: the tables to compare, result of `read_tables`.
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
    drawn_from: dict[str, dict[str, list[float]]] = {}  # env -> label -> what is drawn again
    for env in sorted({table.env for table in tables}):
        drawn_from[env], rows = _rows(tables, env, at_steps, unit)
        headings = ["agent", "agent steps", "tables", unit, "return", "length in steps"]
        headings = [*headings, "human-normalised"][: len(rows[0])]
        lines += ["", f"## {env}", "", *markdown.table(headings, rows)]
    whole = over_games(drawn_from, mean_estimate) if unit == "games" else {}
    if whole:
        lines += ["", "## Human-normalised, mean over games", ""]
        rows = [[label, value.percent()] for label, value in whole.items()]
        lines += markdown.table(["agent", "score"], rows)
    sources = dict.fromkeys(f"* {table.label}: {table.source}" for table in tables)
    left_out = dict.fromkeys(note for table in tables for note in table.left_out)
    lines += ["", "## Tables", "", *sources, *left_out_lines([*left_out])]
    return "\n".join(lines) + "\n"


def draw_scores(tables: Sequence[Table], output: Path) -> None:
    """Draw the mean return of each label over training, a panel per game.

    Several tables of a label are drawn as the seeds they are (`plot_seeds`); a single one with the
    95 % interval of its mean over games. A dotted line is the human level, where it is known.
    """
    envs = sorted({table.env for table in tables})
    labels = list(dict.fromkeys(table.label for table in tables))
    looks = {label: LOOKS[n % len(LOOKS)] for n, label in enumerate(labels)}
    columns = min(COLUMNS_OF_PANELS, len(envs))
    rows = -(-len(envs) // columns)
    figure = new_figure(max(6.0, 4.2 * columns), 3.2 * rows + 0.4 + 0.2 * len(labels), dpi=120)
    for number, env in enumerate(envs, start=1):
        axes = figure.add_subplot(rows, columns, number)
        for label in labels:
            members = [table for table in tables if (table.label, table.env) == (label, env)]
            plot_seeds(axes, [table.curve() for table in members], *looks[label])
            if len(members) == 1:
                _draw_interval(axes, members[0], looks[label][0])
        if is_atari(env) and rom_name(env) in anchors() and not tables[0].per_life:
            axes.axhline(anchors()[rom_name(env)][1], color="#999999", linestyle=":", linewidth=1)
        style(axes, env, "agent steps", "")
    figure.supylabel(
        f"mean raw return per {'life' if tables[0].per_life else 'game'}", color=INK, fontsize=9
    )
    for label, (colour, dash) in looks.items():
        text = figure_text(label)
        figure.axes[0].plot([], [], color=colour, linestyle=dash, linewidth=2, label=text)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9, labelcolor=INK)
    save(figure, output)


def _draw_interval(axes: Axes, table: Table, colour: str) -> None:
    """Draw the interval of the mean of each checkpoint that was tested in several games."""
    bounds = [(c.model_steps, interval([c.returns], np.mean)) for c in table.checkpoints]
    known = np.array([(steps, *pair) for steps, pair in bounds if pair is not None])
    if len(known):
        axes.fill_between(*known.T, color=colour, alpha=0.15, linewidth=0)


def _read(path: Path, label: str) -> list[Table]:
    """Return the tables of a file, one per game."""
    content = path.read_bytes()
    sound = content[: content.rfind(b"\n") + 1]
    try:
        reader = csv.DictReader(io.StringIO(sound.decode("utf-8"), newline=""))
        names = reader.fieldnames or []
        if tuple(names[: len(COLUMNS)]) != COLUMNS:
            raise ConfigError(
                f"{path} is another table: expected the columns {','.join(COLUMNS)} first, got "
                f"{shown_text(','.join(names)) or 'nothing'}."
            )
        by_env, left_out = _by_env(reader, path)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(
            f"{path} is damaged ({error}). Expected a table in UTF-8 with the columns "
            f"{','.join(COLUMNS)}."
        ) from error
    if len(sound) < len(content):
        left_out.append("The last line has no end: it was cut, and does not count.")
    if not by_env:
        raise ConfigError(" ".join([f"{path} holds no game yet.", *left_out[:MAX_NOTES]]))
    notes = tuple(f"{path}: {note}" for note in left_out)
    tables = []
    for env, by_steps in by_env.items():
        checkpoints = [Checkpoint(s, *np.array(by_steps[s]).T) for s in sorted(by_steps)]
        tables.append(Table(label, env, tuple(checkpoints), path, "life" in names, notes))
    return tables


def _by_env(
    reader: csv.DictReader[str], path: Path
) -> tuple[dict[str, dict[int, list[tuple[float, float]]]], list[str]]:
    """Return env -> agent steps -> (return, length) of each game, and notes on what is left out."""
    counted = set(COUNTED) <= set(reader.fieldnames or ())
    # (model, agent steps, env) -> number of the game -> (return, length)
    found: dict[tuple[str, int, str], dict[str, tuple[float, float]]] = {}
    wanted: dict[tuple[str, int, str], int] = {}
    for row in reader:
        steps, returned, length, games = _numbers(row, f"{path}, line {reader.line_num}")
        checkpoint = row["model_id"], steps, row["env"]
        # Of two tests that have added the same games, those of the first count.
        game = row["game"] if counted else str(reader.line_num)
        found.setdefault(checkpoint, {}).setdefault(game, (returned, length))
        wanted.setdefault(checkpoint, games)
    by_env: dict[str, dict[int, list[tuple[float, float]]]] = {}
    left_out = []
    for checkpoint, rows in found.items():
        model, steps, env = checkpoint
        count = wanted[checkpoint] if counted else len(rows)
        if len(rows) < count:
            left_out.append(
                f"There are {len(rows)} of {count} games of {shown_text(model)} in "
                f"{shown_text(env)}: they do not count. {AGAIN}"
            )
        else:
            by_env.setdefault(env, {}).setdefault(steps, []).extend(islice(rows.values(), count))
    return by_env, left_out


def _numbers(row: Mapping[str, str | None], where: str) -> tuple[int, float, float, int]:
    """Return agent steps of a row's model, return and length of its game, and number of games."""
    try:
        if None in row.values():
            raise ValueError("a cell is missing")
        steps, games = int(row["model_steps"] or ""), int(row.get("games") or 1)
        if games < 1:
            raise ValueError(f"games is {games}")
        returned, length = float(row["episode_return"] or ""), float(row["episode_steps"] or "")
        if not all(map(isfinite, (steps, returned, length))):
            raise ValueError(f"{row['episode_return']!r} or {row['episode_steps']!r} is not finite")
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"{where}: {error}. Expected whole numbers as model_steps and games, and finite "
            f"numbers as episode_steps and episode_return. {AGAIN}"
        ) from error
    return steps, returned, length, games


def _rows(
    tables: Sequence[Table], env: str, at_steps: float | None, unit: str
) -> tuple[dict[str, list[float]], list[list[str]]]:
    """Return label -> what may be drawn again, and the rows of one game, the best first."""
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
    drawn_from = {label: _again(checkpoints) for label, checkpoints in members.items()}
    rows: list[tuple[float, list[str]]] = []
    for label, checkpoints in members.items():
        score = mean_estimate([drawn_from[label]])
        steps = sorted({checkpoint.model_steps for checkpoint in checkpoints})
        row = [
            label,
            " to ".join(f"{each:,}" for each in [steps[0], steps[-1]][: len(steps)]),
            str(len(checkpoints)),
            str(sum(len(checkpoint.returns) for checkpoint in checkpoints)),
            str(score),
            f"{np.mean([checkpoint.lengths.mean() for checkpoint in checkpoints]):,.0f}",
        ]
        normalised = all_human_normalised(env, drawn_from[label])
        if unit == "games" and normalised:
            row.append(mean_estimate([normalised]).percent())
        rows.append((score.value, row))
    return drawn_from, [row for _, row in sorted(rows, key=lambda item: -item[0])]


def _again(checkpoints: Sequence[Checkpoint]) -> list[float]:
    """Return what the bootstrap draws from: tables where there are several, else games."""
    if len(checkpoints) > 1:
        return [float(checkpoint.returns.mean()) for checkpoint in checkpoints]
    return [float(x) for x in checkpoints[0].returns]
