"""One session of training in its run folder: a new run, or one more session of an old one.

`Training` holds what `agent.session.prepare` has found sound. It makes or takes over the folder,
opens log and sinks, lets the trainer run, and writes down how it ended. From the log's opening on,
every failure is one message in it and the exit status 1; before it, nothing has been started.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
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
from ritornello.agent.run.trainer import Summary, Trainer
from ritornello.agent.stored.checkpoint import Checkpoint
from ritornello.agent.stored.checkpoint_folder import run_of
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core.errors import PlatformError
from ritornello.core.kept_settings import set_torch
from ritornello.core.standard_error import say
from ritornello.core.stop_signals import INTERRUPTED, Answer, StopSignals

if TYPE_CHECKING:
    from ritornello.agent.run.warm_start import WarmStart

# Beside a GPU the learner gives Python's lock away at each of many small operations, and may wait
# for so long until the thread that makes batches gives it back. With Python's own 5 ms a run had a
# sixteenth less speed there (docs/performance.md).
GPU_SWITCH_INTERVAL_S = 0.0005
PROGRAM = "main.py"  # whose flags `argv` are

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ending:
    """How a session ended; what went wrong has been logged."""

    status: int  # exit status
    folder: Path
    summary: Summary | None = None  # None: it failed
    failure: Exception | None = None


@dataclass(frozen=True)
class Training:
    """A session of training, ready to run."""

    blueprint: Blueprint
    argv: Sequence[str]  # the command line without the program's name, for run.json
    stop: StopSignals  # what the user asks for meanwhile
    checkpoint: Checkpoint | None = None  # what a run goes on from
    start: WarmStart | None = None  # what a new run takes its weights from
    coordinator: Coordinator = SINGLE_LEARNER

    def run(self) -> Ending:
        """Train until a limit, a wish to stop or a failure; return how it ended.

        Raises:
          ConfigError: if there can be no run folder, or another session has saved in it since the
            checkpoint was read; nothing was started then.
        """
        if self.blueprint.flags.background:
            go_to_background()
        return self._run_first() if self.blueprint.place.speaks else self._run_other()

    def _run_first(self) -> Ending:
        """Train as the learner that decides and writes."""
        flags = self.blueprint.flags
        resumed = self._resumed_folder()
        folder = resumed or RunFolder.create(flags.results_dir, flags.env, name=flags.run_name)
        with folder.lock():
            if resumed is not None and self.checkpoint is not None:
                from ritornello.agent.stored.run_rewind import check_not_saved_since

                check_not_saved_since(self.checkpoint)
            with closing(Reporting(folder, flags)) as reporting:
                return self._train(folder, reporting)

    def _run_other(self) -> Ending:
        """Train as another learner than the first."""
        path = Path(self.coordinator.broadcast(""))
        path.mkdir(parents=True, exist_ok=True)  # on another machine it is another folder
        place = self.blueprint.place
        folder = RunFolder(path)
        with closing(Reporting(folder, self.blueprint.flags, place.rank)) as reporting:
            ending = self._train(folder, reporting)
            error = ending.failure
            is_first = isinstance(error, LearnerLost) and 0 in error.ranks  # it cannot say it
            if is_first and not place.is_launched:  # or the launcher does
                say(f"learner {place.rank}: the run failed: {error}")
            return ending

    def _resumed_folder(self) -> RunFolder | None:
        """Return the folder of the run that goes on; None: a new one is made."""
        if self.checkpoint is None or self.blueprint.flags.new_run_folder:
            return None
        path = run_of(self.checkpoint.path)
        return None if path is None else RunFolder(path)

    def _train(self, folder: RunFolder, reporting: Reporting) -> Ending:
        """Train with the log open: whatever fails from here on is a message in it."""
        try:
            _set_up_torch(self.blueprint)
            self._begin(folder)
            resumed_at = None if self.checkpoint is None else self.checkpoint.agent_steps
            trainer = Trainer(
                self.blueprint, folder, reporting.open_sinks(resumed_at), self.checkpoint,
                weights=None if self.start is None else self.start.weights,
                stop=self.stop, flush=reporting.flush, coordinator=self.coordinator,
                status=reporting.status,
            )  # fmt: skip
            summary = trainer.run()
            reporting.close_sinks()
            reporting.status.enter("ended", reason=summary.reason)
            return Ending(self._finish(summary, folder), folder.path, summary)
        except Exception as error:
            self.coordinator.announce_failure(error)
            speaks = self.blueprint.place.speaks
            is_known = isinstance(error, (PlatformError, OSError)) or not speaks
            reporting.fail(error, is_known=is_known)
            return Ending(1, folder.path, failure=error)

    def _begin(self, folder: RunFolder) -> None:
        """Take the folder back to the checkpoint, and write down what begins."""
        place = self.blueprint.place
        if not place.speaks:
            log.info("learner %d of %d", place.rank, place.world_size)
            return
        if self._resumed_folder() is not None and self.checkpoint is not None:
            from ritornello.agent.stored.run_rewind import take_back

            for note in (*self.checkpoint.notes, *take_back(folder, self.checkpoint)):
                log.info("%s", note)
        self.coordinator.broadcast(str(folder.path.resolve()))  # its journals are cut by now
        folder.write_flags(self.blueprint.flags.to_json())
        folder.write_run_info([PROGRAM, *self.argv])
        log_start(self, folder)

    def _finish(self, summary: Summary, folder: RunFolder) -> int:
        """Write down how it ended, draw the charts, say how to go on; return the exit status."""
        if not self.blueprint.place.speaks:
            log.info("this learner has ended: %s", REASONS[summary.reason])
            return summary.status
        flags, status = self.blueprint.flags, summary.status
        folder.write_summary(asdict(summary))
        if flags.charts and not self._draw(folder):
            status = INTERRUPTED
        log_end(summary, folder, flags)
        return status

    def _draw(self, folder: RunFolder) -> bool:
        """Draw the charts of the run; return False if the user does not want to wait for them."""
        from ritornello.metrics.charts import draw_run

        log.info("drawing the charts; Ctrl-C leaves without them")
        try:
            with self.stop.answered_by(Answer.RAISE):
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
