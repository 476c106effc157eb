"""Who acts next, when, and what time it is: all of it decided by one seed.

A simulated run has one thread. Whatever goes on at the same time in a real one (workers, ingest,
caches, the thread that writes files, the user, the clock) is a source of moves, and the world draws
which move comes next. Also in the middle of a move: at each fault point (core/faults.py) that is
passed, others may act before it goes on, as other threads and processes would.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

MAX_DEPTH = 3  # moves within moves
MAX_NESTED = 4  # moves of others at one point
STEP_S = 0.01  # mean time that a move takes
REMEMBERED = 100  # lines of the trace


@dataclass(frozen=True)
class Move:
    """Something that may happen next."""

    actor: str  # of whom only one move goes on at a time
    name: str
    weight: float
    act: Callable[[], object]


Source = Callable[[], Iterable[Move]]


class World:
    """Draws moves from a seed, and remembers them."""

    def __init__(self, seed, interruptions):
        """Nothing has happened yet.

        Args:
          seed: of all that follows.
          interruptions: chance that others act at a fault point.
        """
        self.chance = random.Random(seed)
        self.now_s = self.chance.uniform(1.0, 1e6)
        self.moves = 0
        self.sources: list[Source] = []
        self.after_move: Callable[[], object] = lambda: None
        self.trace: deque[str] = deque(maxlen=REMEMBERED)  # what came last
        self._interruptions = interruptions
        self._acting: list[str] = []

    def monotonic(self):
        """Return the virtual time, in seconds; stands in the place of time.monotonic."""
        return self.now_s

    def forget_session(self):
        """The process is gone: nobody acts any more."""
        self.sources.clear()
        self._acting.clear()
        self.after_move = lambda: None

    def step(self):
        """Make the next move of those that nobody is in the middle of; return its name."""
        moves = self._possible()
        (move,) = self.chance.choices(moves, [move.weight for move in moves])
        self._make(move)
        return move.name

    def interrupt(self, point):
        """Let others act at a point of a move that is going on."""
        if len(self._acting) > MAX_DEPTH or self.chance.random() >= self._interruptions:
            return
        self.note(f"[{point}")
        for _ in range(self.chance.randint(1, MAX_NESTED)):
            moves = [move for move in self._possible() if move.actor != "main"]
            if not moves:
                break
            (move,) = self.chance.choices(moves, [move.weight for move in moves])
            self._make(move)
        self.note("]")

    def note(self, what):
        """Add to the trace."""
        self.trace.append(f"{self.now_s:14.3f} {'  ' * len(self._acting)}{what}")

    def _possible(self):
        return [
            move
            for source in self.sources
            for move in source()
            if move.actor not in self._acting and move.weight > 0
        ]

    def _make(self, move):
        self.moves += 1
        self.now_s += self.chance.expovariate(1 / STEP_S)
        self.note(move.name)
        self._acting.append(move.actor)
        try:
            move.act()
        finally:
            # The process may have died within, and then nobody acts.
            if self._acting:
                self._acting.pop()
        self.after_move()
