"""Tables of tested agents, compared: `python -m ritornello.analysis compare --scores=...`.

A scores.csv holds the games of every checkpoint of a run, played in test mode
(`--op_mode=test --test_all_checkpoints=True`); a scores_per_life.csv the same, life by life. One
table is one training; tables with the same label are its repetitions with other seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ritornello.agent.testing.human_scores import TABLE, all_human_normalised
from ritornello.agent.testing.score_table import read_rows
from ritornello.analysis.comparison import markdown_page, over_games
from ritornello.analysis.figure import learning_curves
from ritornello.analysis.options import matching, split_label
from ritornello.analysis.statistics import FEW, mean_estimate
from ritornello.core import markdown
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.core.project import main_command
from ritornello.core.run_layout import SCORES, SCORES_PER_LIFE
from ritornello.metrics.curve import Curve
from ritornello.metrics.record import is_usable

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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

    @property
    def last_mean(self) -> float:
        """Mean return of the last checkpoint."""
        return float(self.checkpoints[-1].returns.mean())

    def curve(self) -> Curve:
        """Return the mean return of each checkpoint over agent steps; it has no times."""
        steps = np.array([checkpoint.model_steps for checkpoint in self.checkpoints], np.float64)
        means = np.array([checkpoint.returns.mean() for checkpoint in self.checkpoints])
        return Curve(steps, steps, means, None)


def read_tables(places: Sequence[str]) -> list[Table]:
    """Read tables of tested agents.

    A place is a CSV file, a folder that holds scores.csv (a run), or a pattern of such;
    `label=place` gives a label, which is by default the name of the folder.

    Raises:
      ConfigError: if there is no table, one is damaged or given twice, or games and lives are
        mixed.
    """
    tables: list[Table] = []
    given: set[Path] = set()
    for place in places:
        label, pattern = split_label(place)
        files = [path / SCORES if path.is_dir() else path for path in matching(pattern)]
        found = [file for file in files if file.is_file()]
        if not found:
            raise ConfigError(
                f"--scores={pattern}: there is no {SCORES}. Expected such a file, or a run folder "
                f"with one: {main_command()} --test=<run> --test_all_checkpoints=True writes it."
            )
        for file in found:
            if file.resolve() in given:  # it would pass for another seed with the same returns
                raise ConfigError(f"--scores={pattern}: {file} is given twice; leave one out.")
            given.add(file.resolve())
            tables += read_table(file, label or file.resolve().parent.name)
    if len({table.per_life for table in tables}) > 1:
        raise ConfigError(
            "some tables hold whole games and others single lives, whose returns cannot be "
            f"compared. Give {SCORES} of all runs, or {SCORES_PER_LIFE} of all."
        )
    return tables


def scores_page(tables: Sequence[Table], at_steps: float | None = None) -> str:
    """Return the comparison as a Markdown page: a table per game, and one over games.

    The newest checkpoints are compared, or the newest of up to `at_steps` agent steps.

    Raises:
      ConfigError: if a table has no checkpoint of so few steps.
    """
    unit = "lives" if tables[0].per_life else "games"
    about = (
        f"Score: mean raw return of the {unit} of one checkpoint in test mode [95 % bootstrap "
        f"interval: over {unit} where a label has one table, else over its tables; of fewer than "
        f"{FEW} (lowest to highest)]."
    )
    if unit == "games":
        about += f" Human-normalised by the table of {TABLE}."
    resampled: dict[str, dict[str, list[float]]] = {}  # env -> label -> what is drawn again
    parts: dict[str, list[str]] = {}
    for env in sorted({table.env for table in tables}):
        resampled[env], rows = _rows(tables, env, at_steps, unit)
        headings = ["agent", "agent steps", "tables", unit, "return", "length in steps"]
        headings = [*headings, "human-normalised"][: len(rows[0])]
        parts[env] = markdown.table(headings, rows)
    whole = over_games(resampled, mean_estimate) if unit == "games" else {}
    if whole:
        over = [[label, value.percent()] for label, value in whole.items()]
        parts["Human-normalised, mean over games"] = markdown.table(["agent", "score"], over)
    sources = dict.fromkeys(f"{table.label}: {table.source}" for table in tables)
    parts["Tables"] = [f"* {shown_text(source)}" for source in sources]
    return markdown_page(about, parts)


def scores_figure(tables: Sequence[Table]) -> Figure:
    """Return the mean return of each label over training, a panel per game."""
    games: dict[str, dict[str, list[Curve]]] = {}
    for table in sorted(tables, key=lambda table: table.env):
        games.setdefault(table.env, {}).setdefault(table.label, []).append(table.curve())
    unit = "life" if tables[0].per_life else "game"
    return learning_curves(games, f"mean raw return per {unit}", by_time=False)


def read_table(path: Path, label: str) -> list[Table]:
    """Return the tables of a file, one per game.

    Raises:
      ConfigError: if the file is missing or damaged, or holds no game.
    """
    # Game, agent steps and id of a model -> (return, length) of what it played.
    played: dict[tuple[str, int, str], list[tuple[float, float]]] = {}
    rows = read_rows(path)
    try:
        for row in rows:
            model = (row["env"], int(row["model_steps"]), row["model_id"])
            numbers = float(row["episode_return"]), float(row["episode_steps"])
            if not all(map(is_usable, numbers)):
                raise ValueError(f"{numbers} are not all finite, or too large")
            played.setdefault(model, []).append(numbers)
    except ValueError as error:
        raise ConfigError(f"{path} is damaged ({error}). Move it away, and test again.") from error
    if not played:
        raise ConfigError(f"{path} holds no game yet.")
    # Of models after equally many steps the later one has more updates.
    newest = {(env, steps): games for (env, steps, _), games in played.items()}
    checkpoints: dict[str, list[Checkpoint]] = {env: [] for env, _, _ in played}
    for (env, steps), games in sorted(newest.items(), key=lambda item: item[0][1]):
        checkpoints[env].append(Checkpoint(steps, *np.array(games).T))
    per_life = "life" in rows[0]
    return [Table(label, env, tuple(of), path, per_life) for env, of in checkpoints.items()]


def _rows(
    tables: Sequence[Table], env: str, at_steps: float | None, unit: str
) -> tuple[dict[str, list[float]], list[list[str]]]:
    """Return label -> values that may be drawn again, and the rows of one game, the best first.

    Tables are drawn again if a label has several, otherwise games.
    """
    members: dict[str, list[Checkpoint]] = {}
    for table in tables:
        if table.env != env:
            continue
        early = [c for c in table.checkpoints if at_steps is None or c.model_steps <= at_steps]
        if not early:
            raise ConfigError(
                f"--at_steps={at_steps:.0f}: no model in {table.source} was tested in {env} that "
                f"early; the first has {table.checkpoints[0].model_steps:,} agent steps. Give more "
                "steps, or leave that table out."
            )
        members.setdefault(table.label, []).append(early[-1])
    resampled = {
        label: [float(c.returns.mean()) for c in of] if len(of) > 1 else of[0].returns.tolist()
        for label, of in members.items()
    }
    scores = {label: mean_estimate([values]) for label, values in resampled.items()}
    rows = []
    for label in sorted(scores, key=lambda label: -scores[label].value):
        checkpoints = members[label]
        steps = sorted({checkpoint.model_steps for checkpoint in checkpoints})
        row = [
            label,
            " to ".join(f"{each:,}" for each in dict.fromkeys((steps[0], steps[-1]))),
            str(len(checkpoints)),
            str(sum(len(checkpoint.returns) for checkpoint in checkpoints)),
            str(scores[label]),
            f"{np.mean([checkpoint.lengths.mean() for checkpoint in checkpoints]):,.0f}",
        ]
        normalised = all_human_normalised(env, resampled[label])
        if unit == "games" and normalised:
            row.append(mean_estimate([normalised]).percent())
        rows.append(row)
    return resampled, rows
