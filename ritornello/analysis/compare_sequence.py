"""The comparison at the end of a sequence: what `multi_train.py` writes into its folder.

It is the page and the figure of `ritornello.analysis compare` (analysis/comparison.py), a table
of how far each group has come, and one line of CSV for each run, whatever became of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from ritornello.analysis.comparison import GameComparison, compare, draw_games, game_table, page
from ritornello.analysis.options import csv_text
from ritornello.analysis.runs import Run, of_sequence
from ritornello.analysis.tested_sequence import write_scores
from ritornello.core import markdown
from ritornello.core.atomic_file import write_text
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.sequences.folder import RunState, SequenceFolder
from ritornello.sequences.plan import is_test

TABLE, CSV_TABLE, FIGURE = "table.md", "table.csv", "comparison.png"
CSV_HEADINGS = (
    *("run", "group", "seed", "status", "exit_code", "seconds", "agent_steps"),
    *("score_agent_steps", "score", "final_mean_return_100", "best_return", "env"),
)
MAX_SHOWN = 60  # characters of a cell on the terminal
PROGRESS_HEADINGS = ("group", "runs done", "not done")


@dataclass(frozen=True)
class SequenceComparison:
    """What is known of the trainings of a sequence; tests are no runs to compare."""

    name: str
    runs: tuple[tuple[RunState, tuple[Run, ...]], ...]  # as planned; one Run for each game played
    games: tuple[GameComparison, ...]  # empty while no run has finished a game
    notes: tuple[str, ...]  # on runs that were left out

    def progress(self) -> list[tuple[str, str, str]]:
        """Return a row for each group under PROGRESS_HEADINGS."""
        rows = []
        for group in dict.fromkeys(state.group for state, _ in self.runs):
            members = [state for state, _ in self.runs if state.group == group]
            done = sum(state.status == "done" for state in members)
            others = [f"seed {s.seed} {s.status}" for s in members if s.status != "done"]
            rows.append((group, f"{done}/{len(members)}", ", ".join(others) or "-"))
        return rows


def compare_sequence(
    folder: SequenceFolder, check: Callable[[RunState], object] | None = None
) -> SequenceComparison:
    """Read the results of every training and score them.

    What a run has written may be cut off or damaged: it is then left out, with a note.

    Args:
      folder: the sequence.
      check: called with each training before it is read; a ConfigError leaves it out, too.
    """
    runs, notes = [], []
    for state in folder.runs:
        if is_test(state.flags):
            continue
        found: list[Run] = []
        try:
            if check is not None:
                check(state)
            found += of_sequence(folder, state)
        except (ConfigError, OSError, ValueError, TypeError) as error:
            notes.append(f"{state.name}: {error}")
        if found and not any(len(run.curve.agent_steps) for run in found):
            notes.append(f"{state.name}: no game was finished.")
        runs.append((state, tuple(run for run in found if len(run.curve.agent_steps))))
    return SequenceComparison(
        folder.name,
        tuple(runs),
        tuple(compare([run for _, made in runs for run in made])),
        tuple(notes),
    )


def write_report(folder: SequenceFolder) -> SequenceComparison:
    """Write table.md, table.csv and comparison.png into the folder; return what they say.

    If the sequence tests its runs, scores.md too (analysis/tested_sequence.py).
    """
    comparison = compare_sequence(folder)
    progress = markdown.table(PROGRESS_HEADINGS, comparison.progress())
    lines = [f"# {shown_text(comparison.name)}", "", *progress, ""]
    text = page(comparison.games, comparison.notes)
    write_text(folder.path / TABLE, "\n".join(lines) + "\n" + text)
    write_text(folder.path / CSV_TABLE, _csv(comparison))
    if comparison.games:
        draw_games(comparison.games, folder.path / FIGURE)
    write_scores(folder)
    return comparison


def rich_tables(comparison: SequenceComparison) -> Iterator[Table]:
    """Yield the tables for the terminal: one for each game, then how far the groups have come."""
    tables: list[tuple[str, Sequence[str], Sequence[Sequence[str]]]] = []
    for game in comparison.games:
        all_headings, all_rows = game_table(game)
        tables.append((game.env, _few(all_headings), [_few(row) for row in all_rows]))
    tables.append((comparison.name, PROGRESS_HEADINGS, comparison.progress()))
    for title, headings, rows in tables:
        # As `Text`, in which nothing is markup: groups have whatever names their authors gave them.
        table = Table(*headings, title=Text(shown_text(title), style="table.title"))
        for row in rows:
            table.add_row(*(Text(shown_text(cell, MAX_SHOWN)) for cell in row))
        yield table


def _few(cells: Sequence[str]) -> list[str]:
    """Return the cells for which a terminal has room: name, seeds, score and best game."""
    return [*cells[:3], cells[-1]]


def _csv(comparison: SequenceComparison) -> str:
    """Return a line for each run, of a run of several games for each game."""
    rows: list[list[object]] = []
    steps_of = {game.env: game.at_steps for game in comparison.games}
    for state, made in comparison.runs:
        row = [state.name, state.group, state.seed, state.status, state.exit_code, state.seconds]
        if not made:
            rows.append([*row, *[None] * (len(CSV_HEADINGS) - len(row))])
        for run in made:
            curve, steps = run.curve, steps_of[run.about.env]
            score = curve.at_steps(steps) if curve.covers(steps) else None
            ends = [curve.agent_steps[-1], steps, score, curve.mean_return[-1], curve.best]
            rows.append([*row, *ends, run.about.env])
    return csv_text(CSV_HEADINGS, rows)
