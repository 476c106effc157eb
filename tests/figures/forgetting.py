"""What an agent of two games keeps of them while it learns a third one."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from statistics import fmean

from tests.figures.files import RESULTS, Claim, Value, welch

SEEDS = (1, 2, 3)
GAMES = ("Breakout", "Seaquest", "Pong")
FIRST = "two games"  # the group from which the others go on


@dataclass(frozen=True)
class Forgetting:
    """An experiment: its folder in docs/results, and its tables in docs/results.md."""

    folder: str
    before: str  # how the tables call the agent of the two games
    arms: Mapping[str, str]  # as they are shown -> the group
    compared: tuple[
        tuple[str, str, str], ...
    ]  # as it is shown, of these arms the first minus the second

    def tested(self, group: str, game: str, seed: int) -> Value:
        """The mean of the test games."""
        return lambda: fmean(returns(self.folder)[group, game, seed])

    def share(self, group: str, game: str, seed: int) -> Value:
        """What is left of the mean of before, in percent."""
        before = self.tested(FIRST, game, seed)
        return lambda: 100 * self.tested(group, game, seed)() / before()

    def rows(self) -> list[Claim]:
        """The test games of each group, what is left of the old games, and what makes it more."""
        claims = []
        for shown, group in {self.before: FIRST, **self.arms}.items():
            values = [self.tested(group, game, seed) for game in GAMES for seed in SEEDS]
            cells = " {}, {}, {} |" * len(GAMES)
            claims.append(
                Claim("docs/results.md", f"| {shown}, test games |{cells}", tuple(values))
            )
        for game in GAMES[:2]:
            left = {
                arm: [self.share(group, game, seed) for seed in SEEDS]
                for arm, group in self.arms.items()
            }
            for arm, shares in left.items():
                row = f"| left in {game}, {arm} | {{}}, {{}}, {{}} | {{}} | {{}} | {{}} |"
                # Three that are the same have no spread: what is left is the interval of one mean.
                whole: list[Value] = [lambda: 0.0] * len(SEEDS)
                claims.append(Claim("docs/results.md", row, (*shares, *welch(shares, whole))))
            for shown, one, other in self.compared:
                row = f"| {shown}: {game} | {{}} | {{}} | {{}} |"
                claims.append(Claim("docs/results.md", row, welch(left[one], left[other])))
        for shown, *arms in self.compared:
            row = f"| {shown}: Pong | {{}} | {{}} | {{}} |"
            ones, others = (
                [self.tested(self.arms[arm], "Pong", seed) for seed in SEEDS] for arm in arms
            )
            claims.append(Claim("docs/results.md", row, welch(ones, others)))
        return claims


@cache
def returns(folder: str) -> dict[tuple[str, str, int], list[float]]:
    """Return (group, game, seed) -> the returns of the test games of the last checkpoint."""
    found: dict[tuple[str, str, int], list[float]] = {}
    with open(RESULTS / folder / "test_games.csv", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            place = row["group"], row["env"].removesuffix("NoFrameskip-v4"), int(row["seed"])
            found.setdefault(place, []).append(float(row["return_raw"]))
    return found


SMALL = Forgetting(
    "forgetting",
    "before",
    {
        "new data only": "then Pong, new data only",
        "CLEAR": "then Pong, CLEAR",
        "a little of the old": "then Pong and a little of the old, replay",
        "a little of the old, CLEAR": "then Pong and a little of the old, CLEAR",
    },
    (
        ("CLEAR, with a little of the old", "a little of the old, CLEAR", "a little of the old"),
        ("CLEAR, with Pong alone", "CLEAR", "new data only"),
    ),
)


# CLEAR's own setting: none of these plays the old games any more.
REPLAY = Forgetting(
    "forgetting_replay/forgetting_replay",
    "before Pong",
    {
        "replay of Pong": "then Pong, replay of Pong",
        "replay of all": "then Pong, replay of all",
        "replay of all, CLEAR": "then Pong, replay of all, CLEAR",
        "replay of all, trust region": "then Pong, replay of all, trust region",
    },
    (
        ("the old games in the replay", "replay of all", "replay of Pong"),
        ("CLEAR, beside the replay of all", "replay of all, CLEAR", "replay of all"),
        ("trust region, beside the replay of all", "replay of all, trust region", "replay of all"),
    ),
)


def seaquest_values(group: str) -> list[Value]:
    """PopArt's mean of the value targets of Seaquest at the end of the runs of a group."""

    def of(seed: int) -> float:
        with open(RESULTS / "forgetting_replay" / "value_means.csv", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["group"] == group]
        (value,) = (row["mean_of_seaquest"] for row in rows if row["seed"] == str(seed))
        return float(value)

    return [partial(of, seed) for seed in SEEDS]


def games_of_a_test(experiment: Forgetting) -> list[int]:
    """How many games each of its tests had."""
    return [len(games) for games in returns(experiment.folder).values()]


CLAIMS = [
    *SMALL.rows(),
    *REPLAY.rows(),
    *(
        Claim(
            "docs/results.md",
            f"| {shown}, values of Seaquest | {{}} | {{}} | {{}} |",
            tuple(seaquest_values(group)),
        )
        for shown, group in {REPLAY.before: FIRST, **REPLAY.arms}.items()
    ),
    Claim(
        "docs/results.md",
        "test games: {} of each agent and game, and {} of the first seed's before.",
        (lambda: min(games_of_a_test(SMALL)), lambda: max(games_of_a_test(SMALL))),
    ),
    Claim(
        "docs/results.md",
        "before its own runs. Means of {} test games:",
        (lambda: fmean(games_of_a_test(REPLAY)),),
    ),
]
