"""Worker processes, replay and batches side by side with the learner, in threads.

| thread | calls | owns meanwhile |
|---|---|---|
| main | everything public here | the learner, the books, the writing side of the weight board |
| ingest | `pool.poll`, `replay.insert` | the worker pool, from `start` until `quiesce` |
| cache (one or more) | `replay.sample`, `feed.compose`, the scorer | nothing: replay locks itself |

With `advance` the main thread tells how far learning has come; the other threads only read the
newest value. Reports of the workers wait in a deque until the main thread takes them.
An exception that ends a thread ends the run: `next_batch` raises it. (metrics/output_thread.py has
the output threads, and agent/models/parallel.py has the threads that learn from shares of a batch.
Both belong to the main thread.) Next to read: agent/run/trainer.py, the loop that uses it.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Mapping

from ritornello.agent.algorithms.batch import Batch
from ritornello.agent.learning.feed import Feed, PackedBatch
from ritornello.agent.pools.worker_pool import UnrollBlock, WorkerPool
from ritornello.agent.run.experience import Experience, WorkerReport
from ritornello.core.errors import Closed
from ritornello.core.project import PACKAGE
from ritornello.replay.cache import BatchCache, next_depth
from ritornello.replay.manager import ReplayManager
from ritornello.replay.scoring import Evaluate

POLL_S = 0.2  # how often waiting threads look whether the run is over
JOIN_S = 30.0  # the ingest thread looks up every POLL_S; beyond this it hangs


class Threaded(Experience):
    """Worker processes, an ingest thread and cache threads, side by side with the learner."""

    grace_s = 3.0  # workers finish their unroll (well under a second) before they are terminated

    def __init__(
        self,
        pool: WorkerPool,
        replay: ReplayManager,
        feed: Feed,
        evaluate: Evaluate | None = None,
        *,
        cache_depth: int | None,
        cache_threads: int = 1,
    ) -> None:
        """Start nothing; see `Experience`.

        `cache_depth` batches are made ahead. With 0 each batch is made when it is needed; with None
        the number adapts itself.
        """
        super().__init__(pool, replay, feed, evaluate)
        self._cache_depth = cache_depth
        self._cache_threads = cache_threads
        self._stop = threading.Event()
        self._failure: BaseException | None = None  # of the ingest thread
        self._ingest: threading.Thread | None = None
        self._cache: BatchCache[Batch | PackedBatch] | None = None

    def start(self) -> None:
        """Start workers, the thread that inserts their unrolls, and those that make batches."""
        self.pool.start()
        self._ingest = threading.Thread(target=self._take_in_all, name="ingest", daemon=True)
        self._ingest.start()
        depth = 1 if self._cache_depth is None else self._cache_depth
        self._cache = BatchCache(lambda: self.sample(POLL_S), depth, self._cache_threads)

    def next_batch(self) -> Batch | PackedBatch | None:
        """Return the next batch, or None after POLL_S without one."""
        assert self._cache is not None, "start() comes first"
        self.check()
        try:
            return self._cache.get(POLL_S)
        except Closed:
            pass  # the ingest thread failed between the two looks, or this was quiesced
        self.check()
        return None

    def check(self) -> None:
        """Raise what has ended the ingest thread or a cache thread, where no batch is asked for."""
        cache = self._cache
        for failure in (self._failure, None if cache is None else cache.error):
            if failure is not None and not isinstance(failure, Closed):
                raise failure

    def stats(self) -> dict[str, float]:
        """Return metrics by name; those of the cache are over the time since the last call."""
        figures = super().stats()
        return figures if self._cache is None else {**figures, **self._cache.stats()}

    def missing(self) -> list[str]:
        """Return what the next batch waits for, and where every process and thread is."""
        return [*super().missing(), *_where_threads_are()]

    def adapt(self, values: Mapping[str, float]) -> None:
        """Set the number of batches made ahead, by how long the learner waited for them."""
        if self._cache_depth is not None or self._cache is None:
            return
        depth = next_depth(
            self._cache.depth,
            values.get("cache/wait_fraction", 0.0),
            values.get("cache/fill", 0.0),
            values.get("lag/mean_updates", 0.0),
        )
        self._cache.set_depth(depth)

    def quiesce(self) -> None:
        """Wake and end every thread, each within a deadline."""
        self._stop.set()
        self.replay.close()
        try:
            if self._cache is not None:
                self._cache.close()
        finally:
            if self._ingest is not None:
                self._ingest.join(JOIN_S)
        if self._ingest is not None and self._ingest.is_alive():
            raise TimeoutError(
                f"the ingest thread did not end within {JOIN_S:g} s: the worker pool does not "
                "answer, or an insert into replay does not return."
            )

    # --- the ingest thread -----------------------------------------------------------------------

    def _take_in_all(self) -> None:
        try:
            while not self._stop.is_set():
                for block in self.pool.poll(POLL_S):
                    self._take_in(block)
        except Closed:
            pass  # replay was closed under a waiting insert: the run is over
        except BaseException as error:
            self._failure = error
            self.replay.close()  # wakes who waits for what will not come any more

    def _take_in(self, block: UnrollBlock) -> None:
        self._heard.append(WorkerReport(block.stats, block.episodes))
        for record in block.records:
            while not self.replay.insert(record, self.moment.update, POLL_S):
                if self._stop.is_set():
                    return
        block.release()


def _where_threads_are() -> list[str]:
    """Return a line for each thread but the main one: "ingest: insert (manager.py:120)"."""
    lines, frames = [], sys._current_frames()
    for thread in threading.enumerate():
        stack = traceback.extract_stack(frames.get(thread.ident or 0))
        ours = [entry for entry in stack if entry.filename.startswith(str(PACKAGE))]
        if ours and thread is not threading.main_thread():
            lines.append(f"{thread.name}: {ours[-1].name} ({ours[-1].filename}:{ours[-1].lineno})")
    return lines
