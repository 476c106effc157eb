"""When a run is saved, what is saved, and above all when not.

Every state from which a run can continue passes through here. The rules are:

* A state is saved every --save_model_period updates, at milestones, and at the end of a session.
* Never before the first update of this session: there is nothing new, and a session that failed
  while it started must not replace what it could not restore.
* Never after the learner itself failed, because its state is the one that could not continue.
* Records and games up to update n are on the disk before the checkpoint of n is, so that every
  checkpoint has its history. If the files of the run do not answer, the weights are saved all the
  same, because they are worth more, and the log says that records may be missing before them.
* If the disk refuses a save, the log says so once, training goes on, and the next save tries again.
  The last save of a session has no next one, so its failure is a failure of the run.
* `best.pt` holds the weights of the moment at which its score was the mean return over a full
  window of games. The present mean is compared with the score in the file.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from ritornello.agent.assembly import Blueprint
from ritornello.agent.learning.bad_updates import BadUpdates
from ritornello.agent.learning.learner import Learner
from ritornello.agent.run.experience import Experience
from ritornello.agent.run.tally import Tally
from ritornello.agent.stored.checkpoint import Checkpoint, CheckpointWriter
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core import faults
from ritornello.core.errors import CheckpointError
from ritornello.core.saved_state import item, restoring, within

log = logging.getLogger(__name__)

LOCK_S = 5.0  # a learner that was killed lets go of the lock of its folder within this time
BEST_INTERVAL_S = 30.0  # a quickly improving run does not save its best at each game


class Saving:
    """Writes the checkpoints of one session. Belongs to the main thread."""

    def __init__(
        self,
        blueprint: Blueprint,
        folder: RunFolder,
        learner: Learner,
        tally: Tally,
        bad_updates: BadUpdates,
        experience: Experience,
        *,
        flush: Callable[[], bool | None],
        checkpoint: Checkpoint | None = None,
        writes: bool = True,
    ) -> None:
        """Restore the state of `checkpoint`, if there is one; write nothing.

        Args:
          blueprint: flags and shapes.
          folder: folder of the run.
          learner: learner whose state is saved.
          tally: counters of the run.
          bad_updates: the updates that were skipped.
          experience: where batches come from; not started yet.
          flush: brings records and games to the disk; returns within seconds, False if not all
            of them are there.
          checkpoint: checkpoint from which the run continues.
          writes: False for all but one of several learners: they restore and never save.
        """
        self._writes = writes
        self._blueprint = blueprint
        self._learner = learner
        self._tally = tally
        self._bad_updates = bad_updates
        self._experience = experience
        self._flush = flush
        if checkpoint is not None:
            self._restore(checkpoint)
        flags = blueprint.flags
        self._period = flags.save_model_period
        self._with_replay = flags.save_replay or flags.reproducible
        # Further parts of the state, by their keys; an empty one is left out.
        self.more_state: dict[str, Callable[[], dict[str, Any]]] = {}
        self._restored_updates = self._looked_at_updates = tally.updates
        self._folder = folder
        self._start_steps = tally.agent_steps
        self._last: tuple[int, float] | None = None  # updates and time of the last checkpoint
        self._refused = False  # whether the last save failed, so that it is said once
        self._unanswered = False  # whether the last flush came to no end, likewise
        # Nothing is decided by the clock in a reproducible run: there it is looked at each period.
        self._best_interval_s = None if flags.reproducible else BEST_INTERVAL_S
        self._best_looked_at = -BEST_INTERVAL_S
        if writes:
            self._open()

    def _open(self) -> None:
        flags = self._blueprint.flags
        self._writer = CheckpointWriter(
            self._folder.checkpoints,
            keep_last=flags.keep_checkpoints,
            milestone_steps=flags.save_model_every_nsteps,
            start_steps=self._start_steps,
        )
        self._best_score = self._writer.best_score()

    def take_over(self) -> None:
        """Save in the place of the learner that did so and is lost.

        Raises:
          ConfigError: if that one still holds the lock of the run folder: it is stopped, or hangs.
        """
        self._lock = self._folder.lock(wait_s=LOCK_S)  # until this process ends
        self._open()
        self._writes = True

    def after_batch(self) -> None:
        """Save what is due after the updates of one batch, and after their record was written."""
        if not self._writes:
            return
        updates = self._tally.updates
        is_period = updates // self._period > self._looked_at_updates // self._period
        self._looked_at_updates = updates
        if is_period or self._writer.milestone_due(self._tally.agent_steps):
            self._try(self._save)
        if self._is_time_for_best(is_period):
            self._try(self._save_best)

    def now(self) -> str:
        """Save because somebody asks for it; return what became of it.

        Raises:
          CheckpointError: if it could not be written.
        """
        if self._tally.updates == self._restored_updates:
            return "refused: nothing has been learned in this session yet"
        self._save()
        return f"done: update {self._tally.updates} is saved"

    def at_the_end(self, *, learner_failed: bool) -> None:
        """Save the last state of the session, if there is one that is worth it.

        Raises:
          CheckpointError: if it could not be written.
        """
        nothing_new = self._tally.updates == self._restored_updates
        if learner_failed or nothing_new or not self._writes:
            return
        self._save()
        self._save_best()

    def _try(self, save: Callable[[], bool]) -> None:
        try:
            has_written = save()
        except CheckpointError as error:
            if not self._refused:
                log.warning(
                    "%s Training goes on; the next save is tried after %d updates.",
                    error, self._period,
                )  # fmt: skip
            self._refused = True
            return
        if has_written and self._refused:
            log.warning("saving works again")
            self._refused = False

    def _bring_history_to_disk(self) -> None:
        unanswered = self._flush() is False
        if unanswered and not self._unanswered:
            log.warning(
                "the files of the run do not answer: update %d is saved before its records and "
                "games are on the disk, so some may be missing after a power cut",
                self._tally.updates,
            )
        self._unanswered = unanswered

    def _save(self) -> bool:
        if self._last is not None and self._last[0] == self._tally.updates:
            return False  # an update is saved once
        faults.at("save.begin")
        self._bring_history_to_disk()
        path = self._writer.save(
            self._state(),
            updates=self._tally.updates,
            agent_steps=self._tally.agent_steps,
            replay=self._experience.replay_contents() if self._with_replay else None,
        )
        self._last = self._tally.updates, time.monotonic()
        log.debug("saved %s", path)
        return True

    def last(self) -> str:
        """Return what this session has saved, for a user who may lose the rest."""
        if self._last is None:
            return "this session has saved no checkpoint yet"
        updates, at_s = self._last
        return f"the last checkpoint is update {updates}, {time.monotonic() - at_s:.0f} s old"

    def _save_best(self) -> bool:
        score = self._present_score()
        if score is None or (self._best_score is not None and score <= self._best_score):
            return False
        self._bring_history_to_disk()
        self._writer.save_best(self._state(), score=score)
        self._best_score = score
        return True

    def _present_score(self) -> float | None:
        return self._tally.games.full_mean

    def _is_time_for_best(self, is_period: bool) -> bool:
        if self._best_interval_s is None:
            return is_period
        now = time.monotonic()
        if now - self._best_looked_at < self._best_interval_s:
            return False
        self._best_looked_at = now
        return True

    def _state(self) -> dict[str, Any]:
        return {
            "flags": self._blueprint.flags.to_json(),
            "env_spec": self._blueprint.env_spec.to_dict(),
            "learner": self._learner.state_dict(),
            "tally": self._tally.state_dict(),
            "bad_updates": self._bad_updates.state_dict(),
            **self._experience.state_dict(),
            **{key: part for key, state in self.more_state.items() if (part := state())},
        }

    def _restore(self, checkpoint: Checkpoint) -> None:
        checkpoint.check_spec(self._blueprint.env_spec)
        flags = self._blueprint.flags
        contents = checkpoint.load_replay() if flags.load_replay else None
        with restoring(str(checkpoint.path)):
            learner = dict(checkpoint.state["learner"])
            if not flags.load_optimizer_save:
                learner["optimiser"] = self._learner.state_dict()["optimiser"]
            with within("learner"):
                self._learner.load_state_dict(learner)
            with within("tally"):
                self._tally.load_state_dict(checkpoint.state["tally"])
            # Not in an earlier version's, nor a new start's.
            bad_updates = item(checkpoint.state, "bad_updates", dict, default=None)
            if bad_updates is not None:
                with within("bad_updates"):
                    self._bad_updates.load_state_dict(bad_updates)
            if self._writes:  # the other learners draw other random numbers
                self._experience.load_state_dict(checkpoint.state, contents)
