"""A replay buffer as one would write it first: lists, searched from the front. Slow on purpose."""

from __future__ import annotations


class NaiveBuffer:
    """Holds ids, oldest first, and how often each was drawn."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.ids: list[int] = []
        self.draws: dict[int, int] = {}
        self.unused = 0

    def insert(self, item_id: int) -> int | None:
        """Drop the oldest if there is no room; return it."""
        dropped = self.ids[0] if len(self.ids) == self.capacity else None
        if dropped is not None:
            self.drop(dropped)
        self.ids.append(item_id)
        self.draws[item_id] = 0
        return dropped

    def drop(self, item_id: int) -> None:
        self.ids.remove(item_id)
        self.unused += self.draws.pop(item_id) == 0

    def count_draws(self, drawn: list[int], max_times: int | None) -> None:
        for item_id in drawn:
            if item_id in self.draws:
                self.draws[item_id] += 1
                if max_times is not None and self.draws[item_id] >= max_times:
                    self.drop(item_id)
