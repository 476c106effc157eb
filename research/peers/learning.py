"""How well each system plays after the same time on the same machine.

The score of a run is the mean return of the last 100 games that ended within the time, which counts
from the start of the program: starting is a part of what a user waits for. Returns are those of
whole games, with unclipped rewards, whatever a system trains on.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from research.peers.catalogue import System
from research.peers.measurement import Drive, Game, busy_cpus
from ritornello.agent.testing.human_scores import human_normalised

LAST_GAMES = 100
CURVE_POINTS = 20


@dataclass(frozen=True)
class Learned:
    """The result of one run, until the end of its time."""

    score: float | None  # None without a game
    games: int
    agent_steps: float
    busy_cpus: float
    curve: tuple[tuple[float, float], ...]  # seconds from the start, score until then
    flags: str

    def summary(self) -> str:
        """Return the result in a few words."""
        return f"score {_shown(self.score)} after {self.agent_steps:.0f} agent steps"


def score_at(games: Sequence[Game], wall_s: float) -> float | None:
    """Return the mean return of the last 100 games until a time, or None before the first one.

    Args:
      games: in any order; several processes write them.
      wall_s: the time, in seconds of the clock of the games.
    """
    ended = sorted((game for game in games if game.wall_s <= wall_s), key=lambda game: game.wall_s)
    last = [game.episode_return for game in ended[-LAST_GAMES:]]
    return statistics.fmean(last) if last else None


def learned(run: Drive, seconds: float) -> Learned:
    """Return what a run had come to after `seconds` from its start."""
    (flags, progress, games), usage = run
    began_s = usage[0].wall_s
    ended_s = min(began_s + seconds, usage[-1].wall_s)
    times = [began_s + seconds * point / CURVE_POINTS for point in range(1, CURVE_POINTS + 1)]
    curve = [(time - began_s, score_at(games, time)) for time in times if time <= ended_s]
    return Learned(
        score=score_at(games, ended_s),
        games=sum(game.wall_s <= ended_s for game in games),
        agent_steps=max((p.steps for p in progress if p.wall_s <= ended_s), default=0.0),
        busy_cpus=busy_cpus(usage, began_s, ended_s),
        curve=tuple((round(time, 1), score) for time, score in curve if score is not None),
        flags=flags,
    )


@dataclass
class LearningResult:
    """All runs of one system; `failure` is why there are no more, one line, or empty."""

    system: System
    runs: list[Learned] = field(default_factory=list)
    failure: str = ""

    def scores(self) -> list[float]:
        """Return the score of each run that saw the end of a game."""
        return [run.score for run in self.runs if run.score is not None]

    def to_json(self, env_id: str) -> dict[str, Any]:
        """Return everything as plain types."""
        return {
            "version": self.system.version,
            "network": self.system.network,
            "remark": self.system.remark,
            "score": _mean(self.scores()),
            "human_normalised": _mean(_normalised(env_id, self.scores())),
            "runs": [_without_flags(run) for run in self.runs],
            "flags": self.runs[0].flags if self.runs else "",
            "failure": self.failure,
        }


def learning_table(results: Mapping[str, LearningResult], env_id: str) -> str:
    """Return the table, and below it the settings of each system.

    Args:
      results: by name of the system, in the order of the rows.
      env_id: the game, for human-normalised scores; they are left out if it has none.
    """
    head = ["system", "version", "score", "runs", "human-normalised", "agent steps", "games",
            "busy CPUs", "network"]  # fmt: skip
    rows, notes = [head], []
    for name, result in results.items():
        if result.failure:
            notes.append(f"{name:<16}failed: {result.failure}")
        if not result.runs:
            continue
        scores, normalised = result.scores(), _mean(_normalised(env_id, result.scores()))
        rows.append([
            result.system.title, result.system.version, _shown(_mean(scores)),
            " ".join(_shown(run.score) for run in result.runs),
            "-" if normalised is None else f"{100 * normalised:.1f} %",
            " ".join(f"{run.agent_steps:.0f}" for run in result.runs),
            " ".join(str(run.games) for run in result.runs),
            " ".join(f"{run.busy_cpus:.2f}" for run in result.runs), result.system.network,
        ])  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines += [*notes, ""]
    for name, result in results.items():
        if result.runs:
            lines += [f"{name}: {result.system.remark}", f"    {result.runs[0].flags}"]
    return "\n".join(lines)


def _without_flags(run: Learned) -> dict[str, Any]:
    return {name: value for name, value in asdict(run).items() if name != "flags"}


def _normalised(env_id: str, scores: Sequence[float]) -> list[float]:
    marks = [human_normalised(env_id, score) for score in scores]
    return [mark for mark in marks if mark is not None]


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _shown(score: float | None) -> str:
    return "-" if score is None else f"{score:.1f}"
