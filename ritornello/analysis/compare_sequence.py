"""The comparison at the end of a sequence: what `multi_train.py` writes into its folder.

It is the page and the figure of `ritornello.analysis compare` (analysis/comparison.py), a table
of how far each group has come, and one line of CSV for each run, also of those that failed.

A plan with the key `test` (sequences/plan.py) tests all checkpoints of each run into the scores.csv
and scores_per_life.csv of its folder (agent/testing/score_table.py). Here the last checkpoint of
each run counts. For a run that started from the weights of another one, *kept* is what it has left
of the other's games: the mean over these of the score after, divided by the score before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from ritornello.agent.stored.run_folder import RunFolder
from ritornello.analysis.compare_scores import Table, read_table, scores_page
from ritornello.analysis.comparison import (
    GameComparison,
    compare,
    game_table,
    games_figure,
    mixed_configurations,
    page,
)
from ritornello.analysis.run_facts import RunFlags
from ritornello.analysis.runs import Run, read_runs
from ritornello.core import markdown
from ritornello.core.atomic_file import write_csv, write_text
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.core.run_layout import SCORES, SCORES_PER_LIFE
from ritornello.metrics.charts import save
from ritornello.sequences.folder import RunState, SequenceFolder
from ritornello.sequences.forms import checked
from ritornello.sequences.plan import is_test, source_of

TABLE, CSV_TABLE, FIGURE = "table.md", "table.csv", "comparison.png"
SCORES_PAGE = "scores.md"
GAMES_TABLE = "test_games.csv"
GAME_COLUMNS = ("group", "env", "seed", "model_steps", "game", "return_raw", "length_steps")
CSV_HEADINGS = (
    *("run", "group", "seed", "status", "exit_code", "seconds", "agent_steps"),
    *("score_agent_steps", "score", "final_mean_return_100", "best_return", "env"),
)


class SequenceComparison(NamedTuple):
    """Results of the trainings of a sequence; tests are no runs to compare."""

    name: str
    runs: Sequence[tuple[RunState, Sequence[Run]]]  # as planned; one Run for each game played
    games: Sequence[GameComparison]  # empty while no run has finished a game
    notes: Sequence[str]  # on runs that were left out


def compare_sequence(folder: SequenceFolder) -> SequenceComparison:
    """Read the results of every training and score them.

    A run whose files are cut off or damaged is left out, with a note.
    """
    notes: list[str] = []
    made = {state.name: list[Run]() for state in folder.runs}
    for run in read_runs(folder.path, notes.append):
        if len(run.curve.agent_steps):
            made[run.source.parent.name].append(run)
        else:
            notes.append(f"{run.source}: no game was finished.")
    games = compare([run for runs in made.values() for run in runs])
    trained = [(state, made[state.name]) for state in folder.runs if not is_test(state.flags)]
    return SequenceComparison(folder.name, trained, games, notes)


def write_report(folder: SequenceFolder, compared: SequenceComparison) -> None:
    """Write table.md, table.csv and comparison.png into the folder of what was compared.

    If the sequence tests its runs, scores.md and test_games.csv are written too.
    """
    write_text(folder.path / TABLE, f"# {shown_text(compared.name)}\n\n{sequence_page(compared)}")
    write_csv(folder.path / CSV_TABLE, CSV_HEADINGS, _rows(compared))
    if compared.games:
        save(games_figure(compared.games), folder.path / FIGURE)
    write_scores(folder)


def sequence_page(compared: SequenceComparison) -> str:
    """Return how far each group has come, and the comparison, as Markdown."""
    return "\n".join([*_progress(compared), "", page(compared.games, compared.notes)])


def summary(compared: SequenceComparison) -> str:
    """Return a short page for a terminal, as Markdown: scores, and how far each group is."""
    lines = []
    for game in compared.games:
        headings, all_rows = game_table(game)
        few, *rows = ([*cells[:3], cells[-1]] for cells in (headings, *all_rows))
        lines += [f"## {shown_text(game.env)}", "", *markdown.table(few, rows), ""]
    if left_out := len(compared.notes) + sum(len(game.left_out) for game in compared.games):
        lines += [f"{left_out} left out: {TABLE} says why.", ""]
    return "\n".join([*lines, *mixed_configurations(compared.games), "", *_progress(compared)])


def _progress(compared: SequenceComparison) -> list[str]:
    rows = []
    for group in dict.fromkeys(state.group for state, _ in compared.runs):
        members = [state for state, _ in compared.runs if state.group == group]
        done = sum(state.status == "done" for state in members)
        others = [f"seed {s.seed} {s.status}" for s in members if s.status != "done"]
        rows.append((group, f"{done}/{len(members)}", ", ".join(others) or "-"))
    return markdown.table(("group", "runs done", "not done"), rows)


def _rows(compared: SequenceComparison) -> Iterator[Sequence[object]]:
    """Yield a row of CSV_HEADINGS for each run, of a run of several games for each game."""
    steps_of = {game.env: game.at_steps for game in compared.games}
    for state, made in compared.runs:
        row = [state.name, state.group, state.seed, state.status, state.exit_code, state.seconds]
        if not made:
            yield [*row, *[None] * (len(CSV_HEADINGS) - len(row))]
        for run in made:
            curve, steps = run.curve, steps_of[run.about.env]
            score = curve.at_steps(steps) if curve.covers(steps) else None
            ends = [curve.agent_steps[-1], steps, score, curve.mean_return[-1], curve.best]
            yield [*row, *ends, run.about.env]


def write_scores(folder: SequenceFolder) -> None:
    """Write scores.md and test_games.csv; do nothing if the sequence was not tested.

    The page has tables of whole games and of lives. A page of means says nothing of their spread,
    so each whole game of the last checkpoints is a row of the CSV.
    """
    pages = []
    tested = {file: list(_tables(folder, file)) for file in (SCORES, SCORES_PER_LIFE)}
    for file, of_runs in tested.items():
        tables = [table for _, table in of_runs]
        if tables:
            kept = markdown.table(("configuration", "kept of the old games"), _kept(folder, tables))
            heading = f"# {shown_text(folder.name)}: {file}"
            pages.append("\n".join([heading, "", scores_page(tables), *kept, ""]))
    if pages:
        write_text(folder.path / SCORES_PAGE, "\n".join(pages))
        write_csv(folder.path / GAMES_TABLE, GAME_COLUMNS, _games(tested[SCORES]))


def kept(before: Sequence[Table], after: Sequence[Table], games: Sequence[str]) -> float | None:
    """Return the mean share of the scores before that is left after, over some games.

    Games without a positive score before are passed over, because there is no share of it. Return
    None if no other game is left.
    """
    shares = []
    for game in games:
        old, new = ([t.last_mean for t in tables if t.env == game] for tables in (before, after))
        if old and new and np.mean(old) > 0:
            shares.append(np.mean(new) / np.mean(old))
    return float(np.mean(shares)) if shares else None


def _kept(folder: SequenceFolder, tables: Sequence[Table]) -> list[tuple[str, str]]:
    """Return a row for each tested configuration that started from another one."""
    flags = {run.group: run.flags for run in folder.runs if not is_test(run.flags)}
    rows = []
    for group in dict.fromkeys(table.label for table in tables):
        source = source_of(flags[group])
        if source is not None:
            own, old = ([t for t in tables if t.label == name] for name in (group, source))
            played = _games_played(RunFolder(old[0].source.parent)) if old else []
            share = kept(old, own, played)
            rows.append((group, "-" if share is None else f"{100 * share:.0f} %"))
    return rows


def _games_played(made: RunFolder) -> list[str]:
    """Return the games that a run has played; a game of share 0 is not played.

    They are read from the flags of the run itself: those in the sequence may be texts, names of
    sets of games or a preset.
    """
    try:
        flags = checked(RunFlags, made.read_flags(), "flags.json")
    except (ConfigError, ValueError):  # damaged
        return []
    games = flags.env.split(",")
    shares = flags.env_shares or [1.0] * len(games)
    return [game for game, share in zip(games, shares, strict=True) if share]


def _tables(folder: SequenceFolder, file: str) -> Iterator[tuple[RunState, Table]]:
    """Yield the tables of all runs, one per game; skip a run whose tests are damaged."""
    for run in folder.runs:
        made = [] if is_test(run.flags) else folder.run_folders(run)
        with suppress(ConfigError):
            for table in read_table(made[-1].path / file, run.group) if made else ():
                yield run, table


def _games(tested: Sequence[tuple[RunState, Table]]) -> Iterator[Sequence[object]]:
    """Yield a row of GAME_COLUMNS for each whole game of the last checkpoints."""
    for run, table in tested:
        last, group, env = table.checkpoints[-1], shown_text(run.group), shown_text(table.env)
        played = zip(last.returns.tolist(), last.lengths.tolist(), strict=True)
        for number, (returned, length) in enumerate(played):
            yield group, env, run.seed, last.model_steps, number, returned, int(length)
