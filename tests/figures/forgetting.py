"""What an agent of two games keeps of them while it learns a third one."""

from __future__ import annotations

import csv
from functools import cache
from statistics import fmean

from tests.figures.files import RESULTS, Claim, Value, welch

SEEDS = (1, 2, 3)
GAMES = ("Breakout", "Seaquest", "Pong")
BEFORE = "two games"
ARMS = {
    "new data only": "then Pong, new data only",
    "CLEAR": "then Pong, CLEAR",
    "a little of the old": "then Pong and a little of the old, replay",
    "a little of the old, CLEAR": "then Pong and a little of the old, CLEAR",
}

# (as shown, the arm with CLEAR's losses, the arm without)
COMPARED = (
    ("with a little of the old", "a little of the old, CLEAR", "a little of the old"),
    ("with Pong alone", "CLEAR", "new data only"),
)


@cache
def returns() -> dict[tuple[str, str, int], list[float]]:
    """Return (group, game, seed) -> the returns of the test games of the last checkpoint."""
    found: dict[tuple[str, str, int], list[float]] = {}
    with open(RESULTS / "forgetting" / "test_games.csv", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            place = row["group"], row["env"].removesuffix("NoFrameskip-v4"), int(row["seed"])
            found.setdefault(place, []).append(float(row["return_raw"]))
    return found


def tested(group: str, game: str, seed: int) -> Value:
    """The mean of the test games."""
    return lambda: fmean(returns()[group, game, seed])


def share(group: str, game: str, seed: int) -> Value:
    """What is left of the mean of before, in percent."""
    return lambda: 100 * tested(group, game, seed)() / tested(BEFORE, game, seed)()


def rows() -> list[Claim]:
    """The test games of each group, what is left of the old games, and what CLEAR adds."""
    claims = []
    for shown, group in {"before": BEFORE, **ARMS}.items():
        values = [tested(group, game, seed) for game in GAMES for seed in SEEDS]
        cells = " {}, {}, {} |" * len(GAMES)
        claims.append(Claim("docs/results.md", f"| {shown}, test games |{cells}", tuple(values)))
    for game in GAMES[:2]:
        left = {arm: [share(group, game, seed) for seed in SEEDS] for arm, group in ARMS.items()}
        for arm, shares in left.items():
            row = f"| left in {game}, {arm} | {{}}, {{}}, {{}} | {{}} | {{}} | {{}} |"
            # Three that are the same have no spread: what is left is the interval of one mean.
            whole: list[Value] = [lambda: 0.0] * len(SEEDS)
            claims.append(Claim("docs/results.md", row, (*shares, *welch(shares, whole))))
        for shown, with_it, without in COMPARED:
            row = f"| CLEAR, {shown}: {game} | {{}} | {{}} | {{}} |"
            claims.append(Claim("docs/results.md", row, welch(left[with_it], left[without])))
    for shown, with_it, without in COMPARED:
        row = f"| CLEAR, {shown}: Pong | {{}} | {{}} | {{}} |"
        ones, others = (
            [tested(ARMS[arm], "Pong", seed) for seed in SEEDS] for arm in (with_it, without)
        )
        claims.append(Claim("docs/results.md", row, welch(ones, others)))
    counts = (lambda: min(map(len, returns().values())), lambda: max(map(len, returns().values())))
    sentence = "test games: {} of each agent and game, and {} of the first seed's before."
    return [*claims, Claim("docs/results.md", sentence, counts)]


CLAIMS = rows()
