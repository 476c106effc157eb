"""What a sequence's tests say: every configuration in every game, and how much of the old is left.

A plan with the key `test` (sequences/plan.py) tests all checkpoints of each run into the scores.csv
and scores_per_life.csv of its folder (agent/testing/score_table.py). Here the last checkpoint of
each run counts. For a run that started from the weights of another one, *kept* is what it has left
of the other's games: the mean over these of the score after, divided by the score before.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ritornello.agent.testing.human_scores import human_normalised
from ritornello.agent.testing.score_table import SCORES, SCORES_PER_LIFE
from ritornello.core import markdown
from ritornello.core.atomic_file import write_text
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.core.spec import game_name
from ritornello.metrics.run_files import csv_rows
from ritornello.sequences.folder import SequenceFolder
from ritornello.sequences.plan import is_test, source_of
from ritornello.wrappers.games import expand_games

SCORES_PAGE = "scores.md"
GAMES_TABLE = "test_games.csv"
GAME_COLUMNS = ("group", "env", "seed", "model_steps", "game", "return_raw", "length_steps")


@dataclass(frozen=True)
class PlayedGroup:
    """One configuration that was tested: mean returns of its last checkpoints, one per seed."""

    group: str
    returns: Mapping[str, Sequence[float]]  # env -> one mean return per tested seed
    source: str | None  # group whose weights it started from
    own_envs: tuple[str, ...]  # the games it was trained on

    def mean(self, env: str) -> float | None:
        """Return the mean over seeds of one game, None if it was not tested there."""
        return float(np.mean(self.returns[env])) if env in self.returns else None


def kept(group: PlayedGroup, source: PlayedGroup | None) -> float | None:
    """Return the mean share of the source's scores that is left in the source's own games.

    Games in which the source had no positive score are passed over: there is no share of them.
    None for a group without a source, or without such games.
    """
    if source is None:
        return None
    shares = []
    for env in source.own_envs:
        before, after = source.mean(env), group.mean(env)
        if before is not None and after is not None and before > 0:
            shares.append(after / before)
    return float(np.mean(shares)) if shares else None


def read_groups(folder: SequenceFolder, table: str) -> list[PlayedGroup]:
    """Return the tested groups in the order of the plan.

    Args:
      folder: folder of the sequence.
      table: name of the table to read: SCORES (whole games) or SCORES_PER_LIFE.
    """
    groups = []
    trained = [run for run in folder.runs if not is_test(run.flags)]
    for group in dict.fromkeys(run.group for run in trained):
        members = [run for run in trained if run.group == group]
        returns: dict[str, list[float]] = {}
        for run in members:
            made = folder.run_folders(run)
            for env, mean in _last_means(made[-1].path / table).items() if made else ():
                returns.setdefault(env, []).append(mean)
        flags = members[0].flags
        own = _own_envs(str(flags.get("env", "")), flags.get("env_shares"))
        if returns:
            groups.append(PlayedGroup(group, returns, source_of(flags), own))
    return groups


def _own_envs(env: str, shares: Any) -> tuple[str, ...]:
    """Return the games that a run plays; a game of share 0 is none of them."""
    try:
        games = expand_games(env).split(",") if env else []
    except ConfigError:  # no list of games; its runs have failed
        return ()
    given = shares if isinstance(shares, list) and len(shares) == len(games) else [1] * len(games)
    return tuple(game for game, share in zip(games, given, strict=True) if share)


def write_scores(folder: SequenceFolder) -> Path | None:
    """Write scores.md, tables of whole games and of lives; None if nothing was tested."""
    pages = []
    for table, unit in ((SCORES, "whole game"), (SCORES_PER_LIFE, "life")):
        groups = read_groups(folder, table)
        if groups:
            pages.append(
                f"{shown_text(folder.name)}: mean raw return per {unit} of the last checkpoint, "
                "mean over seeds (lowest to highest)\n\n" + "\n".join(_rows(groups))
            )
    if not pages:
        return None
    path = folder.path / SCORES_PAGE
    write_text(path, "\n\n".join(pages) + "\n")
    return path


def _rows(groups: Sequence[PlayedGroup]) -> list[str]:
    envs = list(dict.fromkeys(env for group in groups for env in group.returns))
    by_name = {group.group: group for group in groups}
    heading = ["configuration", *map(game_name, envs), "human-normalised", "kept of the old games"]
    rows = []
    for group in groups:
        marks = [human_normalised(e, float(np.mean(values))) for e, values in group.returns.items()]
        known = [mark for mark in marks if mark is not None]
        share = kept(group, by_name.get(group.source or ""))
        rows.append(
            [
                group.group,
                *(_spread(group.returns.get(env, ())) for env in envs),
                f"{100 * np.mean(known):.0f} % ({len(known)} games)" if known else "-",
                "-" if share is None else f"{100 * share:.0f} %",
            ]
        )
    return markdown.table(heading, rows)


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    mean = f"{np.mean(values):,.1f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):,.1f} to {max(values):,.1f})"


def write_games(folder: SequenceFolder) -> Path | None:
    """Write test_games.csv, a row for each whole game of the last checkpoints; None without any.

    A page of means says nothing of their spread, and what a document claims should follow from a
    file that can be kept beside it.
    """
    rows = [
        [
            shown_text(run.group),
            game.env,
            run.seed,
            game.steps,
            game.number,
            game.score,
            game.length,
        ]
        for run in folder.runs
        if not is_test(run.flags)
        for made in folder.run_folders(run)[-1:]
        for game in _last_games(made.path / SCORES)
    ]
    if not rows:
        return None
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(GAME_COLUMNS)
    writer.writerows(rows)
    path = folder.path / GAMES_TABLE
    write_text(path, text.getvalue())
    return path


def _last_means(path: Path) -> dict[str, float]:
    """Return env -> mean return of the checkpoint with the most agent steps, in one table."""
    returns: dict[str, list[float]] = {}
    for game in _last_games(path):
        returns.setdefault(game.env, []).append(game.score)
    return {env: float(np.mean(values)) for env, values in returns.items()}


def _last_games(path: Path) -> list[_Played]:
    """Return what the checkpoint with the most agent steps has played of each game."""
    newest: dict[str, tuple[int, str]] = {}
    played = _rows_of(path)
    for game in played:  # of equally many steps the later row has more updates
        if game.steps >= newest.get(game.env, (game.steps, ""))[0]:
            newest[game.env] = game.steps, game.model
    return [game for game in played if game.model == newest[game.env][1]]


class _Played(NamedTuple):
    """A row of a table of scores: a whole game, or a life."""

    env: str
    steps: int  # of the model
    model: str
    number: int
    score: float
    length: int  # agent steps


def _rows_of(path: Path) -> list[_Played]:
    """Return each sound row of a table; a test may have been killed."""
    if not path.is_file():
        return []
    rows = []
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        for row in csv_rows(line.replace("\0", "") for line in file):
            try:
                played = _Played(
                    shown_text(row["env"]),
                    int(row["model_steps"]),
                    row["model_id"],
                    int(row["game"]),
                    float(row["episode_return"]),
                    int(row["episode_steps"]),
                )
            except (KeyError, ValueError, TypeError):
                continue
            if np.isfinite(played.score):
                rows.append(played)
    return rows
