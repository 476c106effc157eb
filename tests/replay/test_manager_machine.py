"""Any interleaving of inserts and samples, for any mixture of buffers, in one thread."""

from collections import Counter
from fractions import Fraction

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from replay.mixing import DISCARDING_STRATEGIES
from tests.replay.builders import (
    attentive,
    context,
    elite,
    make_manager,
    make_record,
    queue,
    seq_of,
    standard,
)

BUILDERS = {"queue": queue, "standard": standard, "elite": elite, "attentive": attentive}


class ManagerMachine(RuleBasedStateMachine):
    @initialize(
        kinds=st.lists(
            st.tuples(st.sampled_from(sorted(BUILDERS)), st.integers(1, 6), st.integers(1, 9)),
            min_size=1,
            max_size=4,
        ),
        batch_size=st.integers(1, 7),
        fill_in_factor=st.sampled_from([0.0, 0.5, 1.0]),
        strategy=st.sampled_from(DISCARDING_STRATEGIES),
        pace=st.sampled_from([None, 0.5, 1.0, 3.7]),
        progress=st.sampled_from([0.0, 0.9, 1.0]),
    )
    def build(self, kinds, batch_size, fill_in_factor, strategy, pace, progress):
        shares = sum(share for _, _, share in kinds)
        self.has_queue = any(kind == "queue" for kind, _, _ in kinds)
        self.ratios = [Fraction(share, shares) for _, _, share in kinds]
        self.pace = pace if self.has_queue else pace or 2.0
        self.make = lambda: make_manager(
            [BUILDERS[k](capacity, share / shares) for k, capacity, share in kinds],
            batch_size,
            fill_in_factor=fill_in_factor,
            discarding_strategy=strategy,
            max_draws_per_unroll=self.pace,
        )
        self.manager = self.make()
        self.strategy = strategy
        self.context = context(progress)
        self.inserted = 0
        self.batches = 0
        self.counts = Counter()
        self.online = []

    def try_insert(self):
        done = self.manager.insert(make_record(self.inserted), self.inserted, timeout_s=0)
        self.inserted += done
        return done

    def try_sample(self):
        could = self.manager.can_sample()
        quotas = list(self.manager.quotas().values())
        draws = self.manager.sample(self.context, timeout_s=0)
        assert (draws is not None) == could
        if draws is None:
            return False
        self.batches += 1
        # 6. A batch has exactly B draws; counts per buffer equal the quotas; no draw is an item
        # that was never inserted.
        assert len(draws) == self.manager.batch_size
        sources = [draw.source for draw in draws]
        assert sources == sorted(sources)
        assert [sources.count(i) for i in range(len(quotas))] == quotas
        self.counts.update(sources)
        for draw in draws:
            seq = seq_of(draw.record)
            assert 0 <= seq < self.inserted
            assert draw.record.tobytes() == make_record(seq).tobytes()
            if draw.is_online:
                self.online.append((draw.source, seq))
        return True

    @rule(count=st.integers(1, 12))
    def insert(self, count):
        for _ in range(count):
            if not self.try_insert():
                assert self.strategy == "block"
                # 5. Whenever insert blocks, sample can proceed: it gives a batch or makes room.
                assert self.manager.missing() == "" or self.has_queue
                assert self.try_sample() or self.try_insert()

    @rule(count=st.integers(1, 4))
    def sample(self, count):
        for _ in range(count):
            if not self.try_sample():
                # 5. Whenever sample blocks, insert can proceed.
                assert self.manager.missing()
                assert self.try_insert()

    @rule()
    def reload(self):
        state = self.manager.state_dict(contents=True)
        self.manager = self.make()
        self.manager.load_state_dict(state)

    @invariant()
    def all_is_consistent(self):
        for buffer in self.manager.buffers:
            buffer.check_valid()
        assert sum(self.manager.quotas().values()) == self.manager.batch_size
        for source, ratio in enumerate(self.ratios):
            wanted = ratio * self.manager.batch_size * self.batches
            assert abs(self.counts[source] - wanted) < len(self.ratios)

    def teardown(self):
        if not hasattr(self, "manager"):
            return
        # Each queue gives each unroll at most once, in order.
        for source in range(len(self.ratios)):
            seqs = [seq for at, seq in self.online if at == source]
            assert seqs == sorted(set(seqs))
        # Liveness: whatever has happened, inserting and sampling in turn makes batches.
        before = self.batches
        for _ in range(40):  # the largest need: 7 draws of one unroll in two
            self.try_insert()
            self.try_sample()
        assert self.batches > before


class TestWheneverInsertBlocksSampleCanProceedAndWheneverSampleBlocksInsertCanProceed(
    ManagerMachine.TestCase
):
    settings = settings(max_examples=100, stateful_step_count=12, deadline=None)
