"""Where batches come from: what every source has, and the serial one.

`Serial` does everything in the caller's thread, in turn; it is the readable twin, used by
`--reproducible`. `Threaded` (agent/run/threaded.py) is what trains fast.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ritornello.agent.algorithms.batch import Batch
from ritornello.agent.learning.feed import Feed, PackedBatch
from ritornello.agent.pools.worker_pool import WorkerPool
from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import CheckpointError, ConfigError
from ritornello.core.saved_state import StateError, item, items, restoring, within
from ritornello.core.unroll import Record
from ritornello.replay.manager import ReplayManager
from ritornello.replay.sampler import Outcome
from ritornello.replay.scoring import Evaluate, SampleContext
from ritornello.transport.channel import WorkerStats

if TYPE_CHECKING:
    from ritornello.agent.pools.serial_pool import SerialPool

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Moment:
    """How far learning has come."""

    update: int = 0  # updates done: the version of the newest weights
    progress: float = 0.0  # share of the schedule that is done, 0 to 1


@dataclass(frozen=True)
class WorkerReport:
    """The reports that came with one block of unrolls."""

    stats: WorkerStats
    episodes: tuple[EpisodeEnd, ...]  # games that ended


class Experience:
    """Makes batches: a worker pool, replay, and a feed that makes batches of draws.

    Methods that are not implemented here differ between `Serial` and `Threaded`. Used by the main
    thread only; `quiesce` and `close` may be called twice.
    """

    grace_s = 0.0  # for workers to end what they do
    is_exact = False  # whether a resumed run has to be the same as one without a stop

    def __init__(
        self, pool: WorkerPool, replay: ReplayManager, feed: Feed, evaluate: Evaluate | None = None
    ) -> None:
        """Start nothing. `evaluate` is the function by which elite and attentive replay score."""
        self.pool = pool
        self.replay = replay
        self._feed = feed
        self._evaluate = evaluate
        self._heard: deque[WorkerReport] = deque()  # not yet taken by the main thread
        self.moment = Moment()  # written by the main thread, read by all

    def start(self) -> None:
        """Start workers and threads."""
        raise NotImplementedError

    def next_batch(self) -> Batch | PackedBatch | None:
        """Return the next batch, or None if there was none for a fraction of a second.

        Raises:
          BaseException: whatever ended the making of experience, such as WorkerDied.
        """
        raise NotImplementedError

    def check(self) -> None:
        """Raise what has ended the making of experience, where no batch is asked for."""

    def reports(self) -> list[WorkerReport]:
        """Return what workers have reported since the last call, oldest first."""
        return [self._heard.popleft() for _ in range(len(self._heard))]

    def quiesce(self) -> None:
        """End the making of batches. Afterwards replay stands still and can be saved."""
        raise NotImplementedError

    def close(self) -> None:
        """Ask the workers to leave, then force those that do not."""
        self.pool.stop(self.grace_s)

    def advance(self, moment: Moment) -> None:
        """Set the moment of learning that batches made from now on are for."""
        self.moment = moment

    def feed_back(self, batch: Batch | PackedBatch, errors: Tensor | None) -> None:
        """Report the errors of an update to replay, if it draws by them.

        `errors` are [T, B], for the steps of `batch`; see `agent.algorithms.base.Loss`.

        Raises:
          ConfigError: if replay draws by errors and the algorithm gives none.
        """
        if not self.replay.needs_outcomes:
            return
        if errors is None:
            raise ConfigError(
                "a replay buffer draws by the errors of values, and the algorithm reports none. "
                "Use another kind in --replay_parameters, e.g. standard."
            )
        found = errors.T.cpu().numpy()  # the update is done, so nobody waits for the device here
        learned = ~np.isnan(found)
        self.replay.feed_back(batch.item.tolist(), Outcome(np.where(learned, found, 0), learned))

    def adapt(self, values: Mapping[str, float]) -> None:
        """Adapt settings to the values of a record; there is nothing to adapt here."""

    def missing(self) -> list[str]:
        """Return what the next batch waits for and what each process does, for the user."""
        return [self.replay.missing(), *self.pool.describe()]

    def stats(self) -> dict[str, float]:
        """Return metrics of replay and workers by name.

        Those of the cache, if there is one, are over the time since the last call.
        """
        return {**self.replay.stats(), **self.pool.stats()}

    def state_dict(self) -> dict[str, Any]:
        """Return the counters, for a checkpoint; in a serial run also the rollouts."""
        return {"replay": self.replay.state_dict(contents=False)}

    def load_state_dict(self, state: Mapping[str, Any], contents: Mapping[str, Any] | None) -> bool:
        """Take over a state from `state_dict`, and contents if they were saved. Before `start`.

        Return whether contents were taken over.
        """
        for place, saved in (("contents", contents), ("replay", item(state, "replay", dict))):
            if saved is None:
                continue
            try:
                with within(place):
                    self.replay.load_state_dict(saved)
                if not self.is_exact:  # else each resume could end by the same bad updates
                    self.replay.discard_not_finite()
                return place == "contents"
            except StateError as error:
                if place == "replay":
                    raise
                raise CheckpointError(
                    f"The saved replay contents are damaged or of another program: {error}. The "
                    "model is sound: give --load_replay=False to resume it with empty buffers."
                ) from error
            except CheckpointError as error:
                log.warning("%s Going on with empty buffers.", error)
        return False

    def sample(self, timeout_s: float) -> Batch | PackedBatch | None:
        """Return a batch, or None if nothing could be drawn in time."""
        moment = self.moment
        context = SampleContext(
            update=moment.update, progress=moment.progress, evaluate=self._evaluate
        )
        draws = self.replay.sample(context, timeout_s)
        # Ages as of now: updates may have been made, and unrolls come in, while the draw waited.
        return None if draws is None else self._feed.compose(draws, self.moment.update)


class Serial(Experience):
    """Rollouts, replay and batches in turn, in the caller's thread: deterministic, restorable."""

    is_exact = True

    def __init__(
        self, pool: SerialPool, replay: ReplayManager, feed: Feed, evaluate: Evaluate | None = None
    ) -> None:
        """Start nothing; see `Experience`."""
        super().__init__(pool, replay, feed, evaluate)
        self._pool = pool
        self._waiting: deque[Record] = deque()  # collected, not yet inserted
        self._saved_pool: Mapping[str, Any] | None = None  # to be restored by `start`
        self._saved_draws: Tensor | None = None  # and this after it
        self._ended = False

    def start(self) -> None:
        """Build every worker's environments and model, and put them where they were."""
        self._pool.start()
        if self._saved_pool is not None:
            with restoring("the checkpoint"), within("serial", "pool"):
                self._pool.load_state_dict(self._saved_pool)
            self._saved_pool = None
        if self._saved_draws is not None:
            with restoring("the checkpoint"), within("serial", "draws"):
                torch.set_rng_state(self._saved_draws)
            self._saved_draws = None

    def next_batch(self) -> Batch | PackedBatch | None:
        """Take one step towards the next batch: sample, or else collect, or else insert.

        `insert` and `sample` are never both stuck, so calls one after the other come to a batch.
        Between two of them the caller looks up: it may have been asked to stop.
        """
        if self._ended:
            return None
        batch = self.sample(0.0)
        if batch is not None:
            return batch
        if not self._waiting:
            for block in self._pool.poll(0.0):
                self._heard.append(WorkerReport(block.stats, block.episodes))
                self._waiting.extend(block.records)
        if self.replay.insert(self._waiting[0], self.moment.update, 0.0):
            self._waiting.popleft()
        return None

    def quiesce(self) -> None:
        """End the making of batches."""
        self._ended = True

    def state_dict(self) -> dict[str, Any]:
        """Return the counters of replay, the rollouts, and the unrolls that wait between them.

        A network of a user's own may draw from PyTorch's global generator, as dropout does: its
        state on the CPU is kept.
        """
        serial = {
            "pool": self._pool.state_dict(),
            "waiting": list(self._waiting),
            "draws": torch.get_rng_state(),
        }
        return {**super().state_dict(), "serial": serial}

    def load_state_dict(self, state: Mapping[str, Any], contents: Mapping[str, Any] | None) -> bool:
        """Go on exactly where `state_dict` was taken, once started."""
        is_whole = super().load_state_dict(state, contents)
        serial = item(state, "serial", dict, default=None)
        if serial:
            with within("serial"):
                self._saved_pool = item(serial, "pool", dict)
                waiting = items(serial, "waiting", np.ndarray)
                self._saved_draws = item(serial, "draws", Tensor, default=None)
            # Unrolls of another schema are left behind, as those in the buffers were.
            layout = (np.dtype(np.uint8), (self._feed.layout.record_nbytes,))
            if is_whole:
                self._waiting.extend(r for r in waiting if (r.dtype, r.shape) == layout)
        return is_whole
