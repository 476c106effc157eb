"""One session at a time in a run folder.

    with RunLock(folder.path):      # ConfigError if another session trains there
        ...                         # rewind, write flags, train

It is taken before anything in the folder is touched. How such a lock works is in core/file_lock.py.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from ritornello.core.errors import ConfigError
from ritornello.core.file_lock import FileLock
from ritornello.core.run_layout import LOCK


class RunLock:
    """The right to write into a run folder, as a context manager. Not reentrant; use once."""

    def __init__(self, folder: Path | str, *, wait_s: float = 0.0) -> None:
        """Ask for nothing yet; see `acquire`.

        Args:
          folder: of the run; it exists.
          wait_s: how long to wait for another session to end. A program that has just killed one
            may give it a moment.
        """
        self._folder = Path(folder)
        self._wait_s = wait_s
        self._lock = FileLock(self._folder / LOCK)

    def acquire(self) -> RunLock:
        """Take the lock.

        Raises:
          ConfigError: if another session has it, or the folder cannot be written to.
        """
        if not self._lock.wait(self._wait_s):
            raise ConfigError(
                f"{self._folder} belongs to {self._lock.holder()}: expected a run folder in "
                "which nobody trains. Stop that process (Ctrl-C, or kill with its number) and "
                "try again, or go on in a folder of its own with --new_run_folder=True."
            )
        return self

    def release(self) -> None:
        """Let the next one in. May be called twice."""
        self._lock.release()

    def __enter__(self) -> RunLock:
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
