"""The log of a run: a file with everything, a console with what concerns the user."""

from __future__ import annotations

import logging
from pathlib import Path

from ritornello.core.kept_settings import revive_loggers
from ritornello.metrics.output_thread import BackgroundHandler, OutputThread

log = logging.getLogger(__name__)

LOG_FORMAT = "%(asctime)s %(levelname)-7s %(processName)s/%(threadName)s %(name)s: %(message)s"
# These describe each font and image they touch at DEBUG, which would bury our own lines.
CHATTY_LOGGERS = ("matplotlib", "PIL", "asyncio")


class RunLog:
    """The log of a run, until it is closed.

    Handlers are added to the root logger and taken away again by `close`, so tests and several runs
    in one process do not write into each other's files. Warnings of libraries are logged too. With
    output threads, a thread that logs neither waits for the disk or the terminal nor gets their
    errors.
    """

    def __init__(
        self,
        log_file: Path,
        console_level: int | str = logging.INFO,
        console: logging.Handler | None = None,
        *,
        file_thread: OutputThread | None = None,
        console_thread: OutputThread | None = None,
    ) -> None:
        """Start logging.

        Args:
          log_file: appended to; a resumed run goes on in the same file. If it cannot be opened the
            run goes on without, and the console says so.
          console_level: least level shown on the console, e.g. "WARNING"; the file has DEBUG.
          console: handler of the console, e.g. one that knows a live display; stderr if None.
          file_thread: thread that writes the file; None: the thread that logs.
          console_thread: thread that writes to the console; None: the thread that logs.
        """
        shown = console or logging.StreamHandler()
        shown.setLevel(console_level)
        if console is None:
            shown.setFormatter(logging.Formatter("%(message)s"))
        handlers = [_behind(shown, console_thread, gives_up=True)]
        problem = None
        try:
            file = logging.FileHandler(log_file, encoding="utf-8")
        except OSError as error:
            problem = error
        else:
            file.setFormatter(logging.Formatter(LOG_FORMAT))
            handlers.append(_behind(file, file_thread, gives_up=False))
        self._levels = {handler: handler.level for handler in handlers}
        self._previous_level = logging.getLogger().level
        self.take_back()
        for name in CHATTY_LOGGERS:
            logging.getLogger(name).setLevel(logging.INFO)
        logging.captureWarnings(True)
        if problem is not None:
            log.warning("no log file: %s", problem)

    def take_back(self) -> None:
        """Log again, whatever an environment that plays in this process has configured."""
        root = logging.getLogger()
        root.setLevel(logging.DEBUG)
        for handler, level in self._levels.items():
            handler.setLevel(level)
            handler.filters.clear()
            root.addHandler(handler)  # one that is there already is not added again
        logging.disable(logging.NOTSET)
        revive_loggers()

    def tell(self, level: int, text: str, error: BaseException | None = None) -> None:
        """Log a text, past all that code of the user may have made of logging.

        Args:
          level: of the message, e.g. logging.ERROR.
          text: the message.
          error: whose traceback follows.
        """
        trace = None if error is None else (type(error), error, error.__traceback__)
        record = logging.LogRecord(log.name, level, __file__, 0, text, (), trace)
        for handler, least in self._levels.items():
            if level >= least:
                handler.emit(record)

    def close(self) -> None:
        """Take the handlers away, and close them. May be called twice."""
        logging.captureWarnings(False)
        root = logging.getLogger()
        handlers, self._levels = list(self._levels), {}
        for handler in handlers:
            root.removeHandler(handler)
            handler.close()
        root.setLevel(self._previous_level)


def _behind(
    handler: logging.Handler, thread: OutputThread | None, *, gives_up: bool
) -> logging.Handler:
    return handler if thread is None else BackgroundHandler(handler, thread, gives_up=gives_up)
