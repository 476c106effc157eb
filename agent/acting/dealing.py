"""Which environment plays which game, where one run plays several."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ritornello.core.errors import ConfigError
from ritornello.replay.several_games import played_games


def deal_tasks(
    shares: Sequence[float], worker_count: int, envs_per_worker: int
) -> list[tuple[int, ...]]:
    """Deal the games out to environments; return, for each worker, the game of each environment.

    `shares` has the weight of each game; none is negative, and at least one is positive. A game of
    share 0 gets no environment. Every other gets at least one, and otherwise its share of them,
    rounded by largest remainders; a worker gets an equal part of each game, give or take one
    environment. Its environments are in the order of the games, so that neighbours play the same
    one.

    Raises:
      ConfigError: if there are fewer environments than games that are played, or the shares are not
        as above.
    """
    total, games = worker_count * envs_per_worker, played_games(shares)
    if total < len(games):
        raise ConfigError(
            f"there are {len(games)} games and {total} environments ({worker_count} workers with "
            f"{envs_per_worker} each), expected at least one for each game: raise "
            f"--envs_per_worker to {-(-len(games) // worker_count)}, or --worker_count."
        )
    whole = sum(shares)
    if not math.isfinite(total * whole):
        raise ConfigError(f"shares are {list(shares)}, expected smaller numbers, such as 2 and 1.")
    wanted = [total * share / whole for share in shares]
    counts = [
        max(1, int(number)) if share else 0 for number, share in zip(wanted, shares, strict=True)
    ]
    # Largest remainders; after the rounding up to 1, what is too much goes where most is over.
    while sum(counts) != total:
        step = 1 if sum(counts) < total else -1
        candidates = [game for game in games if counts[game] + step >= 1]
        chosen = max(candidates, key=lambda game: step * (wanted[game] - counts[game]))
        counts[chosen] += step
    cards = [game for game, count in enumerate(counts) for _ in range(count)]
    return [tuple(cards[worker::worker_count]) for worker in range(worker_count)]
