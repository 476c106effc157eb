"""What a buffer counts: the items that came, the draws, and the items that went undrawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ritornello.core.saved_state import whole


@dataclass
class Counts:
    """Counters of one buffer, all since the start of the run."""

    offered: int = 0  # items that came, whether or not they got in
    drawn: int = 0
    unused: int = 0  # items that left, or never got in, and were never drawn
    unused_while_filling: int = 0  # such items that had to go so that other buffers could fill up

    def add_unused(self, while_filling: bool) -> None:
        """Count an item that was never drawn and now never will be."""
        if while_filling:
            self.unused_while_filling += 1
        else:
            self.unused += 1

    def stats(self) -> dict[str, float]:
        """Return figures by short name; what only some buffers count is absent in the others."""
        figures = {"draws": float(self.drawn), "dropped": float(self.unused)}
        if self.unused_while_filling:
            figures["dropped_while_filling"] = float(self.unused_while_filling)
        return figures

    def state_dict(self) -> dict[str, int]:
        """Return the counters by name."""
        return asdict(self)

    def go_on_without_items(self, state: Mapping[str, Any]) -> None:
        """Take over counters from `state_dict` into a buffer that is empty again.

        All but `offered`, which says to a reservoir of how many items its own are a sample.
        """
        self.load_state_dict({**state, "offered": self.offered})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over counters by name; one that an older version did not count stays as it is."""
        for field in fields(self):
            if field.name in state:
                setattr(self, field.name, whole(state, field.name))
