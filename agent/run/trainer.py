"""One training session of one run: learner and schedule, and nothing else.

    Experience ──batch──► Learner.step ──► WeightBoard ──► workers
        ▲                     │
        └──── moment ─────────┴──► Tally ──► Recorder ──► Sink, then Saving

agent/run/experience.py makes the batches, agent/run/recorder.py the records; agent/run/saving.py
decides when a checkpoint is written, core/stop_signals.py handles signals, and
agent/run/reporting.py receives records. All of this runs in the main thread, and an exception of
any other thread is raised here by `Experience.next_batch`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ritornello.agent.algorithms.batch import Batch
from ritornello.agent.algorithms.non_finite import NonFiniteUpdate
from ritornello.agent.assembly import Blueprint
from ritornello.agent.learners.group import LearnerLost
from ritornello.agent.learning.bad_updates import BadUpdates
from ritornello.agent.run.control import control_of
from ritornello.agent.run.coordinator import SINGLE_LEARNER, Coordinator
from ritornello.agent.run.experience import Moment
from ritornello.agent.run.no_evaluation import make_evaluating
from ritornello.agent.run.recorder import Recorder
from ritornello.agent.run.saving import Saving
from ritornello.agent.run.several_checks import kind_of
from ritornello.agent.run.sources import MakeExperience, MakePool, make_experience
from ritornello.agent.run.status import RunStatus
from ritornello.agent.run.status_files import StatusFiles
from ritornello.agent.run.tally import model_facts, new_tally
from ritornello.agent.stored.checkpoint import Checkpoint
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core.stop_signals import INTERRUPTED, StopSignals
from ritornello.metrics.health import Finding
from ritornello.metrics.machine_share import load
from ritornello.metrics.run_files import read_records
from ritornello.metrics.sinks import Sink
from ritornello.transport.weights import WeightBoard

log = logging.getLogger(__name__)

LIVES_PER_UPDATE = 1_000_000  # no worker is restarted so often, so no session repeats a life
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
    findings: tuple[Finding, ...]  # what the health metrics said, earlier sessions included
    energy_j: float | None = None  # of the run so far, over the time in which it was measured
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
        self,
        blueprint: Blueprint,
        folder: RunFolder,
        sink: Sink,
        checkpoint: Checkpoint | None = None,
        *,
        stop: StopSignals | None = None,
        flush: Callable[[], bool | None] | None = None,
        make_pool: MakePool | None = None,
        experience: MakeExperience | None = None,
        coordinator: Coordinator | None = None,
        status: StatusFiles | None = None,
    ) -> None:
        """Build every part; start nothing.

        Args:
          blueprint: flags and shapes.
          folder: folder of the run.
          sink: where records and games are reported; belongs to the caller.
          checkpoint: checkpoint from which the run continues.
          stop: what the user asks for meanwhile; None: nobody can ask.
          flush: brings all that was reported to the disk, within seconds, and says whether it is
            there; None: the sink's own.
          make_pool: makes what unrolls come from, with the board on which the newest weights will
            be, and the life of the workers; None: what the flags ask for.
          experience: makes what gives batches, given the same; None: what the flags ask for, on
            the pool.
          coordinator: the other learners of the run; None: there are none.
          status: what writes down how the run is, for who looks from outside; None: nobody does.
        """
        flags = blueprint.flags
        self._flags = flags
        self._blueprint = blueprint
        self._stop = stop or StopSignals()
        self._coordinator = coordinator or SINGLE_LEARNER
        self._learner = blueprint.learner(self._coordinator.group)
        self._batch: Batch | None = None  # which waits until every learner has one
        self._tally = new_tally(blueprint)
        self._bad_updates = BadUpdates(
            folder.path, flags.max_bad_updates, rank=blueprint.place.rank
        )
        self._board = WeightBoard(blueprint.acting_weights.nbytes)
        # After a resume the games are others than after the first start.
        done = 0 if checkpoint is None else checkpoint.updates
        make = experience or partial(make_experience, make_pool=make_pool)
        self._experience = make(blueprint, self._board, done * LIVES_PER_UPDATE)
        self._saving = Saving(
            blueprint, folder, self._learner, self._tally, self._bad_updates, self._experience,
            flush=flush or sink.flush, checkpoint=checkpoint, writes=blueprint.place.speaks,
        )  # fmt: skip
        self.evaluating = make_evaluating(
            blueprint, folder.path, status,
            agent_steps=self._tally.agent_steps,
            facts=lambda: model_facts(folder, self._tally),
            state=None if checkpoint is None else checkpoint.state.get("evaluation"),
            stop_requested=lambda: self._stop.requested,
        )  # fmt: skip
        self._saving.more_state["evaluation"] = self.evaluating.state_dict
        self._control = control_of(
            folder, self._learner, self._saving, self._tally, self.evaluating, self._experience,
            reproducible=flags.reproducible, checkpoint=checkpoint, place=blueprint.place,
        )  # fmt: skip
        self._rested_s = 0.0  # in pauses of this session, and before its first update
        self._has_learned = False
        self._stop_reason = ""
        self._learner_failed = False
        self._is_heir = False  # of learner 0, which is lost: this one saves
        self._session_start_steps = self._tally.agent_steps
        self._status = RunStatus(status, blueprint, self._tally.counters())
        self._status.control = self._control.status
        self._recorder = Recorder(
            sink, self._tally, self._status, self._experience, self.evaluating,
            read_records(folder.path),
        )  # fmt: skip

    def run(self) -> Summary:
        """Train until a limit, a wish to stop or a failure; save; stop everything."""
        began = time.monotonic()
        failures: list[BaseException] = []
        try:
            self._coordinator.begin(self._learner, kind_of(self._blueprint))
            self._publish()
            self._experience.start()
            self._status.enter("filling")
            self._control.open()
            self._loop(began)
        except BaseException as error:
            self._coordinator.announce_failure(error)
            failures.append(error)
            lost = error.ranks if isinstance(error, LearnerLost) else ()
            self._is_heir = self._coordinator.place.inherits(lost)
        for step in (
            self._quiesce,
            self._last_evaluation,
            self._last_record,
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
        return self._summarise(self._ran_s(began))

    # --- the loop --------------------------------------------------------------------------------

    def _loop(self, began: float) -> None:
        flags = self._flags
        next_record = time.monotonic() + flags.log_interval_s
        silent_since = still_since = time.monotonic()
        self._evaluate()  # one that the user has interrupted in a reproducible run is still due
        while not self._is_over(began):
            self._control.look()
            if self._control.is_paused:
                self._rest()
                self._evaluate()
                silent_since = still_since = time.monotonic()
                continue
            self._experience.advance(Moment(self._learner.version, self._progress()))
            batch = self._next_batch()
            has_learned = batch is not None and self._learn(batch)
            now = time.monotonic()
            if not self._has_learned:  # workers start and replay fills: no clock of the run counts
                self._stand_still(now - still_since)
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

    def _next_batch(self) -> Batch | None:
        """Book what all learners have heard; return a batch if each of them has one."""
        experience = self._experience
        batch = self._batch if self._batch is not None else experience.next_batch()
        synchronised = self._coordinator.synchronise(
            experience.reports(), batch is not None, experience.missing
        )
        self._recorder.book(synchronised.reports)
        self._batch = None if synchronised.is_ready else batch
        return batch if synchronised.is_ready else None

    def _rest(self) -> None:
        """Spend a moment of a pause: no batch is taken, so workers wait; the clocks stand still."""
        self._status.enter("paused")
        self._stand_still(self._control.rest())
        if not self._control.is_paused:
            self._status.enter("training")

    def _stand_still(self, seconds: float) -> None:
        """Leave so much time out of all clocks of the run."""
        self._tally.rest(seconds)
        self._rested_s += seconds

    def _learn(self, batch: Batch) -> bool:
        """Make the update of a batch; return False if it was not possible."""
        try:
            metrics = self._learner.step(batch, self._progress())
            self._experience.feed_back(batch, self._learner.errors)
            self._bad_updates.good()
            self._tally.book_update(metrics)
            self._coordinator.updated()
        except NonFiniteUpdate as error:
            # If this one is too many, it is not the batch; that of another learner says nothing.
            self._learner_failed = error.culprit.name != "learner"
            self._bad_updates.note(error, batch, self._learner.version)
            self._learner_failed = False  # its state is that of before, and can be saved
            self._experience.discard(batch.item[list(error.culprit.columns)].tolist())
            return False
        except LearnerLost:
            raise  # the state is that of before, and can be saved
        except BaseException:
            self._learner_failed = True
            raise
        self._publish()
        return True

    def _evaluate(self) -> None:
        self.evaluating.look(self._tally.updates, self._tally.agent_steps, self._learner.model)

    def _is_over(self, began: float) -> bool:
        flags, tally, agreed = self._flags, self._tally, self._coordinator.agreed
        is_late = 0 < (flags.training_seconds or 0) <= self._ran_s(began)
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

    def _ran_s(self, began: float) -> float:
        """Return the seconds of this session since its first update, without its pauses."""
        return time.monotonic() - began - self._rested_s

    def _progress(self) -> float:
        """Return the share of the schedule that is done, 0 to 1."""
        return min(1.0, self._tally.agent_steps / self._blueprint.schedule_steps)

    def _publish(self) -> None:
        with self._board.write(self._learner.version) as block:
            self._blueprint.acting_weights.pack(self._learner.model, block)

    def _write_record(self) -> None:
        self._stop.take_back()  # an environment that plays in this process may be to blame
        self._recorder.write(self._learner.version, self._bad_updates.count)

    # --- the end ---------------------------------------------------------------------------------

    def _quiesce(self) -> None:
        try:
            self._control.close()
        finally:
            self._experience.quiesce()

    def _last_evaluation(self) -> None:
        began = time.monotonic()
        try:
            if self._stop_reason not in ("", "interrupted"):
                tally, model = self._tally, self._learner.model
                self.evaluating.finish(tally.updates, tally.agent_steps, model)
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
        self._status.enter("saving")
        self._saving.at_the_end(learner_failed=self._learner_failed)

    def _summarise(self, session_s: float) -> Summary:
        tally, energy = self._tally, self._recorder.energy
        steps = tally.agent_steps - self._session_start_steps
        return Summary(
            reason=self._stop_reason,
            agent_steps=tally.agent_steps,
            frames=tally.counters().frames,
            updates=tally.updates,
            episodes=tally.games.count,
            wall_s=tally.wall_s,
            mean_return=tally.games.mean,
            best_mean_return=tally.games.best_mean,
            best_return=tally.games.best,
            agent_steps_per_s=steps / max(session_s, 1e-9),
            findings=tuple(self._recorder.findings),
            energy_j=energy.joules if energy.steps else None,
            joules_per_million_steps=energy.joules_per_million_steps,
        )
