"""What is made of games that were played in test mode: reports, and a table of many models.

The table is two CSV files, so that nobody can mistake one kind of return for the other:

    scores.csv            one row per whole game, all its lives together
    scores_per_life.csv   one row per life: what the agent collected from one life lost to the next

Both begin with the columns `model_id,model_steps,env,episode_steps,episode_return`: the name of the
checkpoint, the agent steps it was trained for, the game, and the decisions and raw points of the
row. In games without lives both have the same rows. Published numbers may be either: scores in
papers are of whole games as a rule, those of TorchBeast with PopArt are per life, because its test
mode ends an episode at each lost life.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ritornello.agent.stored.run_folder import run_name, safe_name
from ritornello.agent.testing.human_scores import human_normalised
from ritornello.core.atomic_file import write_csv
from ritornello.core.errors import ConfigError
from ritornello.core.file_lock import FileLock
from ritornello.core.plain_data import read_text, shown_text
from ritornello.core.run_layout import REPORT, SCORES, SCORES_PER_LIFE
from ritornello.metrics.text import same_decimals

LOCK = "scores.lock"
WRITTEN_BY_TESTS = (f"{REPORT}*", SCORES, SCORES_PER_LIFE)  # patterns of names
# What every reader may rely on, in both files.
SHARED_COLUMNS = ("model_id", "model_steps", "env", "episode_steps", "episode_return")
GAME_COLUMNS = (
    *SHARED_COLUMNS,
    # Of `games` with this model in this env the `game`-th, frames of the simulator, lives played,
    # sampled or greedy actions (with rules or a seed not the agent's), and a hash of all that was
    # seen and done: the same game, the same hash (agent/testing/whole_games.py).
    *("game", "games", "episode_frames", "lives", "policy", "fingerprint"),
)
LIFE_COLUMNS = (*SHARED_COLUMNS, "game", "life")  # the `life`-th of this game, from 1
# What a model folder says of a test of its model, by the names of a `Report`.
TEST_FACTS = (
    "policy", "episodes", "asked", "distinct_games", "mean", "median", "std", "min", "max",
    "human_normalised",
)  # fmt: skip
MAX_NAME_BYTES = 100  # of a checkpoint, in names of files
MAX_BYTES = 200_000_000  # of a file: some 2,000,000 games


@dataclass(frozen=True)
class Life:
    """What happened from the start, or from one lost life, to the next or to the end."""

    return_raw: float
    length_steps: int


@dataclass(frozen=True)
class Game:
    """One finished game of a test."""

    number: int
    return_raw: float
    length_steps: int
    length_frames: int
    fingerprint: str  # hash of all that was seen and done: equal for equal games
    lives: tuple[Life, ...]  # in order; their returns and steps add up to the game's

    def row(self) -> dict[str, int | float | str]:
        """Return the row of `test_*.csv`."""
        values = asdict(self)
        return {**values, "lives": len(self.lives)}


@dataclass(frozen=True)
class Report:
    """The result of a test in one game; `test_*.json` holds just this."""

    env: str
    checkpoint: str
    agent_steps: int
    policy: str  # sampled | greedy
    episodes: int
    distinct_games: int
    mean: float
    median: float
    std: float
    min: float
    max: float
    mean_length_frames: float
    lives: int  # number of lives in all games together
    mean_per_life: float
    human_normalised: float | None  # (mean - random) / (human - random), where known
    rules: str = ""  # rules of the games, in words
    asked: int = 0  # games that were to be played; fewer are `episodes` if the test was interrupted
    returns: tuple[float, ...] = ()  # raw, of each game

    def lines(self) -> list[str]:
        """Return what the terminal shows."""
        missing = f" of the {self.asked} asked for" if self.asked > self.episodes else ""
        mean, median, std, lowest, highest, per_life = same_decimals(
            [self.mean, self.median, self.std, self.min, self.max, self.mean_per_life], 2
        )
        lines = [
            f"{self.episodes} game{'s' * (self.episodes > 1)} of {self.env}{missing}, "
            f"{self.distinct_games} of them distinct, {self.policy} actions",
            f"  return  mean {mean}  median {median}  std {std}  min {lowest}  max {highest}",
        ]
        if self.lives > self.episodes:
            lines.append(f"  per life  mean {per_life} over {self.lives} lives")
        if self.human_normalised is not None:
            lines.append(f"  human-normalised score  {100 * self.human_normalised:.1f} %")
        return lines


def report_stem(checkpoint: str, envs: Sequence[str], policy: str, unusual: str = "") -> str:
    """Return the name of the files of a test, without their suffix.

    `checkpoint` is the name of the checkpoint's file without its suffix. `unusual` describes games
    and rules that are not the model's own. A hash of it becomes part of the name, because games of
    other modules and versions may look alike in a name. So does a long `checkpoint`, because the
    file system would refuse a name of more than 255 bytes after the games are played.
    """
    if len(checkpoint.encode()) > MAX_NAME_BYTES:
        checkpoint = f"{safe_name(checkpoint)}_{_hash(checkpoint)}"
    name = run_name(",".join(envs))
    if unusual:
        name += f"_{_hash(unusual)}"
    return f"{REPORT}{checkpoint}_{name}_{policy}"


def policy_name(greedy: bool, unusual: str = "") -> str:
    """Return how tables name the way in which actions were chosen, and rules that are `unusual`."""
    return ("greedy" if greedy else "sampled") + (f" (rules {_hash(unusual)})" if unusual else "")


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def summarise(
    games: Sequence[Game], env: str, checkpoint: str, agent_steps: int, greedy: bool
) -> Report:
    """Return the report of the games of one env: all that were asked for, at least one."""
    returns = np.array([game.return_raw for game in games])
    lives = [life.return_raw for game in games for life in game.lives]
    return Report(
        env=env,
        checkpoint=checkpoint,
        agent_steps=agent_steps,
        policy=policy_name(greedy),
        episodes=len(games),
        distinct_games=len({game.fingerprint for game in games}),
        mean=float(returns.mean()),
        median=float(np.median(returns)),
        std=float(returns.std()),
        min=float(returns.min()),
        max=float(returns.max()),
        mean_length_frames=float(np.mean([game.length_frames for game in games])),
        lives=len(lives),
        mean_per_life=float(np.mean(lives)),
        human_normalised=human_normalised(env, float(returns.mean())),
        asked=len(games),
        returns=tuple(returns.tolist()),
    )


def mean_human_normalised(reports: Iterable[Report]) -> float | None:
    """Return the mean over the games that have anchors, None if none has."""
    known = [r.human_normalised for r in reports if r.human_normalised is not None]
    return float(np.mean(known)) if known else None


def test_facts(reports: Sequence[Report]) -> dict[str, Any]:
    """Return the results of a test for a model folder; with several games, only their sum."""
    first = asdict(reports[0])
    if len(reports) == 1:
        return {name: first[name] for name in TEST_FACTS}
    return {
        **dict.fromkeys(TEST_FACTS),
        "policy": first["policy"],
        "episodes": sum(report.episodes for report in reports),
        "human_normalised": mean_human_normalised(reports),
    }


@contextmanager
def score_table(folder: Path, episodes: int, policy: str) -> Iterator[ScoreTable]:
    """Give the table in a folder, which is made if missing, to this process alone.

    `episodes` games are to be played per model and env; `policy` is a result of `policy_name`.

    Raises:
      ConfigError: if another process has the table, or the files hold games of another kind of
        test, or are not ours.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK)
    if not lock.acquire():
        raise ConfigError(
            f"{folder / SCORES} is being written by {lock.holder()}, which tests all checkpoints "
            "there: expected one such test at a time. Wait until it is done, or stop it and try "
            "again: what it has added stays, and the test goes on from there."
        )
    try:
        yield ScoreTable(folder, episodes, policy)
    finally:
        lock.release()


