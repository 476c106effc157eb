"""One training run, from start to a clean stop: the one place that knows everybody.

    workers ==> ingest thread ==> ReplayManager ==> cache threads ==> main thread: learner
       ^                                                                   |
       +------------------------- WeightBoard <--------------------------- +

`Trainer` wires the parts, starts the threads, handles signals, writes records and checkpoints, and
stops everything in one fixed order. With `--reproducible` the same parts run in turn in one thread.
All waits have a timeout; an exception in any thread ends the run and is raised from here.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import psutil

from agent.assembly import Blueprint
from agent.bad_updates import BadUpdates
from agent.batch import Batch
from agent.checkpoint import Checkpoint, CheckpointWriter
from agent.feed import Feed
from agent.non_finite import NonFiniteUpdate
from agent.pool import ProcessPool, SerialPool, UnrollBlock
from agent.run_folder import RunFolder
from agent.scorer import Scorer
from agent.tally import Tally
from core.episode import EpisodeEnd
from core.errors import CheckpointError, Closed
from core.unroll import Record
from metrics.health import Diagnosis, Finding
from metrics.run_files import read_records
from metrics.sinks import Sink
from replay.cache import AdaptiveDepth, BatchCache
from replay.manager import SampleContext
from transport.channel import WorkerStats
from transport.weights import WeightBoard

log = logging.getLogger(__name__)

POLL_S = 0.2  # how often waiting threads look whether the run is over
WORKER_GRACE_S = 3.0  # workers finish their unroll (well under a second) before they are terminated
BEST_INTERVAL_S = 30.0  # a quickly improving run does not save its best at each game
SILENCE_S = 60.0  # the user is told what a batch waits for that has not come for so long
MAX_CACHE_DEPTH = 8
MAX_NEW_AGE_UPDATES = 10.0  # beyond this the cache gets shallower rather than deeper
INTERRUPTED = 130  # exit status after Ctrl-C, as shells have it


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


class Trainer:
    """Runs one training session of one run. Use once."""

    def __init__(
        self,
        blueprint: Blueprint,
        folder: RunFolder,
        sink: Sink,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        """Build every part; start nothing.

        Args:
          blueprint: flags and shapes.
          folder: where the run lives.
          sink: where records and games are reported; closed at the end.
          checkpoint: what to continue from.
        """
        flags = blueprint.flags
        self._flags = flags
        self._blueprint = blueprint
        self._folder = folder
        self._sink = sink
        self._learner = blueprint.learner()
        self._replay = blueprint.replay()
        spec = blueprint.env_spec
        self._tally = Tally(spec.action_repeat, flags.avg_buff_size, spec.tasks)
        self._bad_updates = BadUpdates(folder.path, flags.max_bad_updates)
        self._board = WeightBoard(blueprint.acting_weights.nbytes)
        device = blueprint.choices.device
        self._feed = Feed(blueprint.schema, device)
        self._scorer = None
        if self._replay.needs_evaluation:
            model, _ = blueprint.acting_model()
            self._scorer = Scorer(
                model, blueprint.acting_weights, self._board, blueprint.schema, device
            )
        self._checkpoint = checkpoint
        if checkpoint is not None:
            self._restore(checkpoint)
        self._pool: SerialPool | ProcessPool
        if flags.reproducible:
            self._pool = SerialPool(blueprint.workers(), self._board)
        else:
            self._pool = ProcessPool(
                # After a resume the games are others than after the first start.
                blueprint.workers(life=self._tally.updates),
                self._board,
                slots=flags.shared_queue_size,
                max_restarts=flags.max_worker_restarts,
                server=blueprint.server(life=self._tally.updates),
            )
        self._waiting_records: deque[Record] = deque()  # serial mode: collected, not yet inserted
        self._cache: BatchCache[Batch] | None = None
        self._depth_control: AdaptiveDepth | None = None
        self._ingest: threading.Thread | None = None
        self._inbox: deque[tuple[WorkerStats, tuple[EpisodeEnd, ...]]] = deque()
        self._stop = threading.Event()
        self._stop_reason = ""
        self._failure: BaseException | None = None
        self._diagnosis = Diagnosis()
        # What a resumed run was told before is known, and not said again.
        self._findings = [f for r in read_records(folder.path) for f in self._diagnosis.add(r)]
        self._process = psutil.Process()
        self._writer = CheckpointWriter(
            folder.checkpoints,
            keep_last=flags.keep_checkpoints,
            milestone_steps=flags.save_model_every_nsteps,
            start_steps=self._tally.agent_steps,
        )
        self._session_start_steps = self._tally.agent_steps

    # --- the run ---------------------------------------------------------------------------------

    def run(self) -> Summary:
        """Train until a limit, a signal or a failure; save; stop everything."""
        previous = self._install_signals()
        began = time.monotonic()
        try:
            self._start()
            self._loop(began)
        finally:
            try:
                self._shut_down()
            finally:
                for number, handler in previous.items():
                    signal.signal(number, handler)
        if self._failure is not None:
            raise self._failure
        return self._summarise(time.monotonic() - began)

    def _start(self) -> None:
        self._publish()
        self._pool.start()
        if isinstance(self._pool, SerialPool):
            if self._checkpoint is not None and self._checkpoint.state.get("serial"):
                serial = self._checkpoint.state["serial"]
                self._pool.load_state_dict(serial["pool"])
                # Records of another layout are left behind, as those in the buffers were.
                nbytes = self._blueprint.schema.nbytes
                self._waiting_records.extend(r for r in serial["waiting"] if len(r) == nbytes)
            return
        self._ingest = threading.Thread(target=self._ingest_loop, name="ingest")
        self._ingest.start()
        flags = self._flags
        depth = flags.cache_output_buffer_size
        if not flags.caching:
            depth = 0
        elif depth == "auto":
            self._depth_control = AdaptiveDepth(
                MAX_CACHE_DEPTH, max_age_updates=MAX_NEW_AGE_UPDATES
            )
            depth = 1
        self._cache = BatchCache(self._produce, depth, flags.caching_threads)

    def _loop(self, began: float) -> None:
        flags = self._flags
        next_record = time.monotonic() + flags.log_interval_s
        best_saved, last_best = self._tally.games.best_mean, -BEST_INTERVAL_S
        silent_since = time.monotonic()
        while not self._is_over(began):
            batch = self._next_batch()
            has_learned = batch is not None and self._learn(batch)
            if has_learned:
                self._publish()
                if self._tally.updates % flags.save_model_period == 0 or (
                    self._writer.milestone_due(self._tally.agent_steps)
                ):
                    self._save()
            self._read_inbox()
            now = time.monotonic()
            if batch is not None:
                silent_since = now
            elif now - silent_since >= SILENCE_S:
                log.warning("no batch for %.0f s: %s", SILENCE_S, self._replay.missing() or "?")
                silent_since = now
            # Wall-clock must not decide anything in a reproducible run.
            if (flags.reproducible and has_learned) or now >= next_record:
                self._write_record()
                next_record = now + flags.log_interval_s
            if self._tally.games.best_mean != best_saved and now - last_best >= BEST_INTERVAL_S:
                self._writer.save_best(self._state())
                best_saved, last_best = self._tally.games.best_mean, now
            if self._failure is not None:
                raise self._failure

    def _learn(self, batch: Batch) -> bool:
        """Make an update; False if that was not possible with this batch."""
        try:
            metrics = self._learner.step(batch, self._progress())
        except NonFiniteUpdate as error:
            self._bad_updates.note(error, batch, self._learner.version)
            self._replay.discard(batch.item[list(error.culprit.columns)].tolist())
            return False
        self._bad_updates.good()
        self._tally.book_update(metrics)
        return True

    def _is_over(self, began: float) -> bool:
        flags, tally = self._flags, self._tally
        if self._stop.is_set():
            self._stop_reason = self._stop_reason or "interrupted"
        elif tally.agent_steps >= flags.environment_max_steps:
            self._stop_reason = "steps"
        elif flags.training_seconds and time.monotonic() - began >= flags.training_seconds:
            self._stop_reason = "seconds"
        elif (
            flags.stop_at_mean_return is not None
            and tally.games.best_mean is not None
            and tally.games.best_mean >= flags.stop_at_mean_return
        ):
            self._stop_reason = "return"
        return bool(self._stop_reason)

    def _progress(self) -> float:
        """Return the share of the schedule that is done, 0 to 1."""
        return min(1.0, self._tally.agent_steps / self._flags.schedule_steps)

    def _publish(self) -> None:
        with self._board.write(self._learner.version) as block:
            self._blueprint.acting_weights.pack(self._learner.model, block)

    # --- experience in, batches out --------------------------------------------------------------

    def _ingest_loop(self) -> None:
        try:
            while not self._stop.is_set():
                for block in self._pool.poll(POLL_S):
                    self._take_in(block)
        except Closed:
            pass  # the replay was closed under a waiting insert: the run is over
        except BaseException as error:
            self._fail(error)

    def _take_in(self, block: UnrollBlock) -> None:
        self._inbox.append((block.stats, block.episodes))
        for record in block.records:
            while not self._replay.insert(record, self._learner.version, POLL_S):
                if self._stop.is_set():
                    return
        block.release()

    def _read_inbox(self) -> None:
        while self._inbox:
            stats, episodes = self._inbox.popleft()
            self._tally.book_block(stats)
            for episode in episodes:
                self._sink.episode(episode, self._tally.book_game(episode))

    def _context(self) -> SampleContext:
        return SampleContext(
            update=self._learner.version,
            progress=self._progress(),
            evaluate=None if self._scorer is None else self._scorer.evaluate,
        )

    def _produce(self) -> Batch | None:
        """Compose the next batch (cache threads), or None if there was nothing to draw in time."""
        draws = self._replay.sample(self._context(), POLL_S)
        return None if draws is None else self._feed.compose(draws, self._learner.version)

    def _next_batch(self) -> Batch | None:
        if self._cache is not None:
            return self._cache.get(POLL_S)
        # Serial: collect and insert until a batch is complete. `insert` and `sample` are never
        # both stuck, so this ends.
        while not self._stop.is_set():
            draws = self._replay.sample(self._context(), 0.0)
            if draws is not None:
                return self._feed.compose(draws, self._learner.version)
            if not self._waiting_records:
                for block in self._pool.poll(0.0):
                    self._inbox.append((block.stats, block.episodes))
                    self._waiting_records.extend(block.records)
                self._read_inbox()
            if self._replay.insert(self._waiting_records[0], self._learner.version, 0.0):
                self._waiting_records.popleft()
        return None

    # --- records, checkpoints --------------------------------------------------------------------

    def _write_record(self) -> None:
        more = self._replay.stats()
        more["workers/alive"] = self._pool.alive()
        more["workers/restarts"] = self._pool.restarts
        more["learner/bad_updates"] = self._bad_updates.count
        more["system/memory_mb"] = self._memory_mb()
        if self._cache is not None:
            more.update(self._cache.stats())
        record = self._tally.record(more)
        if self._cache is not None and self._depth_control is not None:
            depth = self._depth_control.next_depth(
                self._cache.depth,
                record.values.get("cache/wait_fraction", 0.0),
                record.values.get("cache/fill", 0.0),
                record.values.get("lag/mean_updates", 0.0),
            )
            self._cache.set_depth(depth)
        self._sink.write(record)
        for finding in self._diagnosis.add(record):
            log.warning("health: %s", finding)
            self._findings.append(finding)

    def _memory_mb(self) -> float:
        """Return the resident memory of this process and its workers, megabytes."""
        total = self._process.memory_info().rss
        for child in self._process.children(recursive=True):
            try:
                total += child.memory_info().rss
            except psutil.Error:
                continue  # it has just ended
        return total / 1e6

    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "flags": self._flags.to_json(),
            "env_spec": self._blueprint.env_spec.to_dict(),
            "learner": self._learner.state_dict(),
            "replay": self._replay.state_dict(contents=False),
            "tally": self._tally.state_dict(),
            "bad_updates": self._bad_updates.state_dict(),
        }
        if isinstance(self._pool, SerialPool):
            state["serial"] = {
                "pool": self._pool.state_dict(),
                "waiting": list(self._waiting_records),
            }
        return state

    def _save(self) -> None:
        wanted = self._flags.save_replay or self._flags.reproducible
        path = self._writer.save(
            self._state(),
            updates=self._tally.updates,
            agent_steps=self._tally.agent_steps,
            replay=self._replay.state_dict(contents=True) if wanted else None,
        )
        log.debug("saved %s", path)

    def _restore(self, checkpoint: Checkpoint) -> None:
        checkpoint.check_spec(self._blueprint.env_spec)
        state = checkpoint.state
        learner = dict(state["learner"])
        if not self._flags.load_optimizer_save:
            learner["optimiser"] = self._learner.state_dict()["optimiser"]
        self._learner.load_state_dict(learner)
        self._tally.load_state_dict(state["tally"])
        if "bad_updates" in state:  # not in a checkpoint of before, nor in one of a new start
            self._bad_updates.load_state_dict(state["bad_updates"])
        contents = checkpoint.load_replay() if self._flags.load_replay else None
        try:
            self._replay.load_state_dict(contents if contents is not None else state["replay"])
        except CheckpointError as error:
            log.warning("%s Going on with empty buffers.", error)

    # --- stopping --------------------------------------------------------------------------------

    def _install_signals(self) -> dict[int, Any]:
        """Stop cleanly at the first SIGINT or SIGTERM, at once at the second."""
        if threading.current_thread() is not threading.main_thread():
            return {}

        def handle(number: int, frame: FrameType | None) -> None:
            if self._stop.is_set():
                for child in self._process.children(recursive=True):
                    child.kill()
                os._exit(INTERRUPTED)
            log.warning("stopping: saving a checkpoint; once more to leave without")
            self._stop_reason = "interrupted"
            self._stop.set()

        return {n: signal.signal(n, handle) for n in (signal.SIGINT, signal.SIGTERM)}

    def _fail(self, error: BaseException) -> None:
        """Remember the first failure of any thread; the main thread raises it."""
        if self._failure is None:
            self._failure = error
        self._stop.set()

    def _shut_down(self) -> None:
        """Stop in one order: batches, replay, checkpoint, workers, sinks. Errors do not stop it."""
        self._stop.set()
        steps: list[Callable[[], object]] = [self._replay.close]
        if self._cache is not None:
            steps.append(self._cache.close)
        if self._ingest is not None:
            steps.append(self._ingest.join)
        steps += [
            self._read_inbox,
            self._save_at_end,
            lambda: self._pool.stop(WORKER_GRACE_S),
            self._board.close,
            self._sink.close,
        ]
        for step in steps:
            try:
                step()
            except BaseException as error:
                log.debug("while stopping", exc_info=True)
                self._fail(error)

    def _save_at_end(self) -> None:
        if self._tally.has_news:
            self._write_record()
        if self._tally.updates:
            self._save()

    def _summarise(self, session_s: float) -> Summary:
        tally = self._tally
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
            findings=tuple(self._findings),
        )
