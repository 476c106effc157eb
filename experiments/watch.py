"""What is seen of a run from outside while it trains: that it is getting on, or that it hangs."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from experiments.plan import PlannedRun
from experiments.store import Store

# A run writes a record every few seconds, whatever it waits for. Before the first, and on a machine
# that has hardly any time for it, this may take minutes.
SILENCE_S = 900.0


class _Watch:
    """Looks whether what is written changes."""

    def __init__(self) -> None:
        """Begin to watch."""
        self._seen = self._look()
        self._since_s = time.monotonic()

    def silence_s(self) -> float:
        """Return for how long nothing has been written."""
        seen = self._look()
        if seen != self._seen:
            self._seen, self._since_s = seen, time.monotonic()
        return time.monotonic() - self._since_s

    def _look(self) -> object:
        raise NotImplementedError


class Watch(_Watch):
    """Looks whether the records of a run grow. One for each attempt."""

    def __init__(self, run: PlannedRun, store: Store) -> None:
        """Begin to watch a run that is being started."""
        self._run = run
        self._store = store
        super().__init__()

    def _look(self) -> tuple[str, int, int] | None:
        folder = self._store.present_folder(self._run)
        if folder is None:
            return None
        with suppress(OSError):
            state = folder.metrics_file.stat()
            return str(folder.path), state.st_size, state.st_mtime_ns
        return str(folder.path), 0, 0


class SequenceWatch(_Watch):
    """Looks whether any run of a sequence writes records. One for each attempt."""

    def __init__(self, folder: Path) -> None:
        """Begin to watch a sequence that is being started.

        Args:
          folder: of the store, in which multi_train.py makes that of the sequence.
        """
        self._folder = folder
        super().__init__()

    def _look(self) -> int:
        newest = 0
        for path in self._folder.glob("*/*/*/metrics.jsonl"):
            with suppress(OSError):
                newest = max(newest, path.stat().st_mtime_ns)
        return newest
