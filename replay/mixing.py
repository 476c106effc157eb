"""How one stream of unrolls becomes batches with a share from every buffer, and which side waits.

The stream may have several games. Some buffers (`Buffer.task`) then take the unrolls of one game.

This file has no threads. replay/manager.py adds the lock and the waiting.

Next to read: agent/algorithms/vtrace.py, which says what a batch teaches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence, Set
from fractions import Fraction
from itertools import chain
from math import ceil
from typing import Any, Literal

import numpy as np

from ritornello.core.errors import ConfigError
from ritornello.core.saved_state import expect, item, items, within
from ritornello.core.unroll import UnrollSchema
from ritornello.replay.buffer import Buffer
from ritornello.replay.item import Item, Proposal, pack_items, unpack_items
from ritornello.replay.newest import NewestUnrolls, Origin
from ritornello.replay.pace import NO_PACE, Pace
from ritornello.replay.quotas import Quotas
from ritornello.replay.scoring import Claim

# See `ReplayManager`.
DiscardingStrategy = Literal["block", "keep_latest", "keep_oldest", "alternating"]


class Mixer:
    """Puts items into their buffers and takes batches out. Not thread-safe: the manager locks.

    The rule of liveness: an insert may block only while the learner can still make progress. If the
    next batch lacks something that only an insert can bring, a full queue drops its oldest item
    instead of blocking. Without this rule, a queue beside a buffer that must first fill up would
    stop the program for ever.

    A queue may be smaller than its quota; its items are then collected as they arrive. A circular
    buffer is drawn from only while it is full, so the workers wait in between.

    With several games nothing is drawn until the buffers of every game hold enough; until then only
    the learner waits. From then on they always hold enough, so a game that sends little or nothing
    delays no other. Queue and pace count the unrolls of all games alike.
    """

    def __init__(
        self,
        buffers: Sequence[Buffer],
        ratios: Sequence[Fraction],
        batch_size: int,
        rng: np.random.Generator,
        discarding_strategy: DiscardingStrategy,
        max_draws_per_unroll: float | None,
    ) -> None:
        """Put the buffers together; the arguments are those of `ReplayManager`.

        Raises:
          ConfigError: if they do not fit together.
        """
        # Their capacity holds the workers back, and ties the number of updates to experience.
        self._has_brake = any(buffer.sets_the_pace for buffer in buffers)
        has_pace = self._has_brake or max_draws_per_unroll is not None
        assert has_pace, "the flags have seen to that: else the same unrolls are learned for ever"
        for buffer, ratio in zip(buffers, ratios, strict=True):
            share = ceil(ratio * batch_size)
            if buffer.takes_turns and buffer.capacity < share:
                raise ConfigError(
                    f"replay buffer {buffer.name} has capacity {buffer.capacity}, expected at "
                    f"least {share}, its share of a batch of {batch_size}: {share} times N for N "
                    "batches that take turns. Raise its capacity in --replay_parameters, or lower "
                    "--batch_size."
                )
        self.buffers = tuple(buffers)
        self._discarding_strategy = discarding_strategy
        self._drop_newest_next = False  # whose turn it is in "alternating": first an old unroll
        self._rng = rng
        self.quotas = Quotas(
            ratios,
            batch_size,
            # Another share could be more than a circular buffer holds, and would change its N.
            [] if any(b.takes_turns for b in buffers) else [b.consumes for b in buffers],
            [b.capacity if b.takes_turns else batch_size for b in buffers],
        )
        self._pace = (
            None if max_draws_per_unroll is None else Pace(max_draws_per_unroll, batch_size)
        )
        self._tasks = {buffer.task for buffer in buffers if buffer.task is not None}
        self._newest = NewestUnrolls(b.task for b in buffers if b.sampler.needs_queries)
        self._collected: list[deque[Item]] = [deque() for _ in buffers]  # of queues only
        self.wanted = self.quotas.next()  # draws per buffer of the batch being collected

    # --- who waits for what -----------------------------------------------------------------------

    def insert_must_wait(self) -> bool:
        """Whether an insert has to wait until something is taken out."""
        if self.awaits_insert():
            return False
        blocks = self._discarding_strategy == "block"
        if blocks and any(not buffer.can_insert() for buffer in self.buffers):
            return True
        # Where the capacity of a buffer holds the workers back, the pace holds only the learner.
        return self._pace is not None and not self._has_brake and not self._pace.allows_unroll()

    def awaits_insert(self) -> bool:
        """Whether only an insert can get the batch any further."""
        return not self.may_collect() or any(
            self._need(source) and not len(buffer) for source, buffer in enumerate(self.buffers)
        )

    def may_collect(self) -> bool:
        """Whether the buffers that must fill up have, and the learner is not too far ahead."""
        return self._is_filled() and (self._pace is None or self._pace.allows_batch())

    def can_complete(self) -> bool:
        """Whether a whole batch can be had now."""
        return self.may_collect() and all(
            self._need(source) <= len(buffer) for source, buffer in enumerate(self.buffers)
        )

    def missing(self) -> str:
        """Return what the batch waits for, in words; empty if nothing."""
        parts = []
        for source, buffer in enumerate(self.buffers):
            here, enough = len(buffer), buffer.min_size
            if buffer.consumes:
                here, enough = here + len(self._collected[source]), self.wanted[source]
            elif here >= enough and not self._newest.suffice(buffer):
                here, enough = 0, 1  # of its own
            if here < enough:
                of_game = "" if buffer.task is None else f" of game {buffer.task}"
                parts.append(f"{buffer.name} has {here} of {enough} unrolls{of_game}")
        if not parts and self._pace is not None and not self._pace.allows_batch():
            parts.append(f"at most {self._pace.draws_per_unroll:g} draws per unroll are allowed")
        return ", ".join(parts)

    def _is_filled(self) -> bool:
        return all(buffer.consumes or self._is_ready(buffer) for buffer in self.buffers)

    def _is_warm(self) -> bool:
        """Whether each buffer that does not set the pace holds enough; it then always will."""
        return all(buffer.sets_the_pace or self._is_ready(buffer) for buffer in self.buffers)

    def _is_ready(self, buffer: Buffer) -> bool:
        return buffer.can_sample() and self._newest.suffice(buffer)

    def _need(self, source: int) -> int:
        """Return how many items the batch still needs from a queue (0 for other buffers)."""
        if not self.buffers[source].consumes:
            return 0
        return max(0, self.wanted[source] - len(self._collected[source]))

    # --- in ---------------------------------------------------------------------------------------

    def put(self, item: Item, origin: Origin, task: int) -> None:
        """Put a new item into every buffer that takes its game.

        `origin` is the environment that made the item, `task` its game.

        Raises:
          ValueError: if all buffers are for other games. Nothing has changed then.
        """
        if self._tasks and task not in self._tasks:
            raise ValueError(
                f"an unroll of game {task} came from worker {origin[0]}, env {origin[1]}; "
                f"the replay buffers are for the games {sorted(self._tasks)}."
            )
        if self._pace is not None and self._is_warm():
            self._pace.unrolls += 1
        is_filled = self._is_filled()
        buffers = [buffer for buffer in self.buffers if buffer.task in (None, task)]
        full = {buffer.name for buffer in buffers if not buffer.can_insert()}
        # Asked once for all full queues: "every other one" means unrolls, not pairs of queue and
        # unroll, by which of two queues one would get all and the other none.
        newcomer_goes = bool(full) and self._newcomer_goes()
        for buffer in buffers:
            if buffer.name in full:
                if newcomer_goes:
                    buffer.skip(while_filling=not is_filled)
                    continue
                buffer.make_room(while_filling=not is_filled)
            buffer.insert(item, self._rng)
        self._newest.keep(item, origin, task)

    def _newcomer_goes(self) -> bool:
        """Whether full queues drop the new unroll, not their oldest; each call is one turn.

        With "block" they drop the oldest, but only if waiting would stop the program for ever.
        """
        if self._discarding_strategy == "alternating":
            self._drop_newest_next = not self._drop_newest_next
            return not self._drop_newest_next
        return self._discarding_strategy == "keep_oldest"

    def discard(self, ids: Set[int]) -> None:
        """Drop the items with these ids wherever they are.

        A buffer keeps as many items as it must hold to be drawn from: with a game that sends no
        more unrolls, it would never hold enough again.
        """
        for buffer in self.buffers:
            buffer.discard(ids)
        for buffer, collected in zip(self.buffers, self._collected, strict=True):
            for unfit in [each for each in collected if each.id in ids]:
                collected.remove(unfit)
                buffer.counts.add_unused(while_filling=False)
        self._newest.discard(ids)

    # --- out --------------------------------------------------------------------------------------

    def collect(self) -> bool:
        """Move what the batch still needs out of the queues; return whether there was anything."""
        found = False
        for source, buffer in enumerate(self.buffers):
            count = min(self._need(source), len(buffer))
            if count:
                proposal = buffer.propose(count, 0.0, self._rng)
                self._collected[source].extend(proposal.items)
                found = True
        return found

    def claim(self, progress: float) -> Claim:
        """Take a batch out. Call this only if `can_complete`, after `collect`."""
        proposals = []
        for buffer, count, collected in zip(
            self.buffers, self.wanted, self._collected, strict=True
        ):
            if buffer.consumes:
                items = [collected.popleft() for _ in range(count)]
                proposals.append(Proposal(count, items, np.zeros(count, np.int64)))
            else:
                proposals.append(buffer.propose(count, progress, self._rng))
        if self._pace is not None:
            self._pace.draws += sum(self.wanted)
        self.wanted = self.quotas.next()
        return Claim(
            proposals,
            [buffer.propose_examination(self._rng) for buffer in self.buffers],
            [
                self._newest.of(buffer.task) if buffer.sampler.needs_queries else []
                for buffer in self.buffers
            ],
        )

    # --- checkpoints ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of all state but the items: random generator, quotas, whose turn it is."""
        return {
            "rng": self._rng.bit_generator.state,
            **self.quotas.state_dict(),
            "wanted": list(self.wanted),
            "drop_newest_next": self._drop_newest_next,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state from `state_dict`.

        Raises:
          StateError: if `state` is malformed.
        """
        with within("rng"):
            self._rng.bit_generator.state = item(state, "rng", dict)
        self._drop_newest_next = item(state, "drop_newest_next", bool)
        # With another batch size or other ratios there is nothing sensible to carry over.
        if self.quotas.load_state_dict(state):
            wanted = items(state, "wanted", int)
            fits = len(wanted) == len(self.buffers) and min(wanted) >= 0
            fits = fits and sum(wanted) == self.quotas.batch_size
            expect(fits, f"{self.quotas.batch_size} draws of {len(self.buffers)} buffers", "wanted")
            self.wanted = wanted

    def items(self) -> dict[int, Item]:
        """Return id -> item of all items that are held anywhere."""
        held = [buffer.items for buffer in self.buffers]
        every = chain(*held, *self._collected, self._newest.items())
        return {item.id: item for item in every}

    def contents(self, schema: UnrollSchema) -> dict[str, Any]:
        """Return all items and where they are. Their bytes are shared, not copied."""
        return {
            "items": pack_items(self.items().values(), schema),
            "buffers": [buffer.state_dict() for buffer in self.buffers],
            "collected": [[item.id for item in items] for items in self._collected],
            "newest": self._newest.state(),
            **(NO_PACE if self._pace is None else self._pace.state_dict()),
        }

    def load_contents(self, contents: Mapping[str, Any], schema: UnrollSchema) -> None:
        """Take over items from `contents`.

        Raises:
          StateError: if `contents` is malformed.
          CheckpointError: if the items are of another schema or do not fit. Nothing has changed
            then.
        """
        with within("items"):
            held = unpack_items(item(contents, "items", dict), schema)
        states = items(contents, "buffers", dict)
        for buffer, state in zip(self.buffers, states, strict=True):
            buffer.check_room_for(state)
        for number, (buffer, state) in enumerate(zip(self.buffers, states, strict=True)):
            with within("buffers", number):
                buffer.load_state_dict(state, held)
        collected = items(contents, "collected", list)
        expect(len(collected) == len(self.buffers), "a list for each buffer", "collected")
        with within("collected"):
            self._collected = [deque(held[i] for i in ids) for ids in collected]
        with within("newest"):
            self._newest.load_state(items(contents, "newest", list), held, schema)
        if self._pace is not None:
            self._pace.load_state_dict(contents)
