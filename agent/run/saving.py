"""When a run is saved, and above all when not.

* A state is saved every --save_model_period updates, at milestones, and at the end of a session.
* Never before the first update of this session: there is nothing new, and a session that failed
  while it started must not replace what it could not restore.
* Never after the learner itself failed, because its state is the one that could not continue.
* Records and games up to update n are on the disk before the checkpoint of n is, so that every
  checkpoint has its history. If the files of the run do not answer, the weights are saved all the
  same, because they are worth more, and the log says that records may be missing before them.
* Weights are saved first and contents of replay second, because whoever stops the run may kill it
  meanwhile; `SaveTime` knows how long that takes.
* If the disk refuses a save, the log says so once, training goes on, and the next save tries again.
  The last save of a session has no next one, so its failure is a failure of the run.
* `best.pt` holds the weights of the moment at which its score was the mean return over a full
  window of games. The present mean is compared with the score in the file.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable

from ritornello.agent.run.memory import unrolls_when_full
from ritornello.agent.run.run import Run
from ritornello.agent.stored.checkpoint_folder import BEST
from ritornello.agent.stored.checkpoint_writer import CheckpointWriter
from ritornello.core import faults
from ritornello.core.errors import CheckpointError
from ritornello.core.run_layout import CHECKPOINTS
from ritornello.core.stop_signals import StopSignals

log = logging.getLogger(__name__)

LOCK_S = 5.0  # a learner that was killed lets go of the lock of its folder within this time
BEST_INTERVAL_S = 30.0  # a quickly improving run does not save its best at each game
USUAL_DISK = 100e6  # bytes per second; until a save of replay has measured it
LEAST_MEASURED = 16e6  # bytes; the time of a smaller file says nothing of the disk
USUAL_GRACE_S = 30.0  # after which Kubernetes and others kill, unless they are told otherwise
SLOWER = 1.5  # than measured, which a shared disk may be at any time
ENDING_S = 10.0  # for workers to end once all is saved


class SaveTime:
    """How long it takes to save replay contents, estimated from the last save.

    Whoever stops a job gives it some time and then kills it. Only Slurm says how much is left
    (ritornello/core/stop_signals.py): there the run begins to stop early enough.
    """

    def __init__(self, stop: StopSignals, full_bytes: int) -> None:
        """Reserve the time that a usual disk takes for `full_bytes`, those of full buffers."""
        self._stop = stop
        self._full_bytes = full_bytes
        self._bytes_per_s = USUAL_DISK
        self._stop.reserve(SLOWER * self.of(full_bytes))
        self._is_measured = False

    def of(self, nbytes: float) -> float:
        """Return the seconds that saving `nbytes` bytes of replay takes."""
        return nbytes / self._bytes_per_s

    def fits(self, nbytes: float) -> bool:
        """Whether `nbytes` bytes of replay can be saved before the job ends, as far as is known."""
        return SLOWER * self.of(nbytes) + ENDING_S <= self._stop.left_s

    def note(self, nbytes: int, seconds: float) -> None:
        """Note how long a save has taken; tell the user the first time."""
        if nbytes < LEAST_MEASURED:
            return
        self._bytes_per_s = nbytes / max(seconds, 1e-6)
        full_s = self.of(self._full_bytes)
        self._stop.reserve(SLOWER * full_s)
        if self._is_measured:
            return
        self._is_measured = True
        log.info(
            "a stop saves the weights first, then replay in %.1f s (%.2f GB when full, at %.0f "
            "MB/s)", full_s, self._full_bytes / 1e9, self._bytes_per_s / 1e6,
        )  # fmt: skip
        if full_s > USUAL_GRACE_S:
            log.warning(
                "whoever kills %.0f s after SIGTERM, as Kubernetes does, leaves no time to save "
                "replay: give %.0f s (docs/slurm.md), or a resume finds the newest weights with "
                "the replay of an earlier checkpoint",
                USUAL_GRACE_S, SLOWER * full_s + ENDING_S,
            )  # fmt: skip


class Saving:
    """Writes the checkpoints of one session. Belongs to the main thread."""

    def __init__(self, run: Run, flush: Callable[[], bool | None]) -> None:
        """Write nothing yet.

        `flush` writes records and games to the disk; False means that some are not there in time.
        """
        self._run = run
        self._tally, self._replay = run.tally, run.experience.replay
        self._flush = flush
        self._restored_updates = self._looked_at_updates = run.tally.updates
        self._last: tuple[int, float] | None = None  # updates and time of the last checkpoint
        self._complete = -1  # updates of the last one that has all that it should
        self._is_ending = False
        self._save_time: SaveTime | None = None  # of a run that saves replay after the weights
        self._refused = set[str]()  # what the last try did not save, so that it is said once
        self._best_score: float | None = None  # of best.pt; None if there is none to beat
        self._unanswered = False  # whether the last flush came to no end, likewise
        self._best_looked_at = -BEST_INTERVAL_S
        self._writes = run.blueprint.place.speaks  # one of several learners does
        if self._writes:
            self._open()

    def _open(self) -> None:
        self._writer = CheckpointWriter(
            self._run.folder.checkpoints,
            keep_last=self._run.flags.keep_checkpoints,
            milestone_steps=self._run.flags.save_model_every_nsteps,
            start_steps=self._tally.agent_steps,
        )
        # Otherwise the one that is there was the best over another number of games.
        if self._tally.games.best_mean is not None:
            self._best_score = self._writer.best_score()
        run, flags = self._run, self._run.flags
        if flags.save_replay and not flags.reproducible:  # where both fit exactly or not at all
            full_bytes = unrolls_when_full(run.blueprint) * run.blueprint.schema.nbytes
            self._save_time = SaveTime(run.stop, full_bytes)

    def take_over(self) -> None:
        """Save in place of the learner that saved so far and is lost.

        Raises:
          ConfigError: if the run folder stays locked: that learner is stopped or hangs, or another
            one saves already.
        """
        self._lock = self._run.folder.lock(wait_s=LOCK_S)  # until this process ends
        self._open()
        self._writes = True

    def after_batch(self) -> None:
        """Save what is due after the updates of one batch, and after their record was written."""
        if not self._writes:
            return
        updates, period = self._tally.updates, self._run.flags.save_model_period
        is_period = updates // period > self._looked_at_updates // period
        self._looked_at_updates = updates
        # One that the disk has refused stays due, and waits for the next period.
        waits = CHECKPOINTS in self._refused
        is_milestone = not waits and self._writer.milestone_due(self._tally.agent_steps)
        if is_period or is_milestone:
            self._try(CHECKPOINTS, self._save)
        if self._is_time_for_best(is_period):
            self._try(BEST, self._save_best)

    def now(self) -> str:
        """Save on request; return the outcome in words.

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
        self._is_ending = True
        folder = self._writer.folder
        if not folder.is_dir():  # somebody has moved or removed the run: its weights are left
            log.warning("%s is gone: it is made anew for the last checkpoint", folder)
            with contextlib.suppress(OSError):  # the save says so
                folder.mkdir(parents=True)
        self._save()
        self._save_best()

    def last(self) -> str:
        """Return a text on the last save of this session, for a user who may lose the rest."""
        if self._last is None:
            return "this session has saved no checkpoint yet"
        updates, at_s = self._last
        return f"the last checkpoint is update {updates}, {time.monotonic() - at_s:.0f} s old"

    def _try(self, name: str, save: Callable[[], bool]) -> None:
        try:
            has_written = save()
        except CheckpointError as error:
            if name not in self._refused:
                log.warning(
                    "%s Training goes on; the next save is tried after %d updates.",
                    error, self._run.flags.save_model_period,
                )  # fmt: skip
            self._refused.add(name)
            return
        if has_written and name in self._refused:
            log.warning("saving %s works again", name)
            self._refused.discard(name)

    def _save(self) -> bool:
        tally, run = self._tally, self._run
        if self._complete == tally.updates:
            return False  # an update is saved once
        faults.at("save.begin")
        self._bring_history_to_disk()
        path = self._writer.save(
            run.state_dict(),
            updates=tally.updates,
            agent_steps=tally.agent_steps,
            replay=self._replay.state_dict(contents=True) if run.flags.reproducible else None,
            replay_follows=self._save_time is not None,
        )
        self._last = tally.updates, time.monotonic()
        log.debug("saved %s", path)
        if self._is_ending or self._save_time is not None:
            run.stop.at_stake = self.last()
        if self._save_time is not None:
            self._save_replay(self._save_time)
        self._complete = tally.updates
        return True

    def _save_replay(self, save_time: SaveTime) -> None:
        stop = self._run.stop
        nbytes = 1e6 * self._replay.stats()["replay/memory_mb"]
        if self._is_ending and not save_time.fits(nbytes):
            log.warning(
                "the weights of update %d are saved; replay (%.2f GB, %.0f s) is not, because the "
                "job ends in %.0f s: a resume finds that of an earlier checkpoint",
                self._tally.updates, nbytes / 1e9, save_time.of(nbytes), stop.left_s,
            )  # fmt: skip
            return
        began = time.monotonic()
        contents = self._replay.state_dict(contents=True)
        size = self._writer.save_replay(self._tally.updates, contents)
        save_time.note(size, time.monotonic() - began)

    def _save_best(self) -> bool:
        score = self._tally.games.full_mean
        if score is None or not math.isfinite(score):  # no checkpoint holds another
            return False
        if self._best_score is not None and score <= self._best_score:
            return False
        self._bring_history_to_disk()
        if self._best_score is None:
            self._writer.set_best_aside()
        self._writer.save_best(self._run.state_dict(), score=score)
        self._best_score = score
        return True

    def _bring_history_to_disk(self) -> None:
        unanswered = self._flush() is False
        if unanswered and not self._unanswered:
            log.warning(
                "the files of the run do not answer: update %d is saved before its records and "
                "games are on the disk, so some may be missing after a power cut",
                self._tally.updates,
            )
        self._unanswered = unanswered

    def _is_time_for_best(self, is_period: bool) -> bool:
        if self._run.flags.reproducible:  # where no clock decides anything
            return is_period
        now = time.monotonic()
        if now - self._best_looked_at < BEST_INTERVAL_S:
            return False
        self._best_looked_at = now
        return True
