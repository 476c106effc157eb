"""What is seen of a run from outside while it trains: that it is getting on, or that it hangs."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from pathlib import Path

from research.queue.plan import PlannedRun
from research.queue.store import Store
from ritornello.agent.run.control_file import CONTROL, STATE
from ritornello.agent.testing.score_table import SCORES
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import parse_json, read_text
from ritornello.core.process_death import is_same_process
from ritornello.core.run_layout import RECORDS
from ritornello.sequences.folder import OUTPUT_FILE, STATE_FILE, SequenceFolder
from ritornello.sequences.plan import is_test

# A run writes a record every few seconds, whatever it waits for. Before the first, and on a machine
# that has hardly any time for it, this may take minutes.
SILENCE_S = 900.0


class _Watch:
    """Looks whether what is written changes. A run that somebody has paused need not write."""

    def __init__(self) -> None:
        """Begin to watch."""
        self._seen = self._look()
        self._since_s = time.monotonic()

    def silence_s(self) -> float:
        """Return for how long nothing has been written, and nobody has rested either."""
        seen = self._look()
        if seen != self._seen or any(map(is_paused, self._run_folders())):
            self._seen, self._since_s = seen, time.monotonic()
        return time.monotonic() - self._since_s

    def _look(self) -> object:
        raise NotImplementedError

    def _run_folders(self) -> Iterable[Path]:
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

    def _run_folders(self) -> Iterable[Path]:
        return [folder.path for folder in self._store.run_folders(self._run)]


class SequenceWatch(_Watch):
    """Looks whether any run of a sequence gets on. One for each attempt.

    A training writes records. A test writes none for hours: it says every few seconds how far its
    games are, or at least, with --console=False, writes their scores into a table.
    """

    def __init__(self, folder: Path) -> None:
        """Begin to watch a sequence that is being started.

        Args:
          folder: of the store, in which multi_train.py makes that of the sequence.
        """
        self._folder = folder
        self._outputs: list[Path] | None = None  # of the tests; None: there is no plan yet
        super().__init__()

    def _look(self) -> frozenset[tuple[str, int, int]]:
        # All of them: a single time in the future would be the newest for good.
        seen = set()
        signs = (self._folder.glob(f"*/*/*/{name}") for name in (RECORDS, SCORES))
        for path in chain(*signs, self._outputs_of_tests()):
            with suppress(OSError):
                state = path.stat()
                seen.add((str(path), state.st_size, state.st_mtime_ns))
        return frozenset(seen)

    def _run_folders(self) -> Iterable[Path]:
        return (path.parent for path in self._folder.glob(f"*/*/*/{CONTROL}"))

    def _outputs_of_tests(self) -> list[Path]:
        # Not those of trainings: one that hangs may go on complaining.
        for path in self._folder.glob(f"*/{STATE_FILE}") if self._outputs is None else ():
            with suppress(ConfigError):
                runs = SequenceFolder.open(path.parent).runs
                tests = [path.parent / run.name for run in runs if is_test(run.flags)]
                self._outputs = [*(self._outputs or []), *(test / OUTPUT_FILE for test in tests)]
        return self._outputs or []


def is_paused(run_folder: Path) -> bool:
    """Whether a run rests until it is told to go on. One that was killed meanwhile does not."""
    path = run_folder / CONTROL / STATE
    try:
        state = parse_json(read_text(path, "the state of a run's control"), str(path))
    except ConfigError:
        return False  # none, or none that can be read: it takes no commands
    if not isinstance(state, dict) or state.get("paused") is not True:
        return False
    return is_same_process(state.get("pid"), state.get("pid_start"))
