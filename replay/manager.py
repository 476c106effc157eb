"""The replay manager: the lock of the buffers, at which threads wait for unrolls or for room.

The ingest thread adds unrolls by `insert`, and the cache threads take batches of draws by `sample`.
replay/mixing.py decides which side has to wait. Expensive work happens outside the lock: encoding
before it, scoring and decoding after it; an item that is evicted meanwhile is still learned from.

Next to read: replay/cache.py, which calls `sample` ahead of the learner.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ritornello.core import faults
from ritornello.core.errors import CheckpointError, Closed
from ritornello.core.plain_data import shown
from ritornello.core.saved_state import expect, item, items, whole, within
from ritornello.core.unroll import Record, UnrollSchema
from ritornello.replay.buffer import Buffer
from ritornello.replay.codec import Codec, encode
from ritornello.replay.item import Draw, Item
from ritornello.replay.mixing import DiscardingStrategy, Mixer
from ritornello.replay.sampler import Outcome
from ritornello.replay.scoring import Claim, SampleContext, choose, common_stride

STATE_FORMAT = 1
COUNTERS = ("next_id", "update", "draws", "online_draws")


class ReplayManager:
    """Owns the buffers, their lock, and the two conditions. Any thread may call any method.

    If `sample` runs out of time, the unrolls that it has collected are kept for the next call, so
    nothing is lost or reordered. Several threads in `sample` collect for the same batch.
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
        discarding_strategy: DiscardingStrategy = "block",
        max_draws_per_unroll: float | None = None,
    ) -> None:
        """Put the buffers together.

        Args:
          buffers: the buffers, in their order within a batch.
          ratios: share of each buffer in a batch; the sum is 1.
          batch_size: B, number of draws per batch.
          rng: the only source of random numbers; the manager owns it from now on.
          schema: layout of the records.
          codec: encoding in which records are kept.
          discarding_strategy: what a full queue or circular buffer does with a new unroll. "block"
            makes `insert` wait, "keep_latest" drops the oldest unroll, "keep_oldest" drops the new
            one, "alternating" does the last two in turn.
          max_draws_per_unroll: mean number of draws per unroll (see `Pace`), required unless a
            buffer sets the pace. If one does, this is only an upper limit.

        Raises:
          ConfigError: if the parts do not fit together.
        """
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
          record: [nbytes] uint8, in the manager's schema; it is only read, and not kept.
          update: number of updates that the learner has done; a draw may know of later ones.
          timeout_s: longest time to wait for room, in seconds.

        Returns:
          False if there was no room in time; then nothing has changed.

        Raises:
          Closed: if the manager is closed, or gets closed meanwhile.
          ValueError: if no buffer accepts the game of the unroll.
        """
        version, worker_id, env_id, task = (
            int(self._schema.view(record, name))
            for name in ("version", "worker_id", "env_id", "task_id")
        )
        payload = encode(record, self._codec)
        faults.at("replay.insert")
        deadline = time.monotonic() + timeout_s
        with self._lock:
            self._raise_if_closed()
            while self._mixer.insert_must_wait():
                if not _wait(self._taken, deadline):
                    return False
                self._raise_if_closed()
            self._update = max(self._update, update)  # others may have been made meanwhile
            item = Item(self._next_id, payload, self._codec, version, self._update)
            self._next_id += 1
            self._mixer.put(item, (worker_id, env_id), task)
            self._inserted.notify_all()
            return True

    def discard(self, ids: Iterable[int]) -> None:
        """Drop the items with these ids, from which nothing can be learned; ignore unknown ids."""
        with self._lock:
            self._mixer.discard(set(ids))
            self._taken.notify_all()

    def discard_not_finite(self) -> None:
        """Drop the unrolls of which no update can be made, as after a load."""
        with self._lock:
            held = self._mixer.items().items()
            self._mixer.discard({i for i, item in held if not self._is_finite(item.record())})

    def _is_finite(self, record: Record) -> bool:
        """Whether all that a loss is given is finite; an infinite reward may be clipped."""
        views = [
            self._schema.view(record, name)
            for name in ("frames", "behaviour_params", "state")
            if name in self._schema.fields
        ]
        is_finite = all(view.dtype.kind != "f" or bool(np.isfinite(view).all()) for view in views)
        return is_finite and not np.isnan(self._schema.view(record, "reward")).any()

    def sample(self, context: SampleContext, timeout_s: float) -> list[Draw] | None:
        """Return the draws of one batch: exactly `batch_size`, grouped by buffer in their order.

        Return None if there are not enough unrolls after `timeout_s` seconds. The unrolls collected
        so far are then kept for the next call.

        Raises:
          Closed: if the manager is closed, or gets closed meanwhile.
        """
        claim = self._claim(context, time.monotonic() + timeout_s)
        if claim is None:
            return None
        faults.at("replay.sample")
        read = functools.cache(Item.record)
        proposals, drifts = choose(self.buffers, claim, context, self._schema, read)
        with self._lock:
            for buffer, chosen in zip(self.buffers, proposals, strict=True):
                buffer.commit(chosen.items)
            for source, of_items in drifts.items():
                self.buffers[source].remember(claim.examinations[source], of_items)
        return [
            Draw(item, source, read(item), is_online, weight)
            for source, chosen in enumerate(proposals)
            for (item, weight), is_online in zip(
                chosen.weighted(), self.buffers[source].online(chosen), strict=True
            )
        ]

    def feed_back(self, ids: Sequence[int], outcome: Outcome) -> None:
        """Report the errors of an update to all buffers that draw by priorities, at any time.

        Args:
          ids: [n] numbers of the items (`Item.id`) that were learned from, drawn from any buffer;
            numbers of items that are gone are ignored.
          outcome: errors of these n unrolls, in the same order.
        """
        priorities = {b: b.priorities(outcome) for b in self.buffers if b.uses_priorities}
        with self._lock:
            for buffer, of_unrolls in priorities.items():
                buffer.reprioritise(ids, of_unrolls)

    def _claim(self, context: SampleContext, deadline: float) -> Claim | None:
        """Wait until a batch is complete, and take it; return None if the deadline comes first."""
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
                sum(buffer.online(proposal))
                for buffer, proposal in zip(self.buffers, claim.proposals, strict=True)
            )
            # Also where no queue was touched: the pace may have been what held inserts back.
            self._taken.notify_all()
            return claim

    def missing(self) -> str:
        """Return what the next batch lacks, as a text for the user; empty if nothing."""
        with self._lock:
            return self._mixer.missing()

    @property
    def own_share(self) -> Fraction | None:
        """Share of replay in each batch by the initial ratios; None if it cannot be changed."""
        return self._mixer.quotas.own_share

    def set_replay_share(self, share: Fraction) -> None:
        """Set the share of each batch that comes from replay: from all buffers that are no queues.

        `share` lies between 0 and 1. The batch that is being collected keeps the old share.
        """
        with self._lock:
            self._mixer.quotas.set_replay_share(share)

    def stats(self) -> dict[str, float]:
        """Return metrics by name; metrics without a value yet are absent."""
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
        figures["replay/unrolls"] = float(len(held))
        figures["replay/memory_mb"] = sum(item.payload.nbytes for item in held.values()) / 1e6
        return figures

    def close(self) -> None:
        """Wake all waiting threads; they and all later callers get Closed. Idempotent."""
        with self._lock:
            self._closed = True
            self._inserted.notify_all()
            self._taken.notify_all()

    def state_dict(self, contents: bool) -> dict[str, Any]:
        """Return the state as plain types and arrays; the bytes of the items are shared.

        Without `contents` the state has no items, and the buffers fill up again when it is loaded.
        """
        with self._lock:
            return {
                "format": STATE_FORMAT,
                "buffers": [buffer.name for buffer in self.buffers],
                "counters": {name: getattr(self, f"_{name}") for name in COUNTERS},
                "mixer": self._mixer.state_dict(),
                "counts": [buffer.counts.state_dict() for buffer in self.buffers],
                "contents": self._mixer.contents(self._schema) if contents else None,
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state from `state_dict`.

        Raises:
          StateError: if `state` is malformed.
          CheckpointError: if the state belongs to other buffers or to another schema.
        """
        names, given = [buffer.name for buffer in self.buffers], items(state, "buffers", str)
        version, contents = whole(state, "format"), item(state, "contents", dict, default=None)
        if version != STATE_FORMAT or given != names:
            raise CheckpointError(
                f"replay state has format {version} and buffers {shown(given)}, "
                f"expected format {STATE_FORMAT} and buffers {names}. "
                "Give the --replay_parameters and the games that the checkpoint was made with; for "
                "other shares of the games, only a buffer with per_game off is the same."
            )
        counters = item(state, "counters", dict)
        with within("counters"):
            counts = {name: whole(counters, name, default=0) for name in COUNTERS}
        with self._lock:
            if contents is not None:
                with within("contents"):
                    self._mixer.load_contents(contents, self._schema)
                    newest = max(self._mixer.items(), default=-1)
                    expect(newest < counts["next_id"], "items that were given a number", "items")
            else:
                saved = items(state, "counts", dict, default=())
                for buffer, of_buffer in zip(self.buffers, saved, strict=False):
                    buffer.counts.go_on_without_items(of_buffer)
            with within("mixer"):
                self._mixer.load_state_dict(item(state, "mixer", dict))
            for name, count in counts.items():
                setattr(self, f"_{name}", count)
            self._inserted.notify_all()
            self._taken.notify_all()

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise Closed("the replay manager is closed.")


def _wait(condition: threading.Condition, deadline: float) -> bool:
    """Wait for a notification; return False at once if the deadline has passed."""
    remaining_s = deadline - time.monotonic()
    if remaining_s <= 0:
        return False
    condition.wait(remaining_s)
    return True
