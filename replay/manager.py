"""The replay manager: the only lock of this package, and the only place where anybody waits.

Unrolls come in by `insert` (the ingest thread), batches of draws go out by `sample` (the cache
threads). Each unroll goes into every buffer that takes its game; each batch has its quota from
every buffer. Who has to wait for whom is decided in replay/mixing.py, which also states the
liveness rule.

Expensive work happens outside the lock: encoding before it, scoring and decoding after it. Items
are immutable, so one that is evicted meanwhile is still good to learn from.

Next to read: replay/cache.py, which calls `sample` ahead of the learner.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from core import faults
from core.errors import CheckpointError, Closed, ConfigError
from core.unroll import Record, UnrollSchema
from replay.buffer import Buffer
from replay.codec import Codec
from replay.item import Draw, Item
from replay.mixing import DISCARDING_STRATEGIES, Mixer
from replay.priorities import Outcome
from replay.scoring import Claim, Evaluation, RecordReader, SampleContext, choose, common_stride

__all__ = ["DISCARDING_STRATEGIES", "Evaluation", "ReplayManager", "SampleContext"]

STATE_FORMAT = 1
COUNTERS = ("next_id", "update", "draws", "online_draws")


class ReplayManager:
    """Owns the buffers, the lock, and the two conditions. Any thread may call any method.

    What `sample` has collected when its time is up is kept for the next call, so nothing is lost or
    reordered; several threads in `sample` collect for the same batch.
    """

    def __init__(
        self,
        buffers: Sequence[Buffer],
        ratios: Sequence[Fraction],
        batch_size: int,
        rng: np.random.Generator,
        *,
        schema: UnrollSchema,
        codec: Codec,
        discarding_strategy: str = "block",
        max_draws_per_unroll: float | None = None,
    ) -> None:
        """Put the buffers together.

        Args:
          buffers: from `replay.kinds.make_buffers`; the order is the order within a batch.
          ratios: share of each buffer in a batch, of sum 1.
          batch_size: B, draws per batch.
          rng: the only source of chance; from now on the manager's own.
          schema: of the records.
          codec: how records are kept.
          discarding_strategy: what a full queue does: "block" makes `insert` wait, "keep_latest"
            drops its oldest, "keep_oldest" drops the new one, "alternating" takes turns.
          max_draws_per_unroll: draws per unroll; needed without a queue, see `Pace`. With a queue
            only an upper limit.

        Raises:
          ConfigError: if the parts do not fit together.
        """
        for buffer in buffers:
            if buffer.needs_stored_features and not schema.feature_count:
                raise ConfigError(
                    f"replay buffer {buffer.name} compares stored features, but unrolls carry "
                    "none: build the schema with a feature_count."
                )
        common_stride(buffers)  # refuses different ones
        self.buffers = tuple(buffers)
        self.batch_size = batch_size
        self.needs_evaluation = any(buffer.needs_evaluation for buffer in buffers)
        self.needs_outcomes = any(buffer.uses_priorities for buffer in buffers)
        self._schema = schema
        self._codec = codec
        self._mixer = Mixer(
            buffers, ratios, batch_size, rng, discarding_strategy, max_draws_per_unroll
        )
        self._lock = threading.Lock()
        self._inserted = threading.Condition(self._lock)  # sample may go on
        self._taken = threading.Condition(self._lock)  # insert may go on
        self._closed = False
        self._next_id = 0  # and the number of unrolls so far
        self._update = 0
        self._draws = 0
        self._online_draws = 0

    def insert(self, record: Record, update: int, timeout_s: float) -> bool:
        """Copy an unroll into every buffer that takes its game.

        Args:
          record: [nbytes] uint8, of the manager's schema. Only read, and not kept.
          update: updates the learner has done.
          timeout_s: how long to wait for room.

        Returns:
          False if there was no room in time; nothing has changed then.

        Raises:
          Closed: if the manager is or gets closed.
          ValueError: if it is of a game that the buffers are not for.
        """
        version, worker_id, env_id, task = (
            int(self._schema.view(record, name))
            for name in ("version", "worker_id", "env_id", "task_id")
        )
        payload = self._codec.encode(record)
        faults.at("replay.insert")
        deadline = time.monotonic() + timeout_s
        with self._lock:
            self._raise_if_closed()
            while self._mixer.insert_must_wait():
                if not _wait(self._taken, deadline):
                    return False
                self._raise_if_closed()
            item = Item(self._next_id, payload, self._codec, version, update)
            self._next_id += 1
            self._update = max(self._update, update)
            self._mixer.put(item, (worker_id, env_id), task)
            self._inserted.notify_all()
            return True

    def discard(self, ids: Iterable[int]) -> None:
        """Drop unrolls from which nothing can be learned, so that they are not drawn again.

        Args:
          ids: of their items (`Item.id`); those that are not here any more are passed over.
        """
        with self._lock:
            self._mixer.discard(set(ids))
            self._taken.notify_all()

    def sample(self, context: SampleContext, timeout_s: float) -> list[Draw] | None:
        """Return the draws of one batch: exactly `batch_size`, grouped by buffer in their order.

        Args:
          context: what the learner's side knows now.
          timeout_s: how long to wait for unrolls.

        Returns:
          None if there were not enough unrolls in time; what was collected is kept.

        Raises:
          Closed: if the manager is or gets closed.
        """
        claim = self._claim(context, time.monotonic() + timeout_s)
        if claim is None:
            return None
        faults.at("replay.sample")
        read = RecordReader()
        choice = choose(self.buffers, claim, context, self._schema, read)
        with self._lock:
            for buffer, chosen in zip(self.buffers, choice.chosen, strict=True):
                buffer.commit(chosen.items)
            for source, drifts in choice.drifts.items():
                self.buffers[source].remember(claim.examinations[source], drifts)
        return [
            Draw(item, source, read(item), self.buffers[source].consumes, weight)
            for source, chosen in enumerate(choice.chosen)
            for item, weight in chosen.weighted()
        ]

    def feed_back(self, ids: Sequence[int], outcome: Outcome) -> None:
        """Let the buffers that draw by priorities know what an update has learned.

        All of them, whichever buffer an unroll was drawn from: what it is worth is the same. Nobody
        is made to wait, and after `close` this does no harm.

        Args:
          ids: [n] of the items (`Item.id`) that were learned from; those that are not here any more
            are passed over.
          outcome: of these n unrolls, in the same order.
        """
        priorities = {b: b.priorities(outcome) for b in self.buffers if b.uses_priorities}
        with self._lock:
            for buffer, of_unrolls in priorities.items():
                buffer.reprioritise(ids, of_unrolls)

    def _claim(self, context: SampleContext, deadline: float) -> Claim | None:
        """Wait until there is a batch and take it, or what there is of it."""
        with self._lock:
            self._raise_if_closed()
            self._update = max(self._update, context.update)
            while True:
                complete = self._mixer.can_complete()
                if self._mixer.may_collect() and self._mixer.collect():
                    self._taken.notify_all()
                if complete:
                    break
                if not _wait(self._inserted, deadline):
                    return None
                self._raise_if_closed()
            claim = self._mixer.claim(context.progress)
            self._draws += self.batch_size
            self._online_draws += sum(
                proposal.count
                for buffer, proposal in zip(self.buffers, claim.proposals, strict=True)
                if buffer.consumes
            )
            # Also where no queue was touched: the pace may have been what held inserts back.
            self._taken.notify_all()
            return claim

    def can_sample(self) -> bool:
        """Whether `sample` would return a batch at once."""
        with self._lock:
            return self._mixer.can_complete()

    def missing(self) -> str:
        """Return what the next batch waits for, to be shown to the user; empty if nothing."""
        with self._lock:
            return self._mixer.missing()

    def quotas(self) -> dict[str, int]:
        """Return the draws per buffer of the batch that is being collected; their sum is B."""
        with self._lock:
            names = [buffer.name for buffer in self.buffers]
            return dict(zip(names, self._mixer.wanted, strict=True))

    def stats(self) -> dict[str, float]:
        """Return metrics by name; what has no value yet is absent."""
        with self._lock:
            figures = {
                f"replay/{buffer.name}/{name}": value
                for buffer in self.buffers
                for name, value in buffer.stats(self._update).items()
            }
            if self._next_id:
                figures["replay/draws_per_unroll"] = self._draws / self._next_id
            if self._online_draws:
                figures["replay/ratio"] = (self._draws - self._online_draws) / self._online_draws
            held = self._mixer.items()
        figures["replay/memory_mb"] = sum(item.payload.nbytes for item in held.values()) / 1e6
        return figures

    def close(self) -> None:
        """Wake everybody who waits; they and all later callers get Closed. Idempotent."""
        with self._lock:
            self._closed = True
            self._inserted.notify_all()
            self._taken.notify_all()

    def state_dict(self, contents: bool) -> dict[str, Any]:
        """Return the state as plain types and arrays.

        Everything that changes is copied. The bytes of the items, to which nobody ever writes, are
        shared, so that saving gigabytes of replay takes no second set of gigabytes.

        Args:
          contents: include the items. Without them buffers start empty when the state is loaded,
            and fill up again before the first batch.
        """
        with self._lock:
            return {
                "format": STATE_FORMAT,
                "buffers": [buffer.name for buffer in self.buffers],
                "counters": {name: getattr(self, f"_{name}") for name in COUNTERS},
                "mixer": self._mixer.state_dict(),
                "contents": self._mixer.contents(self._schema.nbytes) if contents else None,
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state from `state_dict`.

        Raises:
          CheckpointError: if it is of other buffers or of another schema.
        """
        names = [buffer.name for buffer in self.buffers]
        if state["format"] != STATE_FORMAT or list(state["buffers"]) != names:
            raise CheckpointError(
                f"replay state has format {state['format']} and buffers {list(state['buffers'])}, "
                f"expected format {STATE_FORMAT} and buffers {names}. "
                "Give the --replay_parameters and the games that the checkpoint was made with."
            )
        with self._lock:
            if state["contents"] is not None:
                self._mixer.load_contents(state["contents"], self._schema)
            self._mixer.load_state_dict(state["mixer"])
            for name in COUNTERS:
                setattr(self, f"_{name}", int(state["counters"][name]))
            self._inserted.notify_all()
            self._taken.notify_all()

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise Closed("the replay manager is closed.")


def _wait(condition: threading.Condition, deadline: float) -> bool:
    """Wait for a notification; False, at once, if the deadline has passed already."""
    remaining_s = deadline - time.monotonic()
    if remaining_s <= 0:
        return False
    condition.wait(remaining_s)
    return True
