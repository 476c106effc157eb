"""Faults in what is learned: formulas, the loss, PopArt, the learner and its optimiser."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Place

VTRACE = ("test_vtrace.py",)
# Where the loss is put together; a text is looked for in all of them.
LOSS = (
    "impala.py correction.py base.py rows.py passes.py trust.py units.py losses.py cloning.py "
    "health.py"
)
PLAIN_LOOPS = ("test_impala.py::test_the_loss_equals_the_plain_loops",)
ERRORS = (
    "agent/test_feed_back.py::test_the_errors_equal_the_plain_loops_and_are_absent_where_nothing_is_learned",
)


def _vtrace(name: str, fault: str, old: str, new: str) -> Mutant:
    return Mutant(f"vtrace-{name}", fault, Place("vtrace.py", old, new), VTRACE)


VTRACE_MUTANTS = (
    _vtrace(
        "td-error-sign", "adds the value to its own target",
        "discounts * values[1:] - values[:-1])", "discounts * values[1:] + values[:-1])",
    ),
    _vtrace(
        "same-row", "bootstraps from the value of the same row, not of the next",
        "discounts * values[1:] - values[:-1])", "discounts * values[:-1] - values[:-1])",
    ),
    _vtrace(
        "rho-not-clipped", "does not clip the ratios of the value targets",
        "ratios.clamp(max=rho_bar)", "ratios",
    ),
    _vtrace(
        "c-not-clipped", "does not clip the ratios of the trace",
        "ratios.clamp(max=c_bar)", "ratios",
    ),
    _vtrace(
        "pg-rho-not-clipped", "does not clip the ratios of the advantages",
        "ratios.clamp(max=rho_pg_bar)", "ratios",
    ),
    _vtrace(
        "lambda-ignored", "ignores lambda",
        "ratios.clamp(max=c_bar) * lambda_", "ratios.clamp(max=c_bar)",
    ),
    _vtrace(
        "trace-not-discounted", "does not discount what flows back",
        "decay = discounts * ratios", "decay = ratios",
    ),
    _vtrace(
        "trust-ignored", "lets corrections flow back from states that are not trusted",
        "decay[:-1] *= trust[1:]", "pass",
    ),
    _vtrace(
        "trust-of-the-same-row", "asks whether a state is trusted one row too early",
        "decay[:-1] *= trust[1:]", "decay *= trust",
    ),
    _vtrace(
        "one-step-advantages", "makes advantages of one step only",
        "q = rewards + discounts * (values[1:] + flowing_back)",
        "q = rewards + discounts * values[1:]",
    ),
    _vtrace(
        "time-reversed", "hands the corrections back in reversed order of time",
        "torch.stack(backwards[::-1])", "torch.stack(backwards)",
    ),
)  # fmt: skip

FORMULA_MUTANTS = (
    Mutant(
        "entropy-sign", "rewards certainty",
        Place("distributions.py", "return -(log_pi.exp() * log_pi).sum(-1)",
              "return (log_pi.exp() * log_pi).sum(-1)"),
        ("test_losses.py",),
    ),
    Mutant(
        "density-without-deviation", "takes all normal distributions to be as wide",
        Place("distributions.py", "0.5 * standard.square() + self.log_std +",
              "0.5 * standard.square() +"),
        ("test_distributions.py",),
    ),
    Mutant(
        "normal-divergence-turned", "divides by the deviation of the wrong one of two policies",
        Place("distributions.py", "(self.mean - other.mean) * (-other.log_std).exp()",
              "(self.mean - other.mean) * (-self.log_std).exp()"),
        ("test_distributions.py",),
    ),
    Mutant(
        "joint-forgets", "leaves out the last part of an action",
        Place("distributions.py", "return torch.stack(terms).sum(0)",
              "return torch.stack(terms[:-1]).sum(0)"),
        ("test_distributions.py",),
    ),
    Mutant(
        "draws-with-a-gradient", "lets a gradient flow through what was drawn",
        Place("distributions.py", "mean, log_std = params.detach().chunk(2, -1)",
              "mean, log_std = params.chunk(2, -1)"),
        ("test_distributions.py",),
    ),
    Mutant(
        "policy-gradient-sign", "makes good actions unlikely",
        Place("losses.py", "return -advantages.detach()", "return advantages.detach()"),
        PLAIN_LOOPS,
    ),
    Mutant(
        "value-error-without-half", "learns values twice as fast as it says",
        Place("losses.py", "return 0.5 * (values", "return (values"),
        PLAIN_LOOPS,
    ),
    Mutant(
        "gradient-through-targets", "differentiates the value targets as well",
        Place("losses.py", "(values - targets.detach())", "(values - targets)"),
        ("test_losses.py",),
    ),
    Mutant(
        "cloning-direction", "clones by the other divergence, policy first",
        Place("losses.py", "return mu.detach().kl(pi)", "return pi.kl(mu.detach())"),
        ("test_losses.py",),
    ),
    Mutant(
        "rewards-not-clipped", "ignores --reward_clipping_method=abs_one_sign",
        Place("rewards.py", '"abs_one_sign": torch.sign', '"abs_one_sign": lambda reward: reward'),
        ("test_rewards.py",),
    ),
    Mutant(
        "large-rewards-clipped-late", "clamps rewards to [-1, 2]",
        Place("rewards.py", '"abs_one_clamp": lambda reward: reward.clamp(-1, 1)',
              '"abs_one_clamp": lambda reward: reward.clamp(-1, 2)'),
        ("test_rewards.py",),
    ),
)  # fmt: skip

# Where the loss is cut into other pieces, these are what has to be pointed at them anew.
LOSS_MUTANTS = (
    Mutant(
        "reset-rows-learned", "learns from actions that were ignored because of a reset",
        Place(LOSS, "valid = ~batch.reset_row", "valid = torch.ones_like(batch.reset_row)"),
        ("test_impala.py::test_what_happened_at_a_reset_row_has_no_influence",),
    ),
    Mutant(
        "termination-ignored", "expects rewards after the end of a game",
        Place(LOSS, "config.discount * ~batch.terminated",
              "config.discount * torch.ones_like(batch.terminated)"),
        PLAIN_LOOPS,
    ),
    Mutant(
        "truncation-is-termination", "expects nothing after a time limit",
        Place(LOSS, "config.discount * ~batch.terminated,",
              "config.discount * ~(batch.terminated | batch.first[1:].roll(-1, 0)),"),
        ("test_learning.py::test_what_comes_after_a_time_limit_is_worth_as_much_as_before",),
    ),
    Mutant(
        "behaviour-policy-ignored", "takes all data for that of the present policy",
        Place(LOSS, "log_rhos = seen.log_ratio.masked_fill(~valid",
              "log_rhos = torch.zeros_like(seen.log_pi_action).masked_fill(~valid"),
        PLAIN_LOOPS,
    ),
    Mutant(
        "entropy-annealing-stuck", "never moves the entropy cost towards its end",
        Place(LOSS, "return first if last is None else first + (last - first) * done",
              "return first"),
        ("test_learner.py::test_the_entropy_cost_follows_the_progress_of_the_run",),
    ),
    Mutant(
        "entropy-of-replay-too", "ignores --entropy_on=online",
        Place(LOSS, "counted = learned & batch.is_online if", "counted = learned if"),
        PLAIN_LOOPS,
    ),
    Mutant(
        "cloning-of-new-data", "clones what is new as well",
        Place(LOSS, "mask = valid & ~batch.is_online", "mask = valid"),
        ("test_impala.py::test_cloning_touches_replayed_data_only",),
    ),
    Mutant(
        "importance-weights-left-out", "ignores the importance weights of prioritised replay",
        Place(LOSS, " * weight).sum((1, 2))", ").sum((1, 2))"),
        ("agent/test_feed_back.py::test_the_loss_of_each_unroll_counts_by_its_weight",),
    ),
    Mutant(
        "mean-is-a-sum", "ignores --loss_reduction=mean",
        Place(LOSS, 'sums = sums / across.sum_(valid.sum(), "count").clamp(min=1)', "sums = sums + 0"),
        ("test_impala.py::test_a_mean_is_the_sum_over_the_valid_steps",),
    ),
    Mutant(
        "popart-after-targets", "moves PopArt after the targets were normalised",
        Place(LOSS,
              "        model.value_head.update(targets, batch.task_id, learned, optimiser, across)\n"
              "    return model.value_head.normalise(targets, batch.task_id)",
              "        normalised = model.value_head.normalise(targets, batch.task_id)\n"
              "        model.value_head.update(targets, batch.task_id, learned, optimiser, across)\n"
              "        return normalised\n"
              "    return targets"),
        ("test_impala.py::test_popart_moves_before_the_loss_and_the_loss_uses_the_rewritten_head",),
    ),
    Mutant(
        "popart-old-head", "differentiates the value head as it was before PopArt moved",
        Place(LOSS, "return rewritten.value_normalised[:-1]",
              "return seen.heads.value_normalised[:-1]"),
        ("test_impala.py::test_popart_moves_before_the_loss_and_the_loss_uses_the_rewritten_head",),
    ),
    Mutant(
        "popart-counts-masked-steps", "moves PopArt by steps that nothing is learned from",
        Place(LOSS, "update(targets, batch.task_id, learned, optimiser, across)",
              "update(targets, batch.task_id, None, optimiser, across)"),
        ("test_impala.py::test_popart_moves_by_the_steps_that_are_learned_from_alone",),
    ),
    Mutant(
        "popart-moments-not-told", "does not rescale the optimiser's moments with the value head",
        Place(LOSS, "update(targets, batch.task_id, learned, optimiser, across)",
              "update(targets, batch.task_id, learned, None, across)"),
        ("test_impala.py::test_popart_rescales_the_moments_of_the_optimiser_it_is_given",),
    ),
    Mutant(
        "advantages-in-points", "does not divide advantages by the scale of the game",
        Place(LOSS, "advantages = advantages / head.scale(batch.task_id)",
              "advantages = advantages * 1"),
        ("test_impala.py::test_popart_losses_are_those_of_rewards_in_units_of_sigma",),
    ),
    Mutant(
        "one-rms-for-all-games", "normalises the advantages of all games by one size",
        Place(LOSS, "rms[batch.task_id]", "rms.mean()"),
        ("test_impala.py::test_advantages_of_each_game_are_normalised_by_its_own_size",),
    ),
    Mutant(
        "trust-inverted", "learns from the states that are not to be trusted",
        Place(LOSS, "distance < config.trust_threshold",
              "distance > config.trust_threshold"),
        PLAIN_LOOPS,
    ),
    Mutant(
        "burn-in-learned", "learns from the rows that only bring the memory up to date",
        Place(LOSS, "valid & ~burn_in", "valid"),
        ("test_impala.py::test_burn_in_learns_what_the_rows_after_it_alone_would_teach",),
    ),
    Mutant(
        "signed-errors", "gives replay errors with a sign",
        Place(LOSS, "errors = (targets - values.detach()).abs()",
              "errors = targets - values.detach()"),
        ERRORS,
    ),
    Mutant(
        "errors-of-masked-steps", "gives replay errors of steps that nothing was learned from",
        Place(LOSS, "errors.masked_fill(~learned, math.nan)", "errors"),
        ERRORS,
    ),
)  # fmt: skip


def _popart(name: str, fault: str, old: str, new: str) -> Mutant:
    return Mutant(f"popart-{name}", fault, Place("popart.py", old, new), ("test_popart.py",))


POPART_MUTANTS = (
    _popart(
        "weights-stay", "does not rewrite the weights of the value head",
        "weight.copy_(weight * ratio.unsqueeze(-1))", "weight.copy_(weight)",
    ),
    _popart(
        "bias-sign", "moves the bias of the value head the wrong way",
        "(old_mu - self.mu) / new_sigma", "(self.mu - old_mu) / new_sigma",
    ),
    _popart(
        "moments-stay", "does not rescale the moments of the gradient",
        "factor.pow(power)", "factor.pow(0)",
    ),
    _popart(
        "absent-game-moves", "moves the statistics of games that the batch has nothing of",
        "beta = self.step_size * (count > 0)", "beta = self.step_size",
    ),
    _popart(
        "half-put-back", "puts back the statistics of a bad update and not the weights",
        "zip(moved, kept, strict=True)", "zip(moved[:2], kept[:2], strict=True)",
    ),
    _popart(
        "mean-not-subtracted", "normalises by sigma alone",
        "return (values - self._of_task(self.mu, task_id)) / ", "return values / ",
    ),
)  # fmt: skip


def _learner(name: str, fault: str, old: str, new: str, test: str = "") -> Mutant:
    tests = f"test_learner.py::{test}" if test else "test_learner.py"
    return Mutant(f"learner-{name}", fault, Place("learner.py", old, new), (tests,))


def _backward(name: str, fault: str, old: str, new: str, test: str) -> Mutant:
    tests = (f"test_backward.py::{test}",)
    return Mutant(f"backward-{name}", fault, Place("backward.py", old, new), tests)


LEARNER_MUTANTS = (
    _learner(
        "clip-ignored", "does not clip gradients",
        "self._parameters, self._max_grad_norm, norm", 'self._parameters, float("inf"), norm',
        "test_clipping_keeps_the_direction_and_limits_the_norm",
    ),
    Mutant(
        "learner-gradients-add-up", "never clears the gradients of the update before",
        Place(
            "backward.py",
            "        self._optimiser.zero_grad(set_to_none=True)\n", "",
        ),
        ("test_learner.py::test_resuming_equals_going_on",),
    ),
    _backward(
        "not-copied", "replays the batch that was recorded",
        "        torch._foreach_copy_(list(vars(self.batch).values()), list(vars(batch).values()))\n",
        "",
        "test_what_is_replayed_is_what_would_be_computed",
    ),
    _backward(
        "gradient-lost", "gives the parameters no gradient after an update that was not made",
        "            parameter.grad = gradient", "            pass",
        "test_a_replayed_update_that_is_not_finite_leaves_no_trace",
    ),
    _backward(
        "figures-shared", "hands out figures that the next update overwrites",
        "figures.clone().unbind()", "figures.unbind()",
        "test_what_is_replayed_is_what_would_be_computed",
    ),
    _backward(
        "never-forgotten", "replays what was recorded for other tensors",
        "self._recording = self._computed = None", "self._computed = None",
        "test_after_other_weights_were_loaded_nothing_old_is_replayed",
    ),
    _backward(
        "too-early", "records while the mean image still moves",
        "algorithm.is_pure() and not self._model.unsettled()", "algorithm.is_pure()",
        "test_nothing_is_recorded_while_pixels_are_observed",
    ),
    _learner(
        "rate-stuck", "never anneals the learning rate",
        "lr = self._schedule(progress)", "lr = self._schedule(0.0)",
        "test_the_learning_rate_follows_progress",
    ),
    _learner(
        "rate-not-set", "computes a learning rate and does not use it",
        'group["lr"] = lr', 'group["lr"] = group["lr"]',
        "test_one_step_of_plain_sgd_subtracts_the_rate_times_the_gradient",
    ),
    _learner(
        "version-stuck", "does not count its updates",
        "self.version += 1", "self.version += 0",
        "test_lag_is_counted_in_updates_since_the_weights_that_acted",
    ),
    _learner(
        "lag-sign", "counts the lag of data backwards",
        "lag = (self.version - batch.version)", "lag = (batch.version - self.version)",
        "test_lag_is_counted_in_updates_since_the_weights_that_acted",
    ),
    _learner(
        "moments-not-loaded", "begins with fresh moments after a resume",
        '{"state": moments, "param_groups": groups}', '{"state": {}, "param_groups": groups}',
        "test_resuming_equals_going_on",
    ),
    _learner(
        "version-not-loaded", "counts updates from 0 after a resume",
        'self.version = state["version"]', "self.version = 0",
        "test_resuming_equals_going_on",
    ),
    _learner(
        "state-is-no-copy", "lets what it has saved change with the next update",
        "return copy.deepcopy(state | (", "return dict(state | (",
        "test_a_state_dict_is_a_copy",
    ),
    _learner(
        "bad-gradient-applied", "lets a gradient that is not finite reach the weights",
        "if not gradient.is_finite:", "if False:",
        "test_a_bad_reward_moves_nothing",
    ),
    _learner(
        "nothing-put-back", "leaves what a bad update has moved",
        "        for part in parts:\n                part()", "        pass",
        "test_a_bad_reward_moves_nothing",
    ),
    Mutant(
        "learner-optimiser-not-told", "does not hand the optimiser on, whose moments PopArt rescales",
        Place(
            "backward.py",
            "algorithm.loss(self._model, batch, self._optimiser, progress)",
            "algorithm.loss(self._model, batch, None, progress)",
        ),
        ("test_learner.py::test_the_algorithm_is_told_of_the_optimiser_and_of_the_progress",),
    ),
    Mutant(
        "schedule-constant", "keeps the learning rate where it begins",
        Place("optim.py", "(1 - progress) ** power", "(1 - 0 * progress) ** power"),
        ("test_optim.py::test_the_learning_rate_is_a_function_of_progress",),
    ),
    Mutant(
        "rmsprop-without-epsilon", "leaves epsilon out of RMSprop",
        Place("optim.py", 'torch._foreach_add(square_avgs, group["eps"])',
              "torch._foreach_add(square_avgs, 0.0)"),
        ("test_optim.py::test_rmsprop_tf_equals_tensorflows_rule_by_hand",),
    ),
)  # fmt: skip

SEVERAL = "test_several_learners.py::test_two_learners_learn_what_one_learns_from_both_batches"


def _several(name: str, fault: str, files: str, old: str, new: str) -> Mutant:
    return Mutant(f"several-{name}", fault, Place(files, old, new), (SEVERAL,))


SEVERAL_MUTANTS = (
    _several(
        "gradient", "leaves the gradient of each learner to itself",
        "gradients.py", 'across.sum_(flat, "gradient")', "pass",
    ),
    _several(
        "own-gradient", "steps by the gradient of the own batch, though it knows that of all",
        "gradients.py", "if self._summed is not self._own:", "if False:",
    ),
    _several(
        "popart", "moves PopArt by the targets of the own batch",
        "popart.py", 'across.sum_(self._sums(targets, task_id, mask), "popart")',
        "self._sums(targets, task_id, mask)",
    ),
    _several(
        "advantages", "normalises advantages by the size of those of the own batch",
        LOSS, 'across.sum_((sums.unsqueeze(1) * belongs).sum(-1), "advantages")',
        "(sums.unsqueeze(1) * belongs).sum(-1)",
    ),
    _several(
        "count", "divides the loss by the steps of the own batch",
        LOSS, 'across.sum_(valid.sum(), "count")', "valid.sum()",
    ),
    _several(
        "pixels", "averages the images of the own batch",
        "pixels.py", 'across.sum_(_sums(images), "pixels")', "_sums(images)",
    ),
    _several(
        "vectors", "takes the mean of the vectors of the own batch",
        "vectors.py", 'across.sum_(torch.cat([about.reshape(1), values.sum(0)]), "vectors")',
        "torch.cat([about.reshape(1), values.sum(0)])",
    ),
    _several(
        "vector-squares", "takes the variance of the vectors of the own batch",
        "vectors.py", 'across.sum_((values - mean).square().sum(0), "vector_squares")',
        "(values - mean).square().sum(0)",
    ),
    _several(
        "same-pixels", "shows the same steps of each learner's unrolls",
        "pixels.py", "torch.arange(rank * size, (rank + 1) * size)", "torch.arange(size)",
    ),
)  # fmt: skip

LEARNING_MUTANTS = (
    *VTRACE_MUTANTS,
    *FORMULA_MUTANTS,
    *LOSS_MUTANTS,
    *POPART_MUTANTS,
    *LEARNER_MUTANTS,
    *SEVERAL_MUTANTS,
)
