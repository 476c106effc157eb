"""All that a run says, to files and to the terminal: records, games and log messages.

Two output threads write (metrics/output_thread.py): one to the files of the run, one to the
terminal. Training hands over and goes on; neither a full disk nor a frozen, closed or broken
terminal can stop it, slow it, or be the cause of a traceback.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from rich.logging import RichHandler

from ritornello.agent.assembly import Blueprint
from ritornello.agent.run.status import Status
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core.errors import ConfigError, PlatformError
from ritornello.core.kept_settings import revive_loggers
from ritornello.core.project import as_typed
from ritornello.core.spec import game_name
from ritornello.core.standard_error import limit_warnings
from ritornello.flags.parts import SINKS
from ritornello.metrics.console import ConsoleSink, Goal
from ritornello.metrics.output_thread import BackgroundHandler, BackgroundSink, OutputThread
from ritornello.metrics.sinks import JsonLinesSink, Sink, Tee, TensorBoardSink, TextFilesSink
from ritornello.wrappers.user_code import describe

LOG_FORMAT = "%(asctime)s %(levelname)-7s %(processName)s/%(threadName)s %(name)s: %(message)s"
# These describe each font and image they touch, which would bury our own lines.
CHATTY_LOGGERS = ("matplotlib", "PIL", "asyncio")
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

    def __init__(self, folder: RunFolder, blueprint: Blueprint) -> None:
        """Start the threads and the log in an existing folder; `open_sinks` comes next.

        Learners after the first write a log and records to files of their own, and nothing to the
        terminal.
        """
        flags, rank = blueprint.flags, blueprint.place.rank
        self._folder = folder
        self._flags = flags
        self._rank = rank
        self._files = OutputThread("the files of the run")
        self._terminal = OutputThread("the terminal", TERMINAL_CAPACITY)
        self._console = ConsoleSink(_goal(blueprint, folder))
        self._own: list[OutputThread] = []  # of the sinks that --sink names
        self._sink: Sink = Tee([])
        self.status = Status(folder.path, None)  # `open_sinks` makes one that writes
        shown = _console_handler(self._console)
        level = logging.INFO if flags.console is True else logging.WARNING
        shown.setLevel(SILENT if rank or not flags.console else level)
        handler = BackgroundHandler(shown, self._terminal, gives_up=True)
        self._levels: dict[logging.Handler, int] = {handler: handler.level}
        self._previous_level = logging.getLogger().level
        self._open_log(folder.path / f"train-rank{rank}.log" if rank else folder.log_file)

    def _open_log(self, path: Path) -> None:
        """Log to the console and to a file; go on without the file if it cannot be opened."""
        problem = None
        try:
            file = logging.FileHandler(path, encoding="utf-8")
        except OSError as error:
            problem = error
        else:
            file.setFormatter(logging.Formatter(LOG_FORMAT))
            handler = BackgroundHandler(file, self._files, gives_up=False)
            self._levels[handler] = handler.level
        self._take_back_log()
        for name in CHATTY_LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)
        logging.captureWarnings(True)
        limit_warnings()
        if problem is not None:
            log.warning("no log file: %s", problem)

    def _take_back_log(self) -> None:
        """Restore the log, which an environment in this process may have reconfigured."""
        root = logging.getLogger()
        root.setLevel(logging.DEBUG)
        for handler, level in self._levels.items():
            handler.setLevel(level)
            handler.filters.clear()
            root.addHandler(handler)  # one that is there already is not added again
        logging.setLogRecordFactory(logging.LogRecord)
        logging.disable(logging.NOTSET)
        revive_loggers()

    def fail(self, error: Exception, *, is_known: bool) -> None:
        """Log why the run failed, even if an environment in this process has changed logging.

        If the error `is_known`, only its text is shown, otherwise its traceback too.
        """
        self._take_back_log()
        self.status.enter("failed", reason=str(error) if is_known else repr(error))
        self.close_sinks()
        if is_known:
            log.error("the run failed: %s", error)
            log.debug("traceback", exc_info=error)
        else:
            log.error("the run failed", exc_info=error)

    def open_sinks(self, resumed_at: int | None = None) -> Sink:
        """Open the files of records and games; return the sink to which both are reported.

        `resumed_at` is the number of agent steps in the checkpoint of a resumed run.

        Raises:
          ConfigError: if a library is missing for what the flags ask for, or there is no such sink.
          OSError: if a file cannot be opened.
        """
        flags, path = self._flags, self._folder.path
        if self._rank:
            records = JsonLinesSink(path / f"metrics-rank{self._rank}.jsonl")
            self._sink = Tee([BackgroundSink(records, self._files, gives_up=False)])
            return self._sink
        # Every record counts where a run is to be repeated exactly; elsewhere speed does.
        patience_s = FILES_PATIENCE_S if flags.reproducible else 0.0
        own = [self._own_sink(name) for name in flags.sink.split(",") if name]  # these may raise
        sinks: list[Sink] = [
            BackgroundSink(sink, self._files, gives_up=False, patience_s=patience_s)
            for sink in (JsonLinesSink(self._folder.metrics_file), self._text_files())
        ]
        sinks += own
        if flags.tensorboard:
            events = TensorBoardSink(path, resumed_at)
            sinks.append(BackgroundSink(events, self._files, gives_up=True))
        if flags.console is True:
            sinks.append(BackgroundSink(self._console, self._terminal, gives_up=True))
        self._sink = Tee(sinks)
        self.status = Status(path, self._files, self._folder.session_number())
        return self._sink

    def _text_files(self) -> Sink:
        flags = self._flags
        details = {
            "Optimizer": flags.optimizer,
            "Scheduler": flags.lr_schedule,
            # The older platform made batches smaller when memory was short; here they stay.
            "Batch_size_used_without_out_of_memory_error": flags.batch_size,
        }
        return TextFilesSink(
            self._folder.path, batch_size=flags.batch_size, unroll_length=flags.r_f_steps,
            details=details,
        )  # fmt: skip

    def _own_sink(self, name: str) -> Sink:
        """Return a sink that a flag names, on a thread of its own, so that it delays no other."""
        make = SINKS.find(name)
        try:
            sink: Sink = make(self._folder.path)
            sink.write  # noqa: B018 - raises if it is no sink
        except PlatformError:
            raise
        except Exception as error:
            raise ConfigError(
                f"sink {name} cannot be made: {describe(error, hints=False)}. Expected a function "
                "of the run folder's path that returns a sink (docs/your_own.md)."
            ) from error
        title = getattr(sink, "title", None)  # of a tracker, which never gives up
        thread = OutputThread(title or f"the sink {name}", OWN_CAPACITY)
        self._own.append(thread)
        return BackgroundSink(sink, thread, gives_up=title is None)

    def flush(self) -> bool:
        """Bring all that was reported to the disk; return whether it is there, within seconds."""
        self._sink.flush()
        self.status.flush()
        return self._files.flush(FLUSH_S)

    def close_sinks(self) -> None:
        """Show the last record and give the terminal back; the log goes on."""
        self._sink.close()
        self._sink = Tee([])

    def close(self) -> None:
        """Close everything, each thread within its deadline."""
        self.close_sinks()
        for thread, grace_s in (
            *((own, OWN_GRACE_S) for own in self._own),
            (self._terminal, TERMINAL_GRACE_S), (self._files, FILES_GRACE_S),
        ):  # fmt: skip
            thread.flush(grace_s)
            if thread.undone:
                log.warning(UNDONE, thread.name, thread.undone)
        self._close_log()
        for thread in self._own:
            thread.close(0.0)  # it has had its time
        self._files.close(FILES_GRACE_S)
        self._terminal.close(TERMINAL_GRACE_S)

    def _close_log(self) -> None:
        logging.captureWarnings(False)
        root = logging.getLogger()
        for handler in self._levels:
            root.removeHandler(handler)
            handler.close()
        root.setLevel(self._previous_level)


class _Lines(logging.Handler):
    """Prints plain lines: errors to the error stream, everything else to standard output."""

    def __init__(self) -> None:
        super().__init__()
        self._streams = sys.stdout, sys.stderr  # of now, whatever code of the user puts there

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=self._streams[record.levelno >= logging.ERROR], flush=True)


def _goal(blueprint: Blueprint, folder: RunFolder) -> Goal:
    flags = blueprint.flags
    games = tuple(game_name(env_id) for env_id in flags.env.split(","))
    several = games if len(games) > 1 else ()
    title = f"{len(games)} games" if several else flags.env
    steps, fill_in = flags.environment_max_steps, blueprint.fill_in_factor
    return Goal(title, as_typed(folder.path), steps, several, fill_in, flags.training_seconds)


def _console_handler(console: ConsoleSink) -> logging.Handler:
    """Return a handler that prints above the live panel, or plain lines where there is none."""
    if not console.console.is_interactive:
        return _Lines()
    return RichHandler(
        console=console.console, show_path=False, show_level=False, log_time_format="%H:%M:%S"
    )
