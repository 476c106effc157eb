"""What a sequence's tests say: every configuration in every game, and how much of the old is left.

A plan with the key `test` (sequences/plan.py) tests all checkpoints of each run into the scores.csv
and scores_per_life.csv of its folder (agent/testing/score_table.py). Here the last checkpoint of
each run counts. For a run that started from the weights of another one, *kept* is what it has left
of the other's games: the mean over these of the score after, divided by the score before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ritornello.agent.testing.score_table import SCORES, SCORES_PER_LIFE
from ritornello.analysis.compare_scores import Table, read_table, scores_page
from ritornello.core import markdown
from ritornello.core.atomic_file import write_csv, write_text
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.sequences.folder import RunState, SequenceFolder
from ritornello.sequences.plan import is_test, source_of
from ritornello.wrappers.games import expand_games

SCORES_PAGE = "scores.md"
GAMES_TABLE = "test_games.csv"
GAME_COLUMNS = ("group", "env", "seed", "model_steps", "game", "return_raw", "length_steps")


def write_scores(folder: SequenceFolder) -> None:
    """Write scores.md and test_games.csv; nothing of a sequence that was not tested.

    The page has tables of whole games and of lives. A page of means says nothing of their spread,
    so each whole game of the last checkpoints is a row of the CSV.
    """
    pages = []
    for file in (SCORES, SCORES_PER_LIFE):
        tables = [table for _, table in _tables(folder, file)]
        if tables:
            kept = markdown.table(("configuration", "kept of the old games"), _kept(folder, tables))
            heading = f"# {shown_text(folder.name)}: {file}"
            pages.append("\n".join([heading, "", scores_page(tables), *kept, ""]))
    if pages:
        write_text(folder.path / SCORES_PAGE, "\n".join(pages))
        write_csv(folder.path / GAMES_TABLE, GAME_COLUMNS, _games(folder))


def kept(before: Sequence[Table], after: Sequence[Table], games: Sequence[str]) -> float | None:
    """Return the mean share of the scores before that is left after, in some games.

    Games in which there was no positive score are passed over: there is no share of them. None
    without any other game.
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
            share = kept(old, own, own_games(flags[source]))
            rows.append((group, "-" if share is None else f"{100 * share:.0f} %"))
    return rows


def own_games(flags: dict[str, Any]) -> list[str]:
    """Return the games that a run plays; a game of share 0 is none of them."""
    try:
        games = expand_games(str(flags["env"])).split(",") if flags.get("env") else []
    except ConfigError:  # no list of games; its runs have failed
        return []
    shares = flags.get("env_shares")
    given = shares if isinstance(shares, list) and len(shares) == len(games) else [1] * len(games)
    return [game for game, share in zip(games, given, strict=True) if share]


def _tables(folder: SequenceFolder, file: str) -> Iterator[tuple[RunState, Table]]:
    """Yield the tables of all runs, one per game; none of a run whose tests are damaged."""
    for run in folder.runs:
        made = [] if is_test(run.flags) else folder.run_folders(run)
        with suppress(ConfigError):
            for table in read_table(made[-1].path / file, run.group) if made else ():
                yield run, table


def _games(folder: SequenceFolder) -> Iterator[Sequence[object]]:
    """Yield a row of GAME_COLUMNS for each whole game of the last checkpoints."""
    for run, table in _tables(folder, SCORES):
        last, group, env = table.checkpoints[-1], shown_text(run.group), shown_text(table.env)
        played = zip(last.returns.tolist(), last.lengths.tolist(), strict=True)
        for number, (returned, length) in enumerate(played):
            yield group, env, run.seed, last.model_steps, number, returned, int(length)
