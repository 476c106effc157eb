"""Replay for several games: each has its own part of the buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from ritornello.core.errors import ConfigError
from ritornello.replay.parameters import BufferConfig
from ritornello.replay.quotas import Quotas


def played_games(task_shares: Sequence[float]) -> list[int]:
    """Return the numbers of the games that are played: those whose share is not 0.

    An agent may know a game that it does not play now, to be tested in it later.
    """
    return [game for game, share in enumerate(task_shares) if share != 0]


def split_by_task(
    configs: Sequence[BufferConfig], task_shares: Sequence[float]
) -> tuple[BufferConfig, ...]:
    """Give each game its own part of every buffer, if it has `per_game` and does not set the pace.

    So short or fast games cannot push the others out of replay, each game has a fixed share of
    every batch's replayed part, and candidates are compared only with others of their game: one
    network sees different games with features of different size.

    Capacity and sample_ratio are divided in proportion to the shares. The periods of elite
    insertion are stretched, so that together the parts examine as much as one buffer would.

    `task_shares` has a number per game, in task order, of which only the proportions matter. A game
    with share 0 is not played and gets no part.

    Returns:
      The configs in their order, those of one buffer's games side by side in task order. With one
      game, `configs` as they are.

    Raises:
      ConfigError: if a buffer does not have room for one unroll of each game.
    """
    games = played_games(task_shares)
    count = len(games)
    if len(task_shares) == 1:
        return tuple(configs)
    weights = [Fraction(str(task_shares[game])) for game in games]
    shares = [weight / sum(weights) for weight in weights]
    parts: list[BufferConfig] = []
    for config in configs:
        if config.sets_the_pace or not config.values["per_game"]:
            parts.append(config)
            continue
        if config.capacity < count:
            raise ConfigError(
                f"replay buffer {config.type} has capacity {config.capacity}, expected at least "
                f"{count}: each of the {count} games has its own part of it. Raise its capacity in "
                "--replay_parameters."
            )
        values = {**config.values, "score_period": config.values["score_period"] * count}
        parts += [
            replace(
                config,
                capacity=capacity,
                sample_ratio=config.sample_ratio * share,
                values=values,
                task=task,
            )
            for task, capacity, share in zip(
                games, _divide(config.capacity, shares), shares, strict=True
            )
        ]
    return tuple(parts)


def _divide(whole: int, shares: Sequence[Fraction]) -> list[int]:
    """Return whole numbers >= 1 of sum `whole`, nearly in proportion to the shares (of sum 1)."""
    parts = Quotas(shares, whole).next()
    for place, part in enumerate(parts):
        if not part:
            parts[parts.index(max(parts))] -= 1
            parts[place] = 1
    return parts
