"""The twin of agent/run/threaded.py without threads: the world draws who goes on."""

from collections import deque

from ritornello.agent.run.experience import Experience, WorkerReport
from ritornello.core.errors import Closed
from tests.simulated.world import Move

POLL_S = 0.2  # as in the original: how long the learner waits before it looks up
MAX_DEPTH = 8


class Stepped(Experience):
    """What `Threaded` does, one small step per move."""

    def __init__(self, pool, replay, feed, evaluate, *, plan, world, checker):
        super().__init__(pool, replay, feed, evaluate)
        self._plan = plan
        self._world = world
        self._checker = checker
        self._depth = plan.cache_depth
        self._ready = deque()
        self._in_the_making = 0
        self._blocks = deque()  # polled; of the first one, `_row` records are inserted
        self._row = -1  # its WorkerReport comes first
        self._inbox = deque()
        self._failure = None
        self._runs = False

    # --- the main thread -------------------------------------------------------------------------

    def start(self):
        self.pool.start()
        self._runs = True

    def advance(self, moment):
        super().advance(moment)
        self._checker.advanced(moment)

    def next_batch(self):
        while True:
            if self._failure is not None:
                raise self._failure
            if not self._runs:
                return None
            if self._world.step() == "learner":
                return self._take()

    def _take(self):
        if self._failure is not None:
            raise self._failure
        batch = (self._ready or [None])[0] if self._depth else self.sample(0.0)
        if self._depth and self._ready:
            self._ready.popleft()
        if batch is None:
            self._world.now_s += POLL_S
        else:
            self._checker.handed_over(batch)
        return batch

    def reports(self):
        reports = [self._inbox.popleft() for _ in range(len(self._inbox))]
        self._checker.booked(reports)
        return reports

    def adapt(self, values):
        pass  # the depth is a move of its own

    def quiesce(self):
        self._runs = False
        self.replay.close()
        self._ready.clear()

    def close(self):
        self.pool.stop(0.0)

    def state_dict(self):
        self._checker.state_taken()
        return super().state_dict()

    # --- moves -----------------------------------------------------------------------------------

    def moves(self):
        weights = self._plan.weights
        # In the real one it waits in `get`; here, in `next_batch`.
        yield Move("main", "learner", weights["learner"], lambda: None)
        if not self._runs or self._failure is not None:
            return
        yield Move("ingest", "ingest", weights["ingest"], self._ingest)
        if self._depth:
            if len(self._ready) + self._in_the_making < self._depth:
                for thread in range(self._plan.cache_threads):
                    yield Move(f"cache {thread}", f"cache {thread}", weights["cache"], self._cache)
            yield Move("depth", "depth", weights["depth"], self._change_depth)

    def _ingest(self):
        """As `Threaded._take_in_all`, whose failure ends the run."""
        try:
            if not self._blocks:
                self._blocks.extend(self.pool.poll(0.0))
                self._row = -1
                return
            block = self._blocks[0]
            if self._row < 0:
                self._inbox.append(WorkerReport(block.stats, block.episodes))
                self._row = 0
            elif self._row < len(block.records):
                self._insert(block)
            else:
                block.release()
                self._blocks.popleft()
                self._row = -1
        except Closed:
            pass  # replay was closed under a waiting insert: the run is over
        except Exception as error:
            self._failure = error
            self.replay.close()

    def _insert(self, block):
        record = block.records[self._row]
        if self.replay.insert(record, self.moment.update, 0.0):
            self._checker.inserted(block, record)
            self._row += 1

    def _cache(self):
        self._in_the_making += 1
        try:
            batch = self.sample(0.0)
            if batch is not None and self._runs:
                self._ready.append(batch)
        except Closed:
            pass
        except Exception as error:
            self._failure = error
        finally:
            self._in_the_making -= 1

    def _change_depth(self):
        self._depth = self._world.chance.randint(1, MAX_DEPTH)
