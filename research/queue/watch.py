"""What is seen of a run from outside while it trains: that it is getting on, or that it hangs."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from research.queue.plan import PlannedRun
from research.queue.store import Store, is_held
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import parse_json, read_text
from ritornello.core.run_layout import LOCK, STATUS

# A run writes a record every few seconds, whatever it waits for. Before the first, and on a machine
# that has hardly any time for it, this may take minutes.
SILENCE_S = 900.0
MAX_STATUS_BYTES = 20_000_000


class Watch:
    """Looks whether the records of a run grow. One for each attempt.

    A run that somebody has paused need not write.
    """

    def __init__(self, run: PlannedRun, store: Store) -> None:
        """Begin to watch a run that is being started."""
        self._run = run
        self._store = store
        self._seen = self._look()
        self._since_s = time.monotonic()

    def silence_s(self) -> float:
        """Return for how long nothing has been written, and nobody has rested either."""
        seen = self._look()
        folders = [folder.path for folder in self._store.run_folders(self._run)]
        if seen != self._seen or any(map(is_paused, folders)):
            self._seen, self._since_s = seen, time.monotonic()
        return time.monotonic() - self._since_s

    def _look(self) -> tuple[str, int, int] | None:
        folder = self._store.present_folder(self._run)
        if folder is None:
            return None
        with suppress(OSError):
            state = folder.metrics_file.stat()
            return str(folder.path), state.st_size, state.st_mtime_ns
        return str(folder.path), 0, 0


def is_paused(run_folder: Path) -> bool:
    """Whether a run rests until it is told to go on. One that was killed meanwhile does not."""
    path = run_folder / STATUS
    try:
        status = parse_json(read_text(path, "the state of a run", MAX_STATUS_BYTES), str(path))
    except ConfigError:
        return False  # none, or none that can be read
    if not isinstance(status, dict) or status.get("state") != "paused":
        return False
    return is_held(run_folder / LOCK)
