"""Whether full replay will fit into memory: said when a run begins, and long before it is full.

How far frames can be compressed is not known before some were seen. So the first unrolls are
weighed, and what all of them will take is compared with the memory that is free then, within the
limit of this container if it has one. If it cannot fit, the run ends at once, while nothing is
lost, and not after hours by the kernel. It is weighed again each time the number of unrolls has
doubled, because games look different once they are played better; from then on it is only said.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from ritornello.core.errors import ConfigError

log = logging.getLogger(__name__)

FIRST_UNROLLS = 100
# Of Python's objects around a payload: the item, its array, its places in two buffers and tables.
ITEM_BYTES = 600
OF_ITEMS, OF_MEMORY = "replay/unrolls", "replay/memory_mb"


class CapacityWatch:
    """Weighs replay while it fills up. Belongs to the thread that writes the records."""

    def __init__(
        self,
        unrolls: int,
        record_nbytes: int,
        free_bytes: Callable[[], int],
        *,
        is_compressed: bool = False,
        agents: int = 1,
    ) -> None:
        """Say what is known at the start.

        Args:
          unrolls: number of unrolls that all buffers together hold when they are full.
          record_nbytes: size of one that is not compressed.
          free_bytes: returns how much memory this process may still take.
          is_compressed: whether unrolls are kept compressed.
          agents: number of agents like this one that fill up on this machine.
        """
        self._unrolls = unrolls
        self._record_nbytes = record_nbytes
        self._free_bytes = free_bytes
        self._is_compressed = is_compressed
        self._agents = agents
        self._next_look = min(FIRST_UNROLLS, unrolls)  # number of unrolls
        self._has_said = False
        size = "at most " if is_compressed else ""
        log.info(
            "replay: %s unrolls when full, %s%.2g GB%s; %.2f GB of memory are free",
            f"{unrolls:,}",
            size,
            unrolls * (record_nbytes + ITEM_BYTES) / 1e9,
            " (compressed, so how much is known after the first unrolls)" if is_compressed else "",
            free_bytes() / 1e9,
        )

    def look(self, figures: Mapping[str, float]) -> None:
        """Weigh what is there, if it is time to.

        Args:
          figures: metrics of replay: OF_ITEMS and OF_MEMORY.

        Raises:
          ConfigError: at the first look, if replay will not fit.
        """
        held = int(figures.get(OF_ITEMS, 0))
        if held < self._next_look or held == 0:
            return
        is_first, self._has_said = not self._has_said, True
        self._next_look = 2 * held
        each = figures[OF_MEMORY] * 1e6 / held
        missing = max(0, self._unrolls - held)
        needed = self._agents * missing * (each + ITEM_BYTES)
        free = self._free_bytes()
        full = self._unrolls * (each + ITEM_BYTES)
        if needed <= free:
            if is_first and self._is_compressed:
                log.info(
                    "replay: an unroll takes %.1f kB (%.1f times smaller), so full replay of %s "
                    "takes %.2f GB; %.2f GB of memory are free",
                    each / 1e3, self._record_nbytes / each, f"{self._unrolls:,}", full / 1e9,
                    free / 1e9,
                )  # fmt: skip
            return
        message = self._message(each, full, needed, free)
        if is_first:
            raise ConfigError(message)
        log.warning("%s", message)

    def _message(self, each: float, full: float, needed: float, free: float) -> str:
        agents = "" if self._agents == 1 else f", for {self._agents} agents"
        advice = "lower the capacities in --replay_parameters to " + (
            f"{100 * free / needed:.0f} % of what they are"
        )
        if not self._is_compressed:
            advice += ", or give --use_replay_compression=True"
        return (
            f"replay of {self._unrolls:,} unrolls of {each / 1e3:.1f} kB will take "
            f"{full / 1e9:.2f} GB of memory when it is full. It still needs {needed / 1e9:.2f} GB"
            f"{agents}, and {free / 1e9:.2f} GB are free (on this machine, within the limit of "
            f"its container): {advice}."
        )
