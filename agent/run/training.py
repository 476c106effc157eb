"""`Session`: one training in its run folder, or one test. `agent.session.prepare` makes it.

A training makes or takes over the folder, opens log and sinks, lets the trainer run, and writes
down how it ended. From the log's opening on, every failure is one message in it and the exit status
1; before it, nothing has been started.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ritornello.agent.assembly import Blueprint
from ritornello.agent.machine import go_to_background
from ritornello.agent.process_group import LearnerLost
from ritornello.agent.run.coordinator import SINGLE_LEARNER, Coordinator
from ritornello.agent.run.messages import REASONS, log_end, log_start
from ritornello.agent.run.reporting import Reporting
from ritornello.agent.run.run import Run
from ritornello.agent.run.trainer import Summary, Trainer
from ritornello.agent.stored.checkpoint_folder import run_of
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core.atomic_file import writable_folder, write_json
from ritornello.core.command_line import printable, tell
from ritornello.core.errors import EnvironmentFault, PlatformError, of_the_system
from ritornello.core.kept_settings import set_torch
from ritornello.core.process_death import started_in_here_ended
from ritornello.core.rng import child_seed
from ritornello.core.run_layout import SCORES
from ritornello.core.standard_error import say
from ritornello.core.stop_signals import INTERRUPTED, Answer, StopSignals
from ritornello.core.warden import Warden

if TYPE_CHECKING:
    from ritornello.agent.run.warm_start import WarmStart
    from ritornello.agent.stored.checkpoint import Checkpoint
    from ritornello.agent.testing.score_table import Report

# Beside a GPU the learner gives Python's lock away at each of many small operations, and may wait
# for so long until the thread that makes batches gives it back. With Python's own 5 ms a run had a
# sixteenth less speed there (docs/performance.md).
GPU_SWITCH_INTERVAL_S = 0.0005
PROGRAM = "main.py"  # whose flags `argv` are

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ending:
    """How a training ended; what went wrong has been logged."""

    status: int  # exit status
    folder: Path
    summary: Summary | None = None  # None: it failed
    failure: Exception | None = None


@dataclass(frozen=True)
class Session:
    """A checked invocation, ready to run."""

    blueprint: Blueprint
    checkpoint: Checkpoint | None  # to go on from, to start from or to test
    argv: list[str]  # the command line without the program's name
    start: WarmStart | None = None  # if a new run starts from the checkpoint's weights
    envs: tuple[str, ...] = ()  # ids of the games to play in test mode
    coordinator: Coordinator = SINGLE_LEARNER

    def run(self, stop: StopSignals | None = None) -> int:
        """Train or test; return the exit status. Without `stop`, nobody can stop the session.

        Raises:
          ConfigError: if the run cannot begin in its folder; nothing was started then.
        """
        stop = stop or StopSignals()
        if self.blueprint.flags.op_mode == "test":
            with stop.answered_by(Answer.RAISE):
                return self._test()
        return self.train(stop).status

    # --- training --------------------------------------------------------------------------------

    def train(self, stop: StopSignals) -> Ending:
        """Train until a limit, a wish to stop or a failure; return how it ended.

        Raises:
          ConfigError: if there can be no run folder, or another session has saved in it since the
            checkpoint was read; nothing was started then.
        """
        flags, place = self.blueprint.flags, self.blueprint.place
        page: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
        if flags.live and place.speaks:
            from ritornello.agent.run.live_page import live_page

            resumed = self._resumed_folder()
            page = live_page(resumed.path.parent if resumed else flags.results_dir)
        with stop.answered_by(Answer.NOTE), page:
            try:
                if flags.background:
                    go_to_background()
                return self._train_first(stop) if place.speaks else self._train_other(stop)
            except BaseException as error:
                self.coordinator.announce_failure(error)
                raise

    @property
    def resumed(self) -> Checkpoint | None:
        """The checkpoint that a run goes on from; None if a new run begins."""
        return None if self.start else self.checkpoint

    def _train_first(self, stop: StopSignals) -> Ending:
        """Train as learner 0, which decides and writes."""
        flags = self.blueprint.flags
        resumed = self._resumed_folder()
        if resumed is not None:
            another = "go on in another one with --new_run_folder=True --results_dir=<folder>"
            writable_folder(resumed.path, another)
        folder = resumed or RunFolder.create(flags.results_dir, flags.env, name=flags.run_name)
        with folder.lock():
            if resumed is not None and self.checkpoint is not None:
                from ritornello.agent.stored.run_rewind import check_not_saved_since

                check_not_saved_since(self.checkpoint)
            with closing(Reporting(folder, self.blueprint)) as reporting:
                return self._train(stop, folder, reporting)

    def _train_other(self, stop: StopSignals) -> Ending:
        path = Path(self.coordinator.broadcast(""))
        path.mkdir(parents=True, exist_ok=True)  # on another machine it is another folder
        place = self.blueprint.place
        folder = RunFolder(path)
        with closing(Reporting(folder, self.blueprint)) as reporting:
            ending = self._train(stop, folder, reporting)
            error = ending.failure
            is_first = isinstance(error, LearnerLost) and 0 in error.ranks  # it cannot say it
            if is_first and not place.is_launched:  # or the launcher does
                say(f"learner {place.rank}: the run failed: {error}")
            return ending

    def _resumed_folder(self) -> RunFolder | None:
        """Return the folder of a run that goes on; None if a new one is made."""
        if self.resumed is None or self.blueprint.flags.new_run_folder:
            return None
        path = run_of(self.resumed.path)
        return None if path is None else RunFolder(path)

    def _train(self, stop: StopSignals, folder: RunFolder, reporting: Reporting) -> Ending:
        """Train with the log open: every failure from here on is a message in it."""
        resumed, place = self.resumed, self.blueprint.place
        try:
            _set_up_torch(self.blueprint)
            self._begin(folder)
            sink = reporting.open_sinks(None if resumed is None else resumed.agent_steps)
            weights = None if self.start is None else self.start.weights
            run = Run(
                self.blueprint, folder, resumed, weights=weights, stop=stop,
                status=reporting.status, coordinator=self.coordinator,
            )  # fmt: skip
            summary = Trainer(run, sink, reporting.flush).run()
            reporting.close_sinks()
            reporting.status.enter("ended", reason=summary.reason)
            return Ending(self._finish(summary, folder, stop), folder.path, summary)
        except Exception as raised:
            error = of_the_system(raised)
            self.coordinator.announce_failure(error)
            is_known = isinstance(error, (PlatformError, OSError)) or not place.speaks
            reporting.fail(error, is_known=is_known)
            return Ending(1, folder.path, failure=error)

    def _begin(self, folder: RunFolder) -> None:
        """Take the folder back to the checkpoint, and write down how the session begins."""
        place = self.blueprint.place
        if not place.speaks:
            log.info("learner %d of %d", place.rank, place.world_size)
            return
        if self._resumed_folder() is not None and self.checkpoint is not None:
            from ritornello.agent.stored.run_rewind import take_back

            for note in (*self.checkpoint.notes, *take_back(folder, self.checkpoint)):
                log.info("%s", note)
        self.coordinator.broadcast(str(folder.path.resolve()))  # its journals are cut by now
        write_json(folder.flags_file, self.blueprint.flags.to_json())
        folder.write_run_info([PROGRAM, *self.argv])
        log_start(self, folder)

    def _finish(self, summary: Summary, folder: RunFolder, stop: StopSignals) -> int:
        """Note how the run ended, draw charts, log the next command; return the exit status."""
        if not self.blueprint.place.speaks:
            log.info("this learner has ended: %s", REASONS[summary.reason])
            return summary.status
        flags, status = self.blueprint.flags, summary.status
        write_json(folder.summary_file, asdict(summary))
        if flags.charts and not _draw(folder, stop):
            status = INTERRUPTED
        if self.resumed is not None and self.resumed.updates == summary.updates:
            log.warning(
                "this session made no update, so it saved nothing: the next one begins again at "
                "%s agent steps",
                f"{self.resumed.agent_steps:,}",
            )
        log_end(summary, folder, flags)
        return status

    # --- a test ----------------------------------------------------------------------------------

    def test(self) -> list[Report]:
        """Play whole games with the loaded agent; return a report for each of the games played.

        Raises:
          ConfigError: if nothing can be written where the games belong; none was played then.
          EnvironmentFault: if an environment fails.
          OSError: if the system refuses something, or the games could not be written.
          KeyboardInterrupt: if the user interrupted before the first game was over.
        """
        from ritornello.agent.testing.evaluator import evaluate, evaluate_all

        assert self.checkpoint is not None
        flags, output = self.blueprint.flags, self._test_folder()
        show = tell if flags.console else lambda line: None
        with contextlib.ExitStack() as stack:
            warden = stack.enter_context(closing(Warden()))
            warden.keep_own_children()  # environments may own processes
            stack.enter_context(started_in_here_ended())
            if flags.test_all_checkpoints:
                evaluate_all(self.blueprint, self.checkpoint, output, envs=self.envs, show=show)
                return []
            return evaluate(self.blueprint, self.checkpoint, output, envs=self.envs, show=show)

    def _test_folder(self) -> Path:
        assert self.checkpoint is not None
        return self.checkpoint.output_folder(self.blueprint.flags.results_dir)

    def _test(self) -> int:
        flags, kept = self.blueprint.flags, ""
        if flags.test_all_checkpoints:
            table = printable(str(self._test_folder() / SCORES))
            kept = f"what was finished is in {table}; the same command goes on there"
        try:
            reports = self.test()
        except KeyboardInterrupt:
            say(f"interrupted: {kept}" if kept else "interrupted before the first game was over")
            return INTERRUPTED
        except (EnvironmentFault, OSError) as fault:
            say("\n".join(filter(None, [f"error: {printable(str(fault))}", kept])))
            return 1
        if flags.test_all_checkpoints:
            return 0
        over = {report.env for report in reports if report.episodes >= report.asked}
        return 0 if over >= set(self.envs) else INTERRUPTED


def _draw(folder: RunFolder, stop: StopSignals) -> bool:
    """Draw the charts of a run; return False if the user does not want to wait for them."""
    from ritornello.metrics.charts import draw_run

    log.info("drawing the charts; Ctrl-C leaves without them")
    try:
        with stop.answered_by(Answer.RAISE):
            draw_run(folder.path)
    except KeyboardInterrupt:
        log.info("the charts are not drawn; everything else is saved")
        return False
    except Exception as error:
        # The run is saved and whole; a picture of it can be drawn at any time.
        log.warning("the charts could not be drawn: %s", error)
        log.debug("traceback", exc_info=True)
    return True


def _set_up_torch(blueprint: Blueprint) -> None:
    # The learner's threads compute shares of a batch side by side (agent/models/parallel.py); each
    # of their operators, and those of the scorer and the feed, runs on one thread.
    torch.set_num_threads(1)
    set_torch()  # whatever code of the user has set
    if blueprint.choices.device.type == "cuda":
        sys.setswitchinterval(GPU_SWITCH_INTERVAL_S)
    if blueprint.flags.debug:
        torch.autograd.set_detect_anomaly(True)
    if blueprint.flags.reproducible:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
        # A network of a user's own may draw from it.
        torch.default_generator.manual_seed(child_seed(blueprint.own_seed, "torch"))
