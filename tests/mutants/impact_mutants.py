"""Faults in IMPACT: its ratio, its target network, and the circular buffer."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Place

LOOPS = "test_the_loss_equals_the_plain_loops"


def _loss(name: str, fault: str, files: str, old: str, new: str, test: str = LOOPS) -> Mutant:
    return Mutant(f"impact-{name}", fault, Place(files, old, new), (f"test_impact.py::{test}",))


LOSS_MUTANTS = (
    _loss(
        "plain-appo", "measures steps from the worker's policy, not from the target's",
        "losses.py", "torch.maximum(log_target_action, log_mu_action - math.log(ratio_bar))",
        "log_mu_action",
    ),
    _loss(
        "ratio-not-bounded", "ignores --impact_rho",
        "losses.py", "torch.maximum(log_target_action, log_mu_action - math.log(ratio_bar))",
        "log_target_action",
    ),
    _loss(
        "ratio-upside-down", "bounds the ratio on the wrong side",
        "losses.py", "log_mu_action - math.log(ratio_bar)", "log_mu_action + math.log(ratio_bar)",
    ),
    _loss(
        "optimist", "takes the larger of the two surrogates",
        "losses.py", "-torch.minimum(ratios * constant, clipped * constant)",
        "-torch.maximum(ratios * constant, clipped * constant)",
    ),
    _loss(
        "one-sided-clip", "clips ratios above 1 only",
        "losses.py", "ratios.clamp(1 - clip, 1 + clip)", "ratios.clamp(max=1 + clip)",
    ),
    _loss(
        "present-corrected", "runs V-trace for the trained policy, not for the target",
        "impact.py", "log_rhos = target.log_ratio.masked_fill", "log_rhos = seen.log_ratio.masked_fill",
    ),
    _loss(
        "values-of-the-policy", "takes targets and advantages from the values of the trained network",
        "impact.py", 'target if self.config.value_source == "target" else seen', "seen",
    ),
)  # fmt: skip

TARGET_MUTANTS = (
    _loss(
        "target-never-renewed", "copies the policy to the target once, at the start",
        "target.py", "self.age is None or self.age >= self.period", "self.age is None",
        "test_the_target_is_the_policy_of_each_third_update",
    ),
    _loss(
        "target-late", "renews the target an update late",
        "target.py", "self.age >= self.period", "self.age > self.period",
        "test_the_target_is_the_policy_of_each_third_update",
    ),
    _loss(
        "target-of-each-resume", "begins each session with a new target",
        "target.py", 'self.age = state["age"]', "self.age = None",
        "test_resuming_equals_going_on",
    ),
    _loss(
        "target-not-restored", "goes on from a checkpoint without the target's weights",
        "target.py", '        self._load(state["weights"])\n', "",
        "test_resuming_equals_going_on",
    ),
    _loss(
        "bad-update-renews", "keeps the target of an update that could not be made",
        "target.py", "            if weights is not None:\n                self._load(weights)\n", "",
        "test_an_update_that_cannot_be_made_leaves_the_target_as_it_was",
    ),
    _loss(
        "bad-update-ages", "counts an update that could not be made",
        "target.py", "            self.age = age\n", "",
        "test_an_update_that_cannot_be_made_leaves_the_target_as_it_was",
    ),
    _loss(
        "target-in-fp32", "computes the target in another precision than the policy",
        "learner.py", "for network in (model, *algorithm.networks()):", "for network in (model,):",
        "test_the_target_computes_like_the_model",
    ),
    _loss(
        "period-not-told", "renews the target at each update, however long batches are used",
        "assembly.py", "renewal_updates(replay_configs(flags), flags.batch_size)", "1",
        "test_a_target_lives_until_the_circular_buffer_is_renewed",
    ),
)  # fmt: skip


def _ring(name: str, fault: str, files: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"circular-{name}", fault, Place(files, old, new), (f"test_circular.py::{test}",))


RING_MUTANTS = (
    _ring(
        "never-dropped", "uses each unroll once more than it should",
        "turns.py", "if entry.draws >= sampler.uses:", "if entry.draws > sampler.uses:",
        "test_every_unroll_is_used_exactly_so_often",
    ),
    _ring(
        "no-turns", "draws the same batch until it is used up",
        "turns.py", "        table.to_the_end(entry.item)\n", "",
        "test_between_two_uses_of_a_batch_others_have_their_turn",
    ),
    _ring(
        "new-ones-last", "lets new unrolls wait for all others",
        "entry_table.py", "sorted(waiting, key=lambda entry: entry.draws > 0)", "waiting",
        "test_new_batches_come_one_by_one_and_first",
    ),
    _ring(
        "all-at-once", "lets all of the first batches be used up at the same moment",
        "turns.py", "entry.draws = sampler.draws_at_start(rank, size, count)", "pass",
        "test_every_unroll_is_used_exactly_so_often",
    ),
    _ring(
        "half-empty", "draws before the buffer is full",
        "parameters.py", "min_size=full", "min_size=1",
        "test_nothing_is_drawn_before_it_is_full",
    ),
    _ring(
        "old-as-new", "takes each draw for the first",
        "buffer.py", "[draws == 0 for draws in proposal.draws.tolist()]",
        "[True for draws in proposal.draws.tolist()]",
        "test_new_batches_come_one_by_one_and_first",
    ),
)  # fmt: skip

IMPACT_MUTANTS = (*LOSS_MUTANTS, *TARGET_MUTANTS, *RING_MUTANTS)
