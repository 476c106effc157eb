"""A circular buffer as one would write it first: a list, searched from the front. Slow on purpose.

Luo et al., "IMPACT" (2020): N batches, each of which is used K times and then replaced.
"""


class NaiveCircular:
    """Holds [id, draws] of unrolls, the one that has waited longest first."""

    def __init__(self, capacity, uses):
        self.capacity = capacity
        self.uses = uses
        self.waiting: list[list[int]] = []
        self.has_left: list[int] = []  # ids, in the order in which they went

    def insert(self, item_id):
        assert len(self.waiting) < self.capacity
        self.waiting.append([item_id, 0])

    def drop(self, item_id):
        self.waiting = [each for each in self.waiting if each[0] != item_id]

    def draw(self, count):
        """Return ids, and how often each was drawn before."""
        assert len(self.waiting) == self.capacity
        if sum(draws for _, draws in self.waiting) == 0:
            self.spread(count)
        fresh = [each for each in self.waiting if each[1] == 0]
        others = [each for each in self.waiting if each[1] > 0]
        due = (fresh + others)[:count]
        before = [draws for _, draws in due]
        for each in due:
            self.waiting.remove(each)
            if each[1] + 1 < self.uses:
                self.waiting.append([each[0], each[1] + 1])
            else:
                self.has_left.append(each[0])
        return [item_id for item_id, _ in due], before

    def spread(self, count):
        """Let the first batches leave one after another: of N, number n after n K / N draws."""
        batches = [self.waiting[start : start + count] for start in range(0, self.capacity, count)]
        for number, batch in enumerate(batches, start=1):
            allowed = 0
            while allowed * len(batches) < self.uses * number:
                allowed += 1
            for each in batch:
                each[1] = self.uses - allowed
