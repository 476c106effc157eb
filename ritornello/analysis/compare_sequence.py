"""The comparison at the end of a sequence: what `multi_train.py` writes into its folder.

It is the page and the figure of `ritornello.analysis compare` (analysis/comparison.py), a table
of how far each group has come, and one line of CSV for each run, whatever became of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ritornello.analysis.comparison import GameComparison, compare, game_table, games_figure, page
from ritornello.analysis.figure import save
from ritornello.analysis.runs import Run, of_sequence
from ritornello.analysis.tested_sequence import write_scores
from ritornello.core import markdown
from ritornello.core.atomic_file import csv_text, write_text
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.sequences.folder import RunState, SequenceFolder
from ritornello.sequences.plan import is_test

TABLE, CSV_TABLE, FIGURE = "table.md", "table.csv", "comparison.png"
CSV_HEADINGS = (
    *("run", "group", "seed", "status", "exit_code", "seconds", "agent_steps"),
    *("score_agent_steps", "score", "final_mean_return_100", "best_return", "env"),
)


class SequenceComparison(NamedTuple):
    """What is known of the trainings of a sequence; tests are no runs to compare."""

    name: str
    runs: Sequence[tuple[RunState, Sequence[Run]]]  # as planned; one Run for each game played
    games: Sequence[GameComparison]  # empty while no run has finished a game
    notes: Sequence[str]  # on runs that were left out


def compare_sequence(folder: SequenceFolder) -> SequenceComparison:
    """Read the results of every training and score them.

    What a run has written may be cut off or damaged: it is then left out, with a note.
    """
    runs: list[tuple[RunState, list[Run]]] = []
    notes = []
    for state in folder.runs:
        if is_test(state.flags):
            continue
        found: list[Run] = []
        try:
            found += of_sequence(folder, state)
        except (ConfigError, OSError, ValueError, TypeError) as error:
            notes.append(f"{state.name}: {error}")
        if found and not any(len(run.curve.agent_steps) for run in found):
            notes.append(f"{state.name}: no game was finished.")
        runs.append((state, [run for run in found if len(run.curve.agent_steps)]))
    games = compare([run for _, made in runs for run in made])
    return SequenceComparison(folder.name, runs, games, notes)


def write_report(folder: SequenceFolder) -> SequenceComparison:
    """Write table.md, table.csv and comparison.png into the folder; return what they say.

    If the sequence tests its runs, scores.md too (analysis/tested_sequence.py).
    """
    compared = compare_sequence(folder)
    write_text(folder.path / TABLE, f"# {shown_text(compared.name)}\n\n{sequence_page(compared)}")
    write_text(folder.path / CSV_TABLE, _csv(compared))
    if compared.games:
        save(games_figure(compared.games), folder.path / FIGURE)
    write_scores(folder)
    return compared


def sequence_page(compared: SequenceComparison) -> str:
    """Return how far each group has come, and the comparison, as Markdown."""
    return "\n".join([*_progress(compared), "", page(compared.games, compared.notes)])


def summary(compared: SequenceComparison) -> str:
    """Return what a terminal has room for, as Markdown: scores, and how far each group has come."""
    lines = []
    for game in compared.games:
        headings, all_rows = game_table(game)
        few, *rows = ([*cells[:3], cells[-1]] for cells in (headings, *all_rows))
        lines += [f"## {shown_text(game.env)}", "", *markdown.table(few, rows), ""]
    return "\n".join([*lines, *_progress(compared)])


def _progress(compared: SequenceComparison) -> list[str]:
    rows = []
    for group in dict.fromkeys(state.group for state, _ in compared.runs):
        members = [state for state, _ in compared.runs if state.group == group]
        done = sum(state.status == "done" for state in members)
        others = [f"seed {s.seed} {s.status}" for s in members if s.status != "done"]
        rows.append((group, f"{done}/{len(members)}", ", ".join(others) or "-"))
    return markdown.table(("group", "runs done", "not done"), rows)


def _csv(compared: SequenceComparison) -> str:
    """Return a line for each run, of a run of several games for each game."""
    rows: list[list[object]] = []
    steps_of = {game.env: game.at_steps for game in compared.games}
    for state, made in compared.runs:
        row = [state.name, state.group, state.seed, state.status, state.exit_code, state.seconds]
        if not made:
            rows.append([*row, *[None] * (len(CSV_HEADINGS) - len(row))])
        for run in made:
            curve, steps = run.curve, steps_of[run.about.env]
            score = curve.at_steps(steps) if curve.covers(steps) else None
            ends = [curve.agent_steps[-1], steps, score, curve.mean_return[-1], curve.best]
            rows.append([*row, *ends, run.about.env])
    return csv_text(CSV_HEADINGS, rows)
