"""Who goes when a queue is full: the new unroll, or the oldest one; or the worker waits."""

from __future__ import annotations

from typing import Literal, get_args

from ritornello.core.errors import ConfigError

DiscardingStrategy = Literal["block", "keep_latest", "keep_oldest", "alternating"]
DISCARDING_STRATEGIES: tuple[str, ...] = get_args(DiscardingStrategy)


class Discarding:
    """One of `DISCARDING_STRATEGIES` (`ReplayManager` explains them), and whose turn it is."""

    def __init__(self, strategy: str) -> None:
        """Follow a strategy; the first unroll that "alternating" drops is an old one.

        Raises:
          ConfigError: if there is no such strategy.
        """
        if strategy not in DISCARDING_STRATEGIES:
            raise ConfigError(
                f"discarding_strategy is {strategy!r}, "
                f"expected one of {', '.join(DISCARDING_STRATEGIES)}."
            )
        self.waits = strategy == "block"  # a full queue makes `insert` wait, where it may
        self._strategy = strategy
        self.drop_newest_next = False  # whose turn it is in "alternating"

    def newcomer_goes(self) -> bool:
        """Whether the new unroll is dropped, not the oldest; each call is one turn.

        With "block" the oldest goes: it is asked only if waiting would stop the program for ever.
        """
        if self._strategy == "alternating":
            self.drop_newest_next = not self.drop_newest_next
            return not self.drop_newest_next
        return self._strategy == "keep_oldest"