class ScoreTable:
    """The two files in one folder, read again when a test goes on.

    The games of a model in an env are added together, once all are played, and each file is
    replaced as a whole: an interrupted test loses at most the games of one such pair.
    """

    def __init__(self, folder: Path, episodes: int, policy: str) -> None:
        """Read what is there; see `score_table`."""
        self.games_file = folder / SCORES
        self.lives_file = folder / SCORES_PER_LIFE
        self._policy = policy
        self._games, lives = (
            read_rows(file, columns) if file.exists() else []
            for file, columns in (
                (self.games_file, GAME_COLUMNS),
                (self.lives_file, LIFE_COLUMNS),
            )
        )
        counts = Counter(map(_pair, self._games))
        for row in self._games:
            count, found = counts[_pair(row)], row["policy"]
            if found != policy or count < episodes:
                raise ConfigError(
                    f"{self.games_file} has {count} games with {found} actions of "
                    f"{row['model_id']} in {row['env']}; {episodes} with {policy} actions are "
                    "asked for, and one table cannot hold both. Give "
                    f"--test_episode_count={count} --greedy={found.startswith('greedy')} and the "
                    f"rules and --seed of those, or move {SCORES} and {SCORES_PER_LIFE} away."
                )
        self._done = set(counts)
        # The lives of a pair come first, so those of a test that was killed may be alone.
        self._lives = [row for row in lives if _pair(row) in self._done]

    def has(self, model_id: str, model_steps: int, env: str) -> bool:
        """Whether these games are in the table already."""
        return (model_id, str(model_steps), env) in self._done

    def add(self, model_id: str, model_steps: int, env: str, games: Sequence[Game]) -> None:
        """Add the games of one model in one env; their lives first, so that no game lacks them."""
        pair = {"model_id": model_id, "model_steps": str(model_steps), "env": env}
        for number, game in enumerate(games):
            for place, life in enumerate(game.lives, start=1):
                self._lives.append({**pair, **_played(life), "game": number, "life": place})
            about = {
                "game": number,
                "games": len(games),
                "episode_frames": game.length_frames,
                "lives": len(game.lives),
                "policy": self._policy,
                "fingerprint": game.fingerprint,
            }
            self._games.append({**pair, **_played(game), **about})
        self._done.add(_pair(pair))
        write_csv(self.lives_file, LIFE_COLUMNS, map(dict.values, self._lives))
        write_csv(self.games_file, GAME_COLUMNS, map(dict.values, self._games))


def _played(what: Game | Life) -> dict[str, Any]:
    return {"episode_steps": what.length_steps, "episode_return": what.return_raw}


def _pair(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["model_id"], row["model_steps"], row["env"]


def read_rows(path: Path, columns: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the rows of one of the two files; all values are text.

    The table must have exactly these `columns`. By default it must have SHARED_COLUMNS and may have
    others.

    Raises:
      ConfigError: if there is no file, or it is damaged or another table.
    """
    lines = csv.reader(io.StringIO(read_text(path, "the table", MAX_BYTES), newline=""))
    try:
        head, *rows = [row for row in lines if row] or [[]]
        known = head if columns else head[: len(SHARED_COLUMNS)]
        if tuple(known) == tuple(columns or SHARED_COLUMNS):
            return [dict(zip(head, row, strict=True)) for row in rows]
    except (csv.Error, ValueError) as error:
        raise ConfigError(f"{path} is damaged ({error}). Move it away.") from error
    raise ConfigError(
        f"{path} is another table: expected the columns {','.join(columns or SHARED_COLUMNS)}, got "
        f"{shown_text(','.join(head)) or 'none'}. Move it away."
    )
