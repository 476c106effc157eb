"""One training session of one run: learner and schedule, and nothing else.

    Experience ──batch──► Learner.step ──► WeightBoard ──► workers
        ▲                     │
        └──── moment ─────────┴──► Tally ──► Recorder ──► Sink, then Saving

agent/run/run.py holds what all parts share, agent/run/experience.py makes the batches,
agent/run/recorder.py the records; agent/run/saving.py decides when a checkpoint is written, and
core/stop_signals.py handles signals. All of this runs in the main thread, and an exception of any
other thread is raised here by `Experience.next_batch`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ritornello.agent.algorithms.batch import Batch
from ritornello.agent.learning.bad_updates import NonFiniteUpdate
from ritornello.agent.learning.feed import PackedBatch
from ritornello.agent.process_group import LearnerLost
from ritornello.agent.run.control import Control
from ritornello.agent.run.experience import Moment
from ritornello.agent.run.recorder import Recorder
from ritornello.agent.run.run import Run
from ritornello.agent.run.saving import Saving
from ritornello.core.errors import WorkerDied
from ritornello.core.stop_signals import INTERRUPTED
from ritornello.metrics.hardware import load
from ritornello.metrics.health import Finding
from ritornello.metrics.sinks import Sink

if TYPE_CHECKING:
    from ritornello.agent.run.evaluating import Evaluating

log = logging.getLogger(__name__)

PUBLISH_EACH_S = 0.005  # with a GPU, whose updates take 2 ms, and the unroll of a worker 100
SILENCE_S = 60.0  # the user is told what a batch waits for that has not come for so long


@dataclass(frozen=True)
class Summary:
    """How a run ended; written to summary.json."""

    reason: str  # steps | seconds | return | interrupted
    agent_steps: int
    frames: int
    updates: int
    episodes: int
    wall_s: float
    mean_return: float | None
    best_mean_return: float | None
    best_return: float | None
    agent_steps_per_s: float
    findings: tuple[Finding, ...]  # of the health metrics, earlier sessions included
    energy_j: float | None = None  # energy of the run so far, as far as it was measured
    joules_per_million_steps: float | None = None  # agent steps

    @property
    def status(self) -> int:
        """Exit status of the session: a run without a single update is no success."""
        if self.reason == "interrupted":
            return INTERRUPTED
        return 0 if self.updates else 1


class Trainer:
    """Runs one training session of one run. Use once."""

    def __init__(
        self, run: Run, sink: Sink, flush: Callable[[], bool | None] | None = None
    ) -> None:
        """Start nothing.

        The caller owns `sink`, to which records and games are reported. `flush` writes what was
        reported to the disk, within seconds, and returns whether it is there; by default it is the
        sink's own.
        """
        self._run = run
        self._flags, self._blueprint = run.flags, run.blueprint
        self._stop, self._coordinator, self._board = run.stop, run.coordinator, run.board
        self._learner, self._tally, self._experience = run.learner, run.tally, run.experience
        self._saving = Saving(run, flush or sink.flush)
        self.evaluating = _evaluating_of(run)
        evaluate = None if self.evaluating is None else self.evaluating.request
        self._control = Control(run, self._saving.now, evaluate)
        self._recorder = Recorder(run, sink, self.evaluating)
        self._batch: Batch | PackedBatch | None = None  # which waits until every learner has one
        self._began = time.monotonic()
        self._rested_s = 0.0  # in pauses of this session, and before its first update
        self._has_learned = False
        self._stop_reason = ""
        self._published_at = 0.0
        is_on_gpu = run.blueprint.choices.device.type == "cuda"
        # No clock decides with which weights a reproducible run acts.
        self._publish_each_s = PUBLISH_EACH_S if is_on_gpu and not run.flags.reproducible else 0.0
        self._learner_failed = False
        self._is_heir = False  # of learner 0, which is lost: this one saves
        self._session_start_steps = self._tally.agent_steps

    def run(self) -> Summary:
        """Train until a limit, a wish to stop or a failure; save; stop everything."""
        self._began = time.monotonic()
        failures: list[BaseException] = []
        try:
            self._coordinator.begin(self._learner, self._blueprint)
            self._publish()
            self._advance()
            self._experience.start()
            self._run.status.enter("filling")
            self._control.tell()
            self._loop()
        except BaseException as error:
            self._coordinator.announce_failure(error)
            failures.append(error)
            lost = error.ranks if isinstance(error, LearnerLost) else ()
            self._is_heir = self._coordinator.place.inherits(lost)
        for step in (
            self._quiesce,
            self._last_evaluation,
            self._last_record,
            self._sum_up,  # before what takes time and trains nothing
            self._save_at_the_end,
            self._experience.close,
            self._board.close,
        ):
            try:
                step()
            except BaseException as error:
                log.debug("while stopping", exc_info=True)
                failures.append(error)
        if failures:
            raise failures[0]  # the others follow from it, or are in the log
        return self._summary

    # --- the loop --------------------------------------------------------------------------------

    def _loop(self) -> None:
        flags = self._flags
        next_record = time.monotonic() + flags.log_interval_s
        silent_since = still_since = time.monotonic()
        self._evaluate()  # one that the user has interrupted in a reproducible run is still due
        while not self._is_over():
            self._control.look()
            if self._control.is_paused:
                self._rest()
                self._evaluate()
                silent_since = still_since = time.monotonic()
                continue
            self._advance()
            batch = self._next_batch()
            has_learned = batch is not None and self._learn(batch)
            self._publish_if_due(is_waiting=batch is None)
            now = time.monotonic()
            if not self._has_learned:  # workers start and replay fills: no clock of the run counts
                self._rested_s += now - still_since
                self._tally.start_rates()
                still_since = now
                self._has_learned, self._session_start_steps = has_learned, self._tally.agent_steps
            if batch is not None:
                silent_since = now
            elif now - silent_since >= SILENCE_S:
                reasons = (*self._experience.missing(), load())
                log.warning("no batch for %.0f s: %s", SILENCE_S, "; ".join(filter(None, reasons)))
                silent_since = now
            # Wall-clock must not decide anything in a reproducible run.
            if has_learned if flags.reproducible else now >= next_record:
                self._write_record()
                next_record = now + flags.log_interval_s
            if has_learned or not flags.reproducible:
                self._evaluate()
            if has_learned:
                self._saving.after_batch()

    def _advance(self) -> None:
        self._experience.advance(Moment(self._learner.version, self._progress()))

    def _next_batch(self) -> Batch | PackedBatch | None:
        """Book the reports of all learners; return a batch if each of them has one."""
        experience = self._experience
        batch = self._batch
        if batch is None:
            try:
                batch = experience.next_batch()
            except WorkerDied:  # of the same signal, if it went to a whole group of processes
                if not self._stop.requested:
                    raise
        synchronised = self._coordinator.synchronise(
            experience.reports(), batch is not None, experience.missing
        )
        self._recorder.book(synchronised.reports)
        self._batch = None if synchronised.is_ready else batch
        return batch if synchronised.is_ready else None

    def _rest(self) -> None:
        """Spend a moment of a pause: no batch is taken, so workers wait; the clocks stand still."""
        self._run.status.enter("paused")
        self._stand_still(self._control.rest())
        if not self._stop.requested:  # else they may have ended of the same signal
            self._experience.check()
        if not self._control.is_paused:
            self._run.status.enter("training")

    def _stand_still(self, seconds: float) -> None:
        """Leave so many seconds out of all clocks of the run."""
        self._tally.rest(seconds)
        self._rested_s += seconds

    def _learn(self, batch: Batch | PackedBatch) -> bool:
        """Make the update of a batch; return False if it was not possible."""
        bad_updates = self._run.bad_updates
        try:
            metrics = self._learner.step(batch, self._progress())
            self._experience.feed_back(batch, self._learner.errors)
            bad_updates.good()
            self._tally.book_update(metrics)
            self._coordinator.updated()
        except NonFiniteUpdate as error:
            # If this one is too many, it is not the batch; that of another learner says nothing.
            self._learner_failed = error.culprit.name != "learner"
            bad_updates.note(error, batch.unpacked(), self._learner.version)
            self._learner_failed = False  # its state is that of before, and can be saved
            self._experience.replay.discard(batch.item[list(error.culprit.columns)].tolist())
            return False
        except LearnerLost:
            raise  # the state is that of before, and can be saved
        except BaseException:
            self._learner_failed = True
            raise
        return True

    def _evaluate(self) -> None:
        if self.evaluating is not None:
            self.evaluating.look()

    def _is_over(self) -> bool:
        flags, tally, agreed = self._flags, self._tally, self._coordinator.agreed
        is_late = 0 < (flags.training_seconds or 0) <= self._ran_s()
        if agreed("interrupted", self._stop.requested or self._control.stop_asked):
            log.warning("stopping: saving a checkpoint. Ctrl-C again leaves without saving")
            self._stop.at_stake = self._saving.last()
            self._stop_reason = "interrupted"
        elif tally.agent_steps >= flags.environment_max_steps:
            self._stop_reason = "steps"
        elif agreed("seconds", is_late):
            self._stop_reason = "seconds"
        elif (
            flags.stop_at_mean_return is not None
            and tally.games.full_mean is not None
            and tally.games.full_mean >= flags.stop_at_mean_return
        ):
            self._stop_reason = "return"
        return bool(self._stop_reason)

    def _ran_s(self) -> float:
        """Return the seconds of this session since its first update, without its pauses."""
        return time.monotonic() - self._began - self._rested_s

    def _progress(self) -> float:
        """Return the share of the schedule that is done, 0 to 1."""
        return min(1.0, self._tally.agent_steps / self._blueprint.schedule_steps)

    def _publish(self) -> None:
        with self._board.write(self._learner.version) as block:
            self._blueprint.acting_weights.pack(self._learner.model, block)
        self._published_at = time.monotonic()

    def _publish_if_due(self, *, is_waiting: bool) -> None:
        """Publish new weights; while batches come, not more often than workers look for them."""
        is_new = self._learner.version > self._board.version
        is_soon = time.monotonic() - self._published_at < self._publish_each_s
        if is_new and (is_waiting or not is_soon):
            self._publish()

    def _write_record(self) -> None:
        self._stop.take_back()  # an environment that plays in this process may be to blame
        self._recorder.write()

    # --- the end ---------------------------------------------------------------------------------

    def _quiesce(self) -> None:
        try:
            self._control.close()
        finally:
            self._experience.quiesce()

    def _last_evaluation(self) -> None:
        if self.evaluating is None:
            return
        began = time.monotonic()
        try:
            if self._stop_reason not in ("", "interrupted"):
                self.evaluating.finish()
        finally:
            self._stand_still(time.monotonic() - began)
            self.evaluating.close()

    def _last_record(self) -> None:
        self._recorder.book(self._experience.reports())
        # One without an update would be missing in the same reproducible run without a stop here.
        tally = self._tally
        is_due = tally.has_updates if self._flags.reproducible else tally.has_news
        if is_due:
            self._write_record()

    def _save_at_the_end(self) -> None:
        if self._is_heir:
            self._saving.take_over()
        self._run.status.enter("saving")
        self._saving.at_the_end(learner_failed=self._learner_failed)

    def _sum_up(self) -> None:
        tally, energy = self._tally, self._recorder.energy
        steps = tally.agent_steps - self._session_start_steps
        self._summary = Summary(
            reason=self._stop_reason,
            agent_steps=tally.agent_steps,
            frames=tally.counters().frames,
            updates=tally.updates,
            episodes=tally.games.count,
            wall_s=tally.wall_s,
            mean_return=tally.games.mean,
            best_mean_return=tally.games.best_mean,
            best_return=tally.games.best,
            agent_steps_per_s=steps / max(self._ran_s(), 1e-9),
            findings=tuple(self._recorder.findings),
            energy_j=energy.joules if energy.steps else None,
            joules_per_million_steps=energy.joules_per_million_steps,
        )


def _evaluating_of(run: Run) -> Evaluating | None:
    if not run.flags.evaluate_every_steps or not run.blueprint.place.speaks:
        return None
    from ritornello.agent.run.evaluating import Following, InTurn

    return InTurn(run) if run.flags.reproducible else Following(run)
