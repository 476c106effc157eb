"""One simulated run: sessions are hurt, die, and are resumed, until one comes to its end."""

import contextlib
import gc
import logging
import os
import random
import shutil
import tempfile
import traceback
from collections import Counter, deque
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from unittest import mock

import torch

from ritornello.agent.learning.bad_updates import TooManyBadUpdates
from ritornello.agent.learning.feed import Feed
from ritornello.agent.learning.scorer import Scorer
from ritornello.agent.run.checks import check_session
from ritornello.agent.run.run import Run
from ritornello.agent.run.trainer import Trainer
from ritornello.agent.stored.checkpoint import load
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.agent.stored.run_rewind import take_back
from ritornello.core import faults, files
from ritornello.core.atomic_file import write_json
from ritornello.core.errors import WorkerDied
from ritornello.core.stop_signals import Answer, StopSignals
from ritornello.metrics.energy import EnergyBook
from ritornello.metrics.sinks import JsonLinesSink, Tee, TextFilesSink
from tests.exact.disks import ForgetfulDisk, write_files
from tests.exact.runs import Crash, CrashPlan
from tests.faulty import Fault
from tests.simulated.checker import Checker, Violation, newest_update
from tests.simulated.experience import Stepped
from tests.simulated.plan import RARE, STEPS_OF_UNROLL
from tests.simulated.pool import SimPool
from tests.simulated.world import Move, World

FOLDERS = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
MAX_SESSIONS = 16
UNCALM_SESSIONS = 5  # besides those that die; then nothing is hurt any more, and the run must end
NOTHING_RARE = dict.fromkeys(RARE, 0.0)
JUMPS_S = (1.0, 100.0, 1e5)
# Failures that are documented; whatever else comes out of a session is a finding.
FAILURES = (TooManyBadUpdates, WorkerDied)


@dataclass
class Result:
    """What one plan has led to."""

    broken: list
    trace: deque  # of the last moves
    updates: int = 0
    endings: Counter = field(default_factory=Counter)  # sessions by how they ended


class SimFaults(CrashPlan):
    """Lets the world interrupt at each point, and the process die at one."""

    def __init__(self, lines, look, world):
        super().__init__(lines, look)
        self._world = world

    def reach(self, point, path, tear):
        super().reach(point, path, tear)
        if self.left is None:
            self._world.interrupt(point)

    def die(self):
        """The process leaves at once, as at a second Ctrl-C."""
        self.kill("second signal")


class LateFiles:
    """A sink behind an output thread: all waits until that thread's move, or a flush."""

    def __init__(self, sink, plan, checker):
        self._sink = sink
        self._plan = plan
        self._checker = checker
        self._waiting = deque()
        self.is_flushing = False

    def moves(self):
        if self._waiting and not self.is_flushing:
            yield Move("files", "files", self._plan.weights["files"], self._write_one)

    def _write_one(self):
        self._waiting.popleft()()

    def write(self, record):
        self._checker.recorded(record)
        self._waiting.append(lambda: self._sink.write(record))

    def episode(self, end, at):
        self._waiting.append(lambda: self._sink.episode(end, at))

    def flush(self):
        # While one waits for the other, nobody else writes these files.
        self.is_flushing = True
        while self._waiting:
            self._write_one()
        self._sink.flush()
        self.is_flushing = False

    def close(self):
        self.flush()
        self._sink.close()


class User:
    """Presses Ctrl-C, and sets the clock."""

    def __init__(self, plan, world, stop):
        self._plan = plan
        self._world = world
        self._stop = stop

    def moves(self):
        yield Move("user", "signal", self._plan.weights["signal"], lambda: self._stop.handle(2))
        yield Move("clock", "jump", self._plan.weights["jump"], self._jump)

    def _jump(self):
        self._world.now_s += self._world.chance.choice(JUMPS_S)


