"""Any interleaving of inserts and samples, for any mixture of buffers and games, in one thread."""

from collections import Counter
from fractions import Fraction
from typing import get_args

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ritornello.replay.mixing import DiscardingStrategy
from ritornello.replay.sampler import Outcome
from tests.replay.builders import check_valid, context, make_manager, make_record, maker, seq_of

KINDS = ("queue", "standard", "elite", "attentive", "prioritised", "least_drawn", "circular")
UNDIVIDED = ("queue", "circular")  # one buffer for all games
GAMES = st.integers(0, 2)  # taken modulo the number of games


class ManagerMachine(RuleBasedStateMachine):
    @initialize(
        kinds=st.lists(
            st.tuples(st.sampled_from(sorted(KINDS)), st.integers(1, 6), st.integers(1, 9)),
            min_size=1,
            max_size=4,
        ),
        batch_size=st.integers(1, 7),
        fill_in_factor=st.sampled_from([0.0, 0.5, 1.0]),
        strategy=st.sampled_from(get_args(DiscardingStrategy)),
        pace=st.sampled_from([None, 0.5, 1.0, 3.7]),
        progress=st.sampled_from([0.0, 0.9, 1.0]),
        weights=st.sampled_from([(1,), (1, 1), (5, 1), (2, 1, 4)]),
    )
    def build(self, kinds, batch_size, fill_in_factor, strategy, pace, progress, weights):
        shares = sum(share for _, _, share in kinds)
        self.game_count = len(weights)
        self.has_queue = any(kind == "queue" for kind, _, _ in kinds)
        self.has_brake = any(kind in UNDIVIDED for kind, _, _ in kinds)
        # A buffer with less room than one unroll of each game is refused, and a circular one with
        # less than its share of a batch.
        least = {kind: len(weights) for kind in KINDS} | {"queue": 1, "circular": batch_size}
        kinds = [(k, max(c, least[k]), s) for k, c, s in kinds]
        self.capacities = [capacity for _, capacity, _ in kinds]
        # For each buffer of the manager: which one it is a part of, of which game, its share.
        self.parts = []
        for number, (kind, _, share) in enumerate(kinds):
            divided = kind not in UNDIVIDED and len(weights) > 1
            for game, weight in enumerate(weights) if divided else [(None, sum(weights))]:
                ratio = Fraction(share * weight, shares * sum(weights))
                self.parts.append((number, game, ratio))
        self.pace = pace if self.has_brake else pace or 2.0
        self.make = lambda: make_manager(
            [maker(k)(capacity, share / shares) for k, capacity, share in kinds],
            batch_size,
            fill_in_factor=fill_in_factor,
            discarding_strategy=strategy,
            max_draws_per_unroll=self.pace,
            task_shares=weights,
        )
        self.manager = self.make()
        self.strategy = strategy
        self.context = context(progress)
        self.games = []  # of each unroll that was inserted
        self.is_whole = True  # whether nothing was discarded
        self.batches = 0
        self.counts = Counter()
        self.online = []
        self.in_flight = []  # ids of each batch that is being learned from

    def record(self, seq):
        return make_record(seq, task_id=self.games[seq])

    def try_insert(self, game=None):
        """Insert an unroll of this game; None: of the game whose turn it is."""
        game = (len(self.games) if game is None else game) % self.game_count
        self.games.append(game)
        seq = len(self.games) - 1
        if self.manager.insert(self.record(seq), seq, timeout_s=0):
            return True
        self.games.pop()
        return False

    def try_sample(self):
        could, quotas = self.manager._mixer.can_complete(), self.manager._mixer.wanted
        draws = self.manager.sample(self.context, timeout_s=0)
        assert (draws is not None) == could
        if draws is None:
            return False
        self.batches += 1
        # 6. A batch has exactly B draws; counts per buffer equal the quotas; no draw is an item
        # that was never inserted, or of another game than the buffer's.
        assert len(draws) == self.manager.batch_size
        sources = [draw.source for draw in draws]
        assert sources == sorted(sources)
        assert [sources.count(i) for i in range(len(quotas))] == quotas
        self.counts.update(sources)
        for draw in draws:
            seq = seq_of(draw.record)
            assert 0 <= seq < len(self.games)
            assert draw.record.tobytes() == self.record(seq).tobytes()
            assert self.parts[draw.source][1] in (None, self.games[seq])
            if draw.is_online:
                self.online.append((draw.source, seq))
            assert 0 < draw.weight <= 1
            assert draw.weight == 1 or self.manager.buffers[draw.source].uses_priorities
        self.in_flight.append([draw.item.id for draw in draws])
        return True

    @rule(seed=st.integers(0, 99))
    def feed_back(self, seed):
        """Learn from a batch that was drawn at some time; its unrolls may be gone by now."""
        if self.in_flight:
            chance = np.random.default_rng(seed)
            ids = self.in_flight.pop(chance.integers(len(self.in_flight)))
            errors = chance.exponential(size=(len(ids), 4))
            self.manager.feed_back(ids, Outcome(errors, errors > 0.1))

    @rule(game=GAMES, count=st.integers(1, 12))
    def insert(self, game, count):
        for _ in range(count):
            if not self.try_insert(game):
                assert self.strategy == "block" or not self.has_brake
                # 5. Whenever insert blocks, sample can proceed: it gives a batch or makes room.
                assert self.manager.missing() == "" or self.has_queue
                assert self.try_sample() or self.try_insert(game)

    @rule()
    def insert_of_every_game(self):
        for game in range(self.game_count):
            self.insert(game, 3)

    @rule(game=GAMES, count=st.integers(1, 4))
    def sample(self, game, count):
        for _ in range(count):
            if not self.try_sample():
                # 5. Whenever sample blocks, insert can proceed, whatever game comes next.
                assert self.manager.missing()
                assert self.try_insert(game)

    @rule(data=st.data())
    def discard(self, data):
        """As many unrolls as there are, any of them, also such as are not held."""
        ids = data.draw(st.sets(st.integers(-1, len(self.games))))
        before = [[item.id for item in buffer.items] for buffer in self.manager.buffers]
        self.manager.discard(ids)
        for buffer, held in zip(self.manager.buffers, before, strict=True):
            after = [item.id for item in buffer.items]
            gone = set(held) - set(after)
            refills = buffer.consumes or buffer.takes_turns
            spare = len(held) if refills else max(0, len(held) - buffer.min_size)
            assert after == [i for i in held if i not in gone]
            assert gone <= ids
            assert len(gone) == min(len(ids & set(held)), spare)
            if gone:
                self.is_whole = False

    @rule()
    def reload(self):
        state = self.manager.state_dict(contents=True)
        self.manager = self.make()
        self.manager.load_state_dict(state)
        twins = self.make(), self.make()
        for twin in twins:
            twin.load_state_dict(self.manager.state_dict(contents=True))
        one, other = (twin.sample(self.context, timeout_s=0) or [] for twin in twins)
        assert [(d.item.id, d.weight) for d in one] == [(d.item.id, d.weight) for d in other]

    @invariant()
    def all_is_consistent(self):
        buffers = self.manager.buffers
        for buffer in buffers:
            check_valid(buffer)
        for number, capacity in enumerate(self.capacities):
            of_game = zip(buffers, self.parts, strict=True)
            assert capacity == sum(b.capacity for b, part in of_game if part[0] == number)
        assert sum(self.manager._mixer.wanted) == self.manager.batch_size
        for source, (_, _, ratio) in enumerate(self.parts):
            wanted = ratio * self.manager.batch_size * self.batches
            assert abs(self.counts[source] - wanted) < len(self.parts)

    @invariant()
    def no_unroll_is_lost_or_held_twice(self):
        stats = self.manager.stats()
        collected = self.manager._mixer._collected  # by queues smaller than their quota
        for buffer, (_, game, _), waiting in zip(
            self.manager.buffers, self.parts, collected, strict=True
        ):
            offered = [s for s, of_game in enumerate(self.games) if game in (None, of_game)]
            held = [item.id for item in buffer.items]  # ids count the unrolls, like seq
            if buffer.consumes:
                ways = ("draws", "dropped", "dropped_while_filling")
                gone = sum(stats.get(f"replay/{buffer.name}/{way}", 0) for way in ways)
                assert gone + len(waiting) + len(held) == len(offered)
            elif buffer.takes_turns:
                assert len(held) == len(set(held) & set(offered)) <= buffer.capacity
            elif self.is_whole:
                assert held == offered[-buffer.capacity :]
            else:
                assert held == sorted(set(held) & set(offered))
                assert len(held) <= buffer.capacity

    def teardown(self):
        if not hasattr(self, "manager"):
            return
        # Each queue gives each unroll at most once, in order.
        for source in range(len(self.parts)):
            seqs = [seq for at, seq in self.online if at == source]
            assert seqs == sorted(set(seqs))
        # Liveness: whatever has happened, inserting and sampling in turn makes batches...
        before = self.batches
        for _ in range(40):  # to fill up, 6 of each of 3 games; then 7 draws of one unroll in two
            self.try_insert()
            self.try_sample()
        assert self.batches > before
        # ... and from then on also if all games but one fall silent.
        before = self.batches
        for _ in range(30):
            self.try_insert(0)
            self.try_sample()
        assert self.batches > before


class TestWheneverInsertBlocksSampleCanProceedAndWheneverSampleBlocksInsertCanProceed(
    ManagerMachine.TestCase
):
    settings = settings(max_examples=80, stateful_step_count=12, deadline=None)
