"""All that a run says, to files and to the terminal: records, games and log messages.

Two output threads write (metrics/output_thread.py): one to the files of the run, one to the
terminal. Training hands over and goes on; neither a full disk nor a frozen, closed or broken
terminal can stop it, slow it, or be the cause of a traceback.
"""

from __future__ import annotations

import logging
import sys

from rich.logging import RichHandler

from ritornello.agent.run.run_log import RunLog
from ritornello.agent.run.status_files import StatusFiles
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core.project import as_typed
from ritornello.core.spec import game_name
from ritornello.flags.options import Flags
from ritornello.flags.parts import SINKS
from ritornello.metrics.console import ConsoleSink
from ritornello.metrics.output_thread import BackgroundSink, OutputThread
from ritornello.metrics.sinks import JsonLinesSink, Sink, Tee, TensorBoardSink, TextFilesSink
from ritornello.metrics.view import Goal

SILENT = logging.CRITICAL + 1  # above every message
TERMINAL_CAPACITY = 1000  # messages and panels that wait for a terminal that is not read
FILES_PATIENCE_S = 60.0  # a reproducible run waits so long for its files before it drops a record
OWN_CAPACITY = 1000  # records and games that wait for a sink of --sink: a service, a network
OWN_GRACE_S = 20.0  # at the end, for what waits to be sent
FLUSH_S = 10.0  # a disk that takes longer than this to take a few lines does not answer
FILES_GRACE_S = 10.0  # at the end, for the files
TERMINAL_GRACE_S = 2.0  # and for the terminal
UNDONE = "%s did not take all that was written: %d messages, records and games are missing there"

log = logging.getLogger(__name__)