class Simulation:
    """Plays one plan."""

    def __init__(self, plan):
        self._plan = plan
        self._faults = None
        self._of_plan = plan.blueprint()
        self._world = World(plan.seed, plan.interruptions)
        self._checker = Checker(plan, self._world)
        self._day = datetime(2026, 1, 1)
        self.result = Result(self._checker.broken, self._world.trace)

    def play(self):
        """Play all sessions; return the result."""
        root = Path(tempfile.mkdtemp(prefix="simulated_", dir=FOLDERS))
        try:
            with (
                _quiet(),
                mock.patch("time.monotonic", self._world.monotonic),
                mock.patch("ritornello.core.stop_signals.leave_at_once", self._die),
                mock.patch("ritornello.agent.run.recorder.Hardware", _NoMachine),
            ):
                self._sessions(root)
        finally:
            shutil.rmtree(root, ignore_errors=True)
        self.result.updates = self._checker.updates
        return self.result

    def _die(self, _why):
        self._faults.die()

    def _sessions(self, root):
        deaths = deque(self._plan.deaths)
        for number in range(MAX_SESSIONS):
            if number >= len(self._plan.deaths) + UNCALM_SESSIONS:
                self._plan.weights |= NOTHING_RARE
            death, nth = deaths.popleft() if deaths else ("none", 0)
            ending = self._session(root, death, nth)
            self.result.endings[ending] += 1
            self._world.note(f"session: {ending}")
            if self._checker.broken or ending == "steps":
                return
        self._checker.fail("alive", f"the run has not come to its end in {MAX_SESSIONS} sessions")

    def _session(self, root, death, nth):
        results, lines = root / "results", _lines(death, nth)
        results.mkdir(exist_ok=True)
        if not any(newest_update(run) for run in results.iterdir()):
            shutil.rmtree(results)  # there is nothing to go on from: a new run begins
            results.mkdir()
        chance = random.Random(nth) if death == "lucky power" else None
        with ForgetfulDisk(results) as disk, files.using(disk):
            cut = partial(disk.after_power_cut, chance)
            look = cut if "power" in death else disk.after_kill
            self._faults = SimFaults(lines, look, self._world)
            with faults.loaded(self._faults):
                ending, summary = self._train(results)
                self._world.forget_session()
                if self._faults.left is not None:
                    # What the dead process had open is closed now, and not within the next one.
                    gc.collect()
        left = self._faults.left
        if left is not None:
            ending = "died"
            shutil.rmtree(results)
            results.mkdir()
            write_files(results, left)
        for run in results.iterdir():
            if not self._checker.broken:
                self._checker.session_ended(run, ending, summary)
        return ending

    def _train(self, results):
        """Return how a session ended, and its summary; what is broken is with the checker."""
        sinks = None
        try:
            folder, checkpoint = self._folder(results)
            size, steps = self._plan.batch_size, STEPS_OF_UNROLL
            sinks = Tee(
                [
                    JsonLinesSink(folder.metrics_file),
                    TextFilesSink(folder.path, batch_size=size, unroll_length=steps),
                ]
            )
            late = LateFiles(sinks, self._plan, self._checker)
            summary = None
            try:
                summary = self._trainer(folder, checkpoint, late).run()
                return summary.reason, summary
            finally:
                late.close()
                if summary is not None:
                    write_json(folder.summary_file, asdict(summary))
        except FAILURES as error:
            self._world.note(f"failed: {error!s:.80}")
            return "failed", None
        except (Crash, Violation):
            return "broken", None
        except Exception as error:
            if self._faults.left is None:
                text = "".join(traceback.format_exception(error)[-2:])
                self._checker.fail("ends", f"{type(error).__name__}: {text:.500}")
            return "broken", None
        finally:
            if self._faults.left is not None and sinks is not None:
                with contextlib.suppress(BaseException):
                    sinks.close()  # under this plan, which lets nothing through any more

    def _folder(self, results):
        """Return the run folder, and the checkpoint to go on from, if there is one."""
        self._day += timedelta(seconds=self._world.chance.choice((-1e5, 0, 1, 1e5)))
        runs = list(results.iterdir())
        if not runs:
            self._checker.session_begins(None, None)
            return RunFolder.create(results, "simulated", now=self._day), None
        folder = RunFolder(runs[0])
        for path in folder.checkpoints.iterdir():
            when = self._world.chance.uniform(0, 2e9)  # the times of files decide nothing
            os.utime(path, (when, when))
        checkpoint = check_session(load(folder.path), self._blueprint(resumes=True))
        take_back(folder, checkpoint, self._day)
        self._checker.session_begins(checkpoint, folder.path)
        return folder, checkpoint

    def _blueprint(self, resumes=False):
        if not resumes:
            return self._of_plan
        flags = self._of_plan.flags.model_copy(update={"op_mode": "train_w_load"})
        return replace(self._of_plan, flags=flags)

    def _trainer(self, folder, checkpoint, late):
        world, checker, plan = self._world, self._checker, self._plan
        stop = StopSignals()
        stop.answer = Answer.NOTE
        user = User(plan, world, stop)

        def experience(blueprint, board, life):
            pool = SimPool(blueprint.workers(life=life), board, plan, world, checker)
            replay, feed = blueprint.replay(), Feed(blueprint.schema, blueprint.choices.device)
            evaluate = None
            if replay.needs_evaluation:
                model, _ = blueprint.acting_model()
                parts = (blueprint.acting_weights, board, blueprint.schema)
                evaluate = Scorer(model, *parts, blueprint.choices.device).evaluate
            stepped = Stepped(pool, replay, feed, evaluate, plan=plan, world=world, checker=checker)
            checker.watch(pool)
            world.sources += [pool.moves, stepped.moves, late.moves, user.moves]
            world.after_move = checker.after_move
            return stepped

        blueprint = self._blueprint(checkpoint is not None)
        run = Run(blueprint, folder, checkpoint, stop=stop, experience=experience)
        checker.restored(run.experience.replay.state_dict(contents=False)["counters"]["next_id"])
        return Trainer(run, late)


class _NoMachine:
    """In the place of Hardware: what the real machine does has no part in a simulation."""

    def __init__(self, earlier):
        self.energy, self.processes = EnergyBook(earlier), {}

    def read(self, agent_steps, parts):
        return {}

    def new_notes(self):
        return []


def _lines(death, nth):
    """Return the plan of faults by which a session dies."""
    if death == "none":
        return []
    if death == "torn":
        return [Fault(("file.write",), "torn", torn_bytes=nth % 97, nth=1 + nth % 211)]
    return [Fault(("*",), "kill", nth=nth)]


@contextlib.contextmanager
def _quiet():
    """Say nothing, and use one thread."""
    threads, level = torch.get_num_threads(), logging.root.manager.disable
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)
        torch.set_num_threads(threads)
