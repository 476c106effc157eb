"""A replay buffer as one would write it first: lists, searched from the front. Slow on purpose."""


class NaiveBuffer:
    """Holds ids, oldest first, how often each was drawn, and the priority of each."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.ids: list[int] = []
        self.draws: dict[int, int] = {}
        self.priorities: dict[int, float] = {}
        self.given: list[float] = []  # all priorities that items here were ever given
        self.unused = 0

    def insert(self, item_id):
        """Drop the oldest if there is no room; return it."""
        dropped = self.ids[0] if len(self.ids) == self.capacity else None
        if dropped is not None:
            self.drop(dropped)
        self.ids.append(item_id)
        self.draws[item_id] = 0
        self.priorities[item_id] = max(self.given, default=1.0)
        return dropped

    def drop(self, item_id):
        self.ids.remove(item_id)
        self.unused += self.draws.pop(item_id) == 0
        del self.priorities[item_id]

    def count_draws(self, drawn):
        for item_id in drawn:
            if item_id in self.draws:
                self.draws[item_id] += 1

    def give_priorities(self, given):
        for item_id, priority in given:
            if item_id in self.ids:
                self.priorities[item_id] = priority
                self.given.append(priority)
