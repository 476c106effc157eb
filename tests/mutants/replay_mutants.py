"""Faults in replay: who is drawn, how often, with which weight, and who is dropped."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Place

PRIORITISED = ("test_prioritised.py",)

QUOTA_MUTANTS = (
    Mutant(
        "quota-fraction-lost", "does not carry the fraction of a draw to the next batch",
        Place("quotas.py", "        self.carry = left\n        return counts",
              "        return counts"),
        ("test_quotas.py",),
    ),
    Mutant(
        "quota-ignored", "gives every batch the quotas of the first",
        Place("mixing.py", "        self.wanted = self.quotas.next()\n        return Claim(",
              "        return Claim("),
        ("test_manager.py::test_quotas_carry_their_fraction_and_sum_to_the_batch",),
    ),
    Mutant(
        "quota-not-restored", "begins with fresh quotas after a resume",
        Place("quotas.py", 'self.carry = [int(units) for units in state["carry"]]', "pass"),
        ("test_quotas.py",),
    ),
    Mutant(
        "fill-ignored", "draws from a buffer before it has filled up",
        Place("buffer.py", "return len(self) >= self.min_size", "return len(self) >= 1"),
        ("test_manager.py", "test_several_games.py"),
    ),
    Mutant(
        "pace-ignored", "lets the learner run ahead of the experience",
        Place("pace.py", "return self.balance - self.batch_size >= -self.slack", "return True"),
        ("test_pace.py",),
    ),
    Mutant(
        "pace-counts-no-draws", "never counts draws against the pace",
        Place("mixing.py", "self._pace.draws += sum(self.wanted)", "self._pace.draws += 0"),
        ("test_manager.py::test_the_pace_is_what_is_missing_when_the_learner_is_ahead",),
    ),
    Mutant(
        "games-mixed", "puts unrolls of each game into the buffers of all",
        Place("mixing.py",
              "buffers = [buffer for buffer in self.buffers if buffer.task in (None, task)]",
              "buffers = list(self.buffers)"),
        ("test_several_games.py",),
    ),
    Mutant(
        "discard-ignored", "keeps unrolls that nothing can be learned from",
        Place("manager.py", "self._mixer.discard(set(ids))", "pass"),
        ("test_manager.py::test_a_discarded_unroll_is_not_drawn_again_from_anywhere",),
    ),
)  # fmt: skip

SAMPLER_MUTANTS = (
    Mutant(
        "lambda-annealing-stuck", "never narrows the pool of candidates",
        Place("samplers.py", "(self.initial_lambda - 1) * progress / self.alfa",
              "(self.initial_lambda - 1) * 0 / self.alfa"),
        ("test_samplers.py",),
    ),
    Mutant(
        "farthest-first", "ranks candidates by distance the wrong way round",
        Place("samplers.py", 'np.argsort(distances, kind="stable")',
              'np.argsort(-distances, kind="stable")'),
        ("test_samplers.py",),
    ),
    Mutant(
        "distance-before-draws", "ranks strategy 3 by distance before times drawn",
        Place("samplers.py", "np.lexsort((distances, draws))", "np.lexsort((draws, distances))"),
        ("test_samplers.py",),
    ),
    Mutant(
        "most-drawn", "draws those that were drawn most often",
        Place("samplers.py", 'np.argsort(draws, kind="stable")[:n]',
              'np.argsort(draws, kind="stable")[-n:]'),
        ("test_samplers.py",),
    ),
    Mutant(
        "same-item-twice", "proposes candidates with replacement",
        Place("sampler.py", "rng.choice(size, pool, replace=False)", "rng.choice(size, pool)"),
        ("test_samplers.py", "test_buffer.py"),
    ),
    Mutant(
        "draws-not-counted", "does not count how often an item was drawn",
        Place("buffer.py", "entry.draws += 1", "entry.draws += 0"),
        ("test_buffer.py",),
    ),
    Mutant(
        "newest-dropped", "drops the newest item of a full ring, not the oldest",
        Place("removers.py", "    oldest = table.oldest()\n",
              "    oldest = table.position(table.items[-1].id)\n"),
        ("test_removers.py", "test_buffer.py"),
    ),
    Mutant(
        "reservoir-without-time", "lets new items into the reservoir however many came before",
        Place("removers.py", "int(rng.integers(offered))", "int(rng.integers(capacity))"),
        ("test_removers.py",),
    ),
    Mutant(
        "nearest-dropped", "drops by elite insertion what has drifted least",
        Place("removers.py", "farthest = max(", "farthest = min("),
        ("test_removers.py",),
    ),
    Mutant(
        "drift-from-now", "measures drift from the present features to themselves",
        Place("distance.py", "new, old = evidence.features_now, evidence.features_then",
              "new, old = evidence.features_now, evidence.features_now"),
        ("test_distance.py",),
    ),
    Mutant(
        "cosine-sign", "takes opposite features for near ones",
        Place("distance.py", "np.clip(1 - similarity, 0, 2)", "np.clip(1 + similarity, 0, 2)"),
        ("test_distance.py",),
    ),
    Mutant(
        "kl-direction", "compares policies in the other direction",
        Place("distance.py", "return kl_div(behaviour_params, target_params)",
              "return kl_div(target_params, behaviour_params)"),
        ("test_distance.py",),
    ),
    Mutant(
        "last-row-not-scored", "counts the rows to score from the first, so that the last is lost",
        Place("scoring.py", "np.arange((unroll_length - 1) % stride, unroll_length, stride)",
              "np.arange(0, unroll_length, stride)"),
        ("test_manager.py::test_a_score_stride_scores_fewer_rows_and_always_the_last",),
    ),
    Mutant(
        "scored-by-old-weights", "scores candidates by the weights of the start",
        Place("scorer.py", "            self._acting.refresh()\n", ""),
        ("test_scorer.py",),
    ),
)  # fmt: skip


def _prioritised(name: str, fault: str, file: str, old: str, new: str) -> Mutant:
    return Mutant(f"priority-{name}", fault, Place(file, old, new), PRIORITISED)


PRIORITY_MUTANTS = (
    _prioritised(
        "alpha-ignored", "draws in proportion to priorities whatever alpha is",
        "prioritised.py", "** self.alpha)", "** 1.0)",
    ),
    _prioritised(
        "weight-sign", "weighs the losses of likely draws up",
        "prioritised.py", "** -self.beta(progress)", "** self.beta(progress)",
    ),
    _prioritised(
        "beta-stuck", "never anneals beta",
        "prioritised.py", "* min(1.0, progress)", "* 0.0",
    ),
    _prioritised(
        "mean-only", "leaves the largest error out of a priority",
        "prioritised.py", "self.eta * largest + (1 - self.eta) * mean", "mean",
    ),
    _prioritised(
        "newcomers-last", "gives new items the first priority, not the highest",
        "priorities.py", "return self._highest or FIRST", "return FIRST",
    ),
    _prioritised(
        "moved-item-loses-its-own", "forgets the priority of the item that moves into a gap",
        "priorities.py", "self.tree.set(position, moved)", "self.tree.set(position, FIRST)",
    ),
    Mutant(
        "priority-to-all", "hands what was learned to nobody",
        Place("manager.py", "buffer.reprioritise(ids, of_unrolls)", "pass"),
        ("replay/test_feed_back.py::test_errors_become_priorities_by_id_and_decide_what_is_drawn_next",),
    ),
    Mutant(
        "sum-tree-right-half-forgotten", "sums the left children alone after a single change",
        Place("sum_tree.py", "nodes[node] = nodes[2 * node] + nodes[2 * node + 1]",
              "nodes[node] = nodes[2 * node]"),
        ("test_sum_tree.py",),
    ),
    Mutant(
        "sum-tree-finds-left", "looks for a target in the right half without taking off the left",
        Place("sum_tree.py", "left_over -= left * goes_right", "left_over -= 0 * left"),
        ("test_sum_tree.py",),
    ),
    Mutant(
        "wrong-unroll-gets-the-priority", "reports what was learned under the number of the buffer",
        Place("experience.py", "self.replay.feed_back(batch.item.tolist()",
              "self.replay.feed_back(batch.source.tolist()"),
        ("agent/test_feed_back.py::test_what_was_learned_goes_back_by_unroll_with_its_id",),
    ),
)  # fmt: skip

REPLAY_MUTANTS = (*QUOTA_MUTANTS, *SAMPLER_MUTANTS, *PRIORITY_MUTANTS)
