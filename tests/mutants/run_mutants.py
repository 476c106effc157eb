"""Faults in the wiring: acting, unrolls, batches, the trainer's loop, the books and saving."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Place


def _wiring(name: str, fault: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(name, fault, Place(file, old, new), tests or ("test_wiring.py",))


TRAINER_MUTANTS = (
    _wiring(
        "weights-never-published", "lets everybody act with the weights of the start",
        "trainer.py", "        if has_learned:\n            self._publish()\n", "",
    ),
    _wiring(
        "published-version-stuck", "publishes the weights of each update under the number before",
        "trainer.py", "self._board.write(self._learner.version)",
        "self._board.write(max(0, self._learner.version - 1) or self._learner.version)",
    ),
    _wiring(
        "learner-annealing-stuck", "anneals nothing in the learner",
        "trainer.py", "self._learner.step(part, self._progress())",
        "self._learner.step(part, 0.0)",
    ),
    _wiring(
        "replay-annealing-stuck", "anneals nothing in replay",
        "trainer.py", "Moment(self._learner.version, self._progress())",
        "Moment(self._learner.version, 0.0)",
    ),
    _wiring(
        "moment-stuck", "never tells replay which update it is",
        "trainer.py", "Moment(self._learner.version, self._progress())",
        "Moment(0, self._progress())",
    ),
    _wiring(
        "progress-ignored-by-replay", "draws as at the start of the training",
        "experience.py", "update=moment.update, progress=moment.progress",
        "update=moment.update, progress=0.0",
    ),
    _wiring(
        "priorities-never-fed-back", "never tells replay what was learned",
        "trainer.py", "                self._experience.feed_back(part, self._learner.errors)\n", "",
    ),
    _wiring(
        "errors-of-the-update-before", "keeps the errors of its first update",
        "learner.py", "        self.errors = loss.errors\n",
        "        self.errors = loss.errors if self.errors is None else self.errors\n",
        "agent/test_feed_back.py::test_the_learner_keeps_the_errors_of_its_last_update",
    ),
    _wiring(
        "bad-updates-add-up", "counts bad updates in a row across good ones",
        "trainer.py", "                self._bad_updates.good()\n", "",
        "test_bad_updates.py::test_bad_updates_with_good_ones_in_between_end_no_run",
    ),
    _wiring(
        "bad-unrolls-kept", "draws an unroll again that cannot be learned from",
        "trainer.py",
        "            self._experience.discard(part.item[list(error.culprit.columns)].tolist())\n", "",
        "test_bad_updates.py::test_an_unroll_that_is_not_finite_costs_one_update",
    ),
    _wiring(
        "last-record-lost", "writes no record of what came after the last one",
        "trainer.py", "        if is_due:\n", "        if False:\n",
        "test_trainer.py::test_the_last_record_has_all_that_came_after_the_one_before",
    ),
    _wiring(
        "nothing-saved-at-the-end", "loses what was learned since the last checkpoint",
        "trainer.py", "        self._saving.at_the_end(learner_failed=self._learner_failed)",
        "        pass",
        "test_saving.py::test_a_last_save_that_fails_is_the_failure_of_the_run",
    ),
    _wiring(
        "games-of-a-life-again", "plays the same games after a resume",
        "trainer.py", "done * LIVES_PER_UPDATE)", "0 * done)",
        "test_trainer.py::test_a_resumed_run_repeats_no_games_of_workers_that_were_restarted_before",
    ),
)  # fmt: skip

SAVING_MUTANTS = (
    _wiring(
        "best-never-saved", "never writes best.pt",
        "saving.py", "        self._writer.save_best(self._state(), score=score)\n", "",
        "test_saving.py::test_best_holds_the_weights_of_the_moment_that_earned_its_score",
    ),
    _wiring(
        "worst-saved-as-best", "replaces best.pt by what is worse",
        "saving.py", "score <= self._best_score", "score >= self._best_score",
        "test_saving.py::test_best_holds_the_weights_of_the_moment_that_earned_its_score",
    ),
    _wiring(
        "best-forgotten", "does not remember the best score it has saved",
        "saving.py", "        self._best_score = score\n        return True",
        "        return True",
        "test_saving.py::test_best_holds_the_weights_of_the_moment_that_earned_its_score",
    ),
    _wiring(
        "best-forgotten-over-a-resume", "forgets after a resume what there is to beat",
        "saving.py", "self._best_score = self._writer.best_score()", "self._best_score = None",
        "test_saving.py::test_the_end_of_a_session_may_be_its_best_and_a_resume_has_that_to_beat",
    ),
    _wiring(
        "failed-learner-saved", "saves the state from which the learner could not go on",
        "saving.py", "if learner_failed or nothing_new", "if nothing_new",
        "test_saving.py::test_nothing_is_saved_once_the_learner_has_failed",
    ),
    _wiring(
        "history-after-checkpoint", "saves before the records are on the disk",
        "saving.py", "        self._bring_history_to_disk()\n        path = ", "        path = ",
        "test_saving.py::test_records_and_games_are_on_the_disk_before_the_checkpoint_is",
    ),
    _wiring(
        "counters-not-restored", "counts from 0 after a resume",
        "saving.py", '            self._tally.load_state_dict(checkpoint.state["tally"])\n', "",
    ),
    _wiring(
        "weights-not-restored", "begins with fresh weights after a resume",
        "saving.py", "            self._learner.load_state_dict(learner)\n", "",
    ),
    _wiring(
        "experience-not-restored", "begins with empty replay and new games after a resume",
        "saving.py",
        "            self._experience.load_state_dict(checkpoint.state, contents)", "            pass",
    ),
    _wiring(
        "replay-not-saved", "saves no replay contents in a reproducible run",
        "saving.py", "flags.save_replay or flags.reproducible", "flags.save_replay",
    ),
    _wiring(
        "oldest-checkpoints-kept", "keeps every checkpoint",
        "checkpoint.py", "if n <= updates)[: -self._keep_last]", "if n <= updates)[:0]",
        "test_checkpoint.py::test_the_last_k_are_kept_and_their_replay_with_them",
    ),
)  # fmt: skip

TALLY_MUTANTS = (
    _wiring(
        "frames-are-steps", "does not count the frames of a repeated action",
        "tally.py", "frames=self.agent_steps * self._action_repeat", "frames=self.agent_steps",
        "test_tally.py",
    ),
    _wiring(
        "wall-clock-restarts", "forgets the time of earlier sessions",
        "tally.py", 'self._wall_before_s = float(state["wall_s"])', "self._wall_before_s = 0.0",
        "test_tally.py",
    ),
    _wiring(
        "one-nan-spoils-a-mean", "lets an update without a value spoil the mean of the others",
        "tally.py", ".nanmean()", ".mean()",
        "test_tally.py",
    ),
    _wiring(
        "metrics-add-up", "averages each record over the whole run",
        "tally.py", "        self._metrics = []\n        self._recorded", "        self._recorded",
        "test_tally.py",
    ),
    _wiring(
        "score-before-the-window-is-full", "ranks models by a handful of games",
        "meters.py", "return self._window.read() if is_full else None",
        "return self._window.read()",
        "test_meters.py", "test_tally.py",
    ),
)  # fmt: skip

ROLLOUT = ("test_rollout.py",)
UNROLL_MUTANTS = (
    _wiring(
        "reset-one-row-early", "marks the row before the reset as the first of a game",
        "rollout.py", "unroll.first[:, t + 1] = result.first", "unroll.first[:, t] = result.first",
        *ROLLOUT,
    ),
    _wiring(
        "termination-not-recorded", "records no end of a game",
        "rollout.py", "unroll.terminated[:, t] = result.terminated",
        "unroll.terminated[:, t] = False",
        *ROLLOUT,
    ),
    _wiring(
        "frame-one-row-late", "records the observation before each step, not after it",
        "rollout.py",
        "        unroll.frames[:, t + self._schema.env_spec.frames_stacked] = result.stacks[:, -1]",
        "        unroll.frames[:, t + self._schema.env_spec.frames_stacked] = "
        "unroll.frames[:, t + self._schema.env_spec.frames_stacked - 1]",
        *ROLLOUT,
    ),
    _wiring(
        "memory-of-the-last-row", "records the memory at the end of an unroll as that at its start",
        "rollout.py", "        if t == 0:\n", "        if t in (0, self._schema.unroll_length - 1):\n",
        *ROLLOUT,
    ),
    _wiring(
        "memory-lost", "acts with an empty memory at each step",
        "actor.py", "action, self._state = self.decide(", "action, _ = self.decide(",
        *ROLLOUT,
    ),
    _wiring(
        "unlikely-actions", "draws unlikely actions",
        "distributions.py", "(params - noise.log())", "(-params - noise.log())",
        "test_rollout.py::test_actions_are_drawn_from_the_policy",
    ),
    _wiring(
        "weights-never-taken", "lets workers act with the weights of their start",
        "worker.py", "            self._acting.refresh()\n", "            self._acting.version < 0 and self._acting.refresh()\n",
    ),
    _wiring(
        "actors-all-alike", "gives the actors of all workers one random stream",
        "worker.py", 'child_seed(config.seed, *self._path, "actor")',
        'child_seed(config.seed, "actor")',
    ),
    _wiring(
        "games-all-alike", "gives the environments of all workers the same seeds",
        "worker.py", 'child_seed(config.seed, *self._path, "env", index)',
        'child_seed(config.seed, "env", index)',
    ),
    _wiring(
        "one-game-again-and-again", "starts every game of an environment with the same seed",
        "gym_vector.py", 'child_seed(seed, "episode", episode)', 'child_seed(seed, "episode", 0)',
        "test_gym_vector.py::test_every_episode_of_every_environment_has_a_seed_of_its_own",
    ),
    _wiring(
        "resets-are-steps", "counts reset rows as steps of the agent",
        "worker.py", "first[:, 1:].size - int(first[:, 1:].sum())", "first[:, 1:].size",
        "test_rollout.py::test_games_are_reported_once_and_reset_rows_are_no_steps",
    ),
    _wiring(
        "time-limit-terminates", "reports a time limit as the end of the game",
        "gym_vector.py", "bool(terminated or lost)", "bool(game.over or lost)",
        "test_gym_vector.py::test_time_limits_truncate_and_are_not_termination",
    ),
    _wiring(
        "lost-life-goes-on", "does not tell the learner of a lost life",
        "gym_vector.py", "bool(terminated or lost)", "bool(terminated)",
        "test_twins.py", "test_atari.py",
    ),
    _wiring(
        "stack-over-reset", "shows frames of the game before in the first stack of a game",
        "gym_vector.py", "        self._stacks[index] = 0\n", "",
        "test_gym_vector.py::test_every_row_is_where_it_belongs", "test_twins.py",
    ),
    _wiring(
        "half-written-weights", "publishes weights before they are written",
        "weights.py", "        return self._halves[begun % 2]\n",
        "        self._header[DONE] = begun - 1\n        return self._halves[(begun - 1) % 2]\n",
        "test_weights.py",
    ),
)  # fmt: skip

BATCH_MUTANTS = (
    _wiring(
        "batch-stack-over-reset", "rebuilds stacks that reach over a reset",
        "feed.py", "            by_frame[row, column, position] = 0\n", "            pass\n",
        "test_feed.py",
    ),
    _wiring(
        "last-action-is-this-one", "shows a recurrent model the action that it is about to take",
        "feed.py", "np.concatenate([before, arrays[name]])",
        "np.concatenate([arrays[name], before])",
        "test_feed.py",
    ),
    _wiring(
        "age-sign", "counts the age of data backwards",
        "feed.py", "update - draw.item.inserted_at_update", "draw.item.inserted_at_update - update",
        "test_feed.py", "test_threaded.py::test_the_age_of_what_is_learned_is_counted_from_the_newest_word",
    ),
    _wiring(
        "weights-of-draws-dropped", "gives every draw the weight 1 on the way to the loss",
        "feed.py", "[draw.weight for draw in draws]", "[1.0 for draw in draws]",
    ),
    _wiring(
        "all-is-replayed", "takes new data for replayed data",
        "feed.py", "[draw.is_online for draw in draws]", "[False for draw in draws]",
        "test_feed.py",
    ),
)  # fmt: skip

RUN_MUTANTS = (
    *TRAINER_MUTANTS,
    *SAVING_MUTANTS,
    *TALLY_MUTANTS,
    *UNROLL_MUTANTS,
    *BATCH_MUTANTS,
)
