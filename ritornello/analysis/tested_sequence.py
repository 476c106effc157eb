"""What a sequence's tests say: every configuration in every game, and how much of the old is left.

A plan with the key `test` (sequences/plan.py) tests all checkpoints of each run into the scores.csv
and scores_per_life.csv of its folder (agent/testing/score_table.py). Here the last checkpoint of
each run counts. For a run that started from the weights of another one, *kept* is what it has left
of the other's games: the mean over these of the score after, divided by the score before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from ritornello.agent.testing.human_scores import all_human_normalised
from ritornello.agent.testing.score_table import SCORES, SCORES_PER_LIFE
from ritornello.analysis.compare_scores import Table, read_table
from ritornello.analysis.options import csv_text
from ritornello.analysis.statistics import mean_estimate
from ritornello.core import markdown
from ritornello.core.atomic_file import write_text
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.core.spec import game_name
from ritornello.sequences.folder import RunState, SequenceFolder
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


def write_scores(folder: SequenceFolder) -> None:
    """Write scores.md and test_games.csv; nothing of a sequence that was not tested.

    The page has tables of whole games and of lives. A page of means says nothing of their spread,
    so each whole game of the last checkpoints is a row of the CSV.
    """
    pages = []
    for file, unit in ((SCORES, "whole game"), (SCORES_PER_LIFE, "life")):
        groups = read_groups(folder, file)
        if groups:
            pages.append(
                f"{shown_text(folder.name)}: mean raw return per {unit} of the last checkpoint, "
                "mean over seeds [95 % interval, or of few (lowest to highest)]\n\n"
                + "\n".join(_rows(groups))
            )
    if pages:
        write_text(folder.path / SCORES_PAGE, "\n\n".join(pages) + "\n")
        write_text(folder.path / GAMES_TABLE, csv_text(GAME_COLUMNS, _games(folder)))


def read_groups(folder: SequenceFolder, file: str) -> list[PlayedGroup]:
    """Return the tested groups in the order of the plan, by SCORES or SCORES_PER_LIFE."""
    members: dict[str, list[RunState]] = {}
    for run in folder.runs:
        if not is_test(run.flags):
            members.setdefault(run.group, []).append(run)
    groups = []
    for group, runs in members.items():
        returns: dict[str, list[float]] = {}
        for table in (table for run in runs for table in _tables(folder, run, file)):
            mean = float(table.checkpoints[-1].returns.mean())
            returns.setdefault(table.env, []).append(mean)
        flags = runs[0].flags
        own = _own_envs(str(flags.get("env", "")), flags.get("env_shares"))
        if returns:
            groups.append(PlayedGroup(group, returns, source_of(flags), own))
    return groups


def kept(group: PlayedGroup, source: PlayedGroup | None) -> float | None:
    """Return the mean share of the source's scores that is left in the source's own games.

    Games in which the source had no positive score are passed over: there is no share of them.
    None for a group without a source, or without such games.
    """
    if source is None:
        return None
    shares = []
    for env in source.own_envs:
        if env in source.returns and env in group.returns:
            before, after = (float(np.mean(each.returns[env])) for each in (source, group))
            shares += [after / before] if before > 0 else []
    return float(np.mean(shares)) if shares else None


def _tables(folder: SequenceFolder, run: RunState, file: str) -> list[Table]:
    """Return the tables of a run, one per game; none if it was not tested, or they are damaged."""
    made = folder.run_folders(run)
    with suppress(ConfigError):
        return read_table(made[-1].path / file, run.group) if made else []
    return []


def _own_envs(env: str, shares: Any) -> tuple[str, ...]:
    """Return the games that a run plays; a game of share 0 is none of them."""
    try:
        games = expand_games(env).split(",") if env else []
    except ConfigError:  # no list of games; its runs have failed
        return ()
    given = shares if isinstance(shares, list) and len(shares) == len(games) else [1] * len(games)
    return tuple(game for game, share in zip(games, given, strict=True) if share)


def _rows(groups: Sequence[PlayedGroup]) -> list[str]:
    envs = list(dict.fromkeys(env for group in groups for env in group.returns))
    by_name = {group.group: group for group in groups}
    heading = ["configuration", *map(game_name, envs), "human-normalised", "kept of the old games"]
    rows = []
    for group in groups:
        returns = group.returns
        means = {env: float(np.mean(each)) for env, each in returns.items()}
        known = [mark for env, mean in means.items() for mark in all_human_normalised(env, [mean])]
        share = kept(group, by_name.get(group.source or ""))
        rows.append(
            [
                group.group,
                *(str(mean_estimate([returns[env]])) if env in returns else "-" for env in envs),
                f"{100 * np.mean(known):.0f} % ({len(known)} games)" if known else "-",
                "-" if share is None else f"{100 * share:.0f} %",
            ]
        )
    return markdown.table(heading, rows)


def _games(folder: SequenceFolder) -> list[Sequence[object]]:
    """Return a row of GAME_COLUMNS for each whole game of the last checkpoints."""
    rows: list[Sequence[object]] = []
    for run in (run for run in folder.runs if not is_test(run.flags)):
        for table in _tables(folder, run, SCORES):
            last, group, env = table.checkpoints[-1], shown_text(run.group), shown_text(table.env)
            played = zip(last.returns.tolist(), last.lengths.tolist(), strict=True)
            for number, (returned, length) in enumerate(played):
                row = (group, env, run.seed, last.model_steps, number, returned, int(length))
                rows.append(row)
    return rows