class Reporting:
    """The log and the sinks of one session. Belongs to the main thread, which closes it."""

    def __init__(self, folder: RunFolder, flags: Flags, rank: int = 0) -> None:
        """Start the threads and the log; `open_sinks` comes next.

        Args:
          folder: existing folder of the run.
          flags: what is to be written and shown.
          rank: number of the learner. Those after the first write files of their own, which are a
            log and the records, and nothing to the terminal.
        """
        self._folder = folder
        self._flags = flags
        self._rank = rank
        self._files = OutputThread("the files of the run")
        self._terminal = OutputThread("the terminal", TERMINAL_CAPACITY)
        self._console = ConsoleSink(_goal(flags, folder))
        self._own: list[OutputThread] = []  # of the sinks that --sink names
        self._sink: Sink = Tee([])
        self.status: StatusFiles | None = None  # from `open_sinks` on
        self._is_closed = False
        level = logging.INFO if flags.console is True else logging.WARNING
        self._log = RunLog(
            folder.path / f"train-rank{rank}.log" if rank else folder.log_file,
            SILENT if rank or not flags.console else level,
            _console_handler(self._console),
            file_thread=self._files,
            console_thread=self._terminal,
        )

    def fail(self, error: Exception, *, is_known: bool) -> None:
        """Say why the run failed, whatever an environment that plays here has made of logging.

        Args:
          error: that ended it.
          is_known: whether its text says all; the traceback of others is shown.
        """
        self._log.take_back()
        self.say("failed", reason=str(error) if is_known else repr(error))
        self.close_sinks()
        if is_known:
            self._log.tell(logging.ERROR, f"the run failed: {error}")
            self._log.tell(logging.DEBUG, "traceback", error)
        else:
            self._log.tell(logging.ERROR, "the run failed", error)

    def open_sinks(self) -> Sink:
        """Open the files of records and games; return where to report.

        Raises:
          ConfigError: if a library is missing for what the flags ask for, or there is no such sink.
          OSError: if a file cannot be opened.
        """
        flags, path = self._flags, self._folder.path
        # Every record counts where a run is to be repeated exactly; elsewhere speed does.
        patience_s = FILES_PATIENCE_S if flags.reproducible else 0.0
        if self._rank:
            records = JsonLinesSink(path / f"metrics-rank{self._rank}.jsonl")
            self._sink = Tee([BackgroundSink(records, self._files, gives_up=False)])
            return self._sink
        files: list[Sink] = [
            JsonLinesSink(self._folder.metrics_file),
            TextFilesSink(
                path,
                batch_size=flags.batch_size,
                unroll_length=flags.r_f_steps,
                details={
                    "Optimizer": flags.optimizer,
                    "Scheduler": flags.lr_schedule,
                    # The older platform made batches smaller when memory was short; here they stay.
                    "Batch_size_used_without_out_of_memory_error": flags.batch_size,
                },
            ),
        ]
        sinks: list[Sink] = [
            BackgroundSink(sink, self._files, gives_up=False, patience_s=patience_s)
            for sink in files
        ]
        sinks += [self._own_sink(name) for name in flags.sink.split(",") if name]
        if flags.tensorboard:
            events = TensorBoardSink(path)
            sinks.append(BackgroundSink(events, self._files, gives_up=True))
        if flags.console is True:
            sinks.append(BackgroundSink(self._console, self._terminal, gives_up=True))
        self._sink = Tee(sinks)
        self.status = StatusFiles(path, self._files, self._folder.session_number())
        return self._sink

    def _own_sink(self, name: str) -> Sink:
        """Return a sink that a flag names, on a thread of its own: what hangs there waits alone."""
        sink: Sink = SINKS.find(name)(self._folder.path)
        title = getattr(sink, "title", None)  # of a tracker, which never gives up
        thread = OutputThread(title or f"the sink {name}", OWN_CAPACITY)
        self._own.append(thread)
        return BackgroundSink(sink, thread, gives_up=title is None)

    def flush(self) -> bool:
        """Bring all that was reported to the disk; return whether it is there, within seconds."""
        self._sink.flush()
        if self.status is not None:
            self.status.flush()
        return self._files.flush(FLUSH_S)

    def say(self, state: str, **more: object) -> None:
        """Have status.json say how the session ended, if there is one.

        Args:
          state: "ended" or "failed".
          more: further keys, such as the reason.
        """
        if self.status is not None:
            self.status.show({"state": state, **more})

    def close_sinks(self) -> None:
        """Show the last record and give the terminal back; the log goes on."""
        self._sink.close()
        self._sink = Tee([])

    def close(self) -> None:
        """Close everything, each thread within its deadline. May be called twice."""
        self.close_sinks()
        if not self._is_closed:
            self._is_closed = True
            if self.status is not None:
                self.status.close()
            for thread, grace_s in (
                *((own, OWN_GRACE_S) for own in self._own),
                (self._terminal, TERMINAL_GRACE_S), (self._files, FILES_GRACE_S),
            ):  # fmt: skip
                thread.flush(grace_s)
                if thread.undone:
                    log.warning(UNDONE, thread.name, thread.undone)
        self._log.close()
        for thread in self._own:
            thread.close(0.0)  # it has had its time
        self._files.close(FILES_GRACE_S)
        self._terminal.close(TERMINAL_GRACE_S)


class _Lines(logging.Handler):
    """Prints plain lines: errors to the error stream, everything else to standard output."""

    def __init__(self) -> None:
        super().__init__()
        self._streams = sys.stdout, sys.stderr  # of now, whatever code of the user puts there

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=self._streams[record.levelno >= logging.ERROR], flush=True)


def _goal(flags: Flags, folder: RunFolder) -> Goal:
    """Return what the terminal says about the run as a whole."""
    games: tuple[str, ...] = tuple(game_name(env_id) for env_id in flags.env.split(","))
    if len(games) == 1:
        games = ()
    title = f"{len(games)} games" if games else flags.env
    fill_in = flags.training_fill_in_factor
    return Goal(title, as_typed(folder.path), flags.environment_max_steps, games, fill_in)


def _console_handler(console: ConsoleSink) -> logging.Handler:
    """Return a handler that prints above the live panel, or plain lines where there is none."""
    if not console.console.is_terminal:
        return _Lines()
    return RichHandler(
        console=console.console, show_path=False, show_level=False, log_time_format="%H:%M:%S"
    )
