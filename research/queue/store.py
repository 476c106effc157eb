"""Where the runs of the queue lie: outside of the clone, so that they survive it.

    <store>/                                   --store, or $ACTOR_CRITIC_EXPERIMENTS, or
      queue.lock                               ~/.cache/actor-critic/experiments
      trainer.lock                             held by the trainer itself, too
      trainer.json                             which process that is
      <experiment>/<arm>_<game>_seed<k>/
        state.json                             what was asked of the run, and its failures
        output.log                             what main.py printed
        <game>_<time>/                         the run folder

What a run has reached is read from its run folder alone, so that no kill of the queue can make the
two disagree.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from research.queue.plan import (
    QUEUE_LOCK,
    TRAINER_FILE,
    TRAINER_LOCK,
    PlannedRun,
)
from ritornello.agent.stored.checkpoint_folder import UPDATE_NAME, numbered, update_name
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core.atomic_file import write_json
from ritornello.core.errors import ConfigError
from ritornello.core.file_lock import FileLock, try_lock
from ritornello.core.plain_data import MAX_TEXT, parse_json, read_text, shown, shown_text
from ritornello.metrics.run_files import last_record

VARIABLE = "ACTOR_CRITIC_EXPERIMENTS"
DEFAULT_STORE = Path("~/.cache/actor-critic/experiments")
STATE_FILE = "state.json"
OUTPUT_FILE = "output.log"
MAX_FAILURES = 2
OF_ITS_OWN = (
    "Stop that one, or give this one a store and results of its own: "
    "--store=<path> --results_dir=<path>"
)


@dataclass(frozen=True)
class RunState:
    """What is remembered of a run beside its run folder."""

    flags: Mapping[str, Any] = field(default_factory=dict)  # as queue.yaml had them at its start
    failures: int = 0
    message: str = ""  # the last line of what it printed before it failed

    @property
    def has_failed(self) -> bool:
        """Whether it is passed over from now on."""
        return self.failures >= MAX_FAILURES


def default_store() -> Path:
    """Return the store that is used when none is named."""
    return Path(os.environ.get(VARIABLE) or DEFAULT_STORE).expanduser()


class Store:
    """The folder of all runs. Only the holder of its lock writes to it."""

    def __init__(self, path: Path) -> None:
        """Describe a store; `lock` makes it."""
        self.path = path
        self.trainer_lock = FileLock(path / TRAINER_LOCK)
        self._lock = FileLock(path / QUEUE_LOCK)
        self._results = contextlib.ExitStack()

    # --- runs ------------------------------------------------------------------------------------

    def folder(self, run: PlannedRun) -> Path:
        """Return the folder of a run, which may not exist yet."""
        return self.path / run.name

    def state(self, run: PlannedRun) -> RunState | None:
        """Return what is remembered of a run; None if it was never started.

        Raises:
          ConfigError: if the file is damaged.
        """
        path = self.folder(run) / STATE_FILE
        try:
            return _checked_state(parse_json(read_text(path, "the state of a run"), "its text"))
        except ConfigError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise ConfigError(
                f"{path} cannot be read ({str(error).rstrip('.')}). Delete this file: the run then "
                "goes on from its last checkpoint, with no failure remembered."
            ) from error

    def write_state(self, run: PlannedRun, state: RunState) -> None:
        """Remember the state of a run, atomically; makes its folder."""
        folder = self.folder(run)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / STATE_FILE, asdict(state))

    def run_folders(self, run: PlannedRun) -> list[RunFolder]:
        """Return the run folders that main.py made for a run, oldest first.

        More than one if the run was killed before its first checkpoint, and begun anew.
        """
        found = self.folder(run).glob("*/checkpoints")
        return [RunFolder(path.parent) for path in sorted(found)]  # names end in the time

    def present_folder(self, run: PlannedRun) -> RunFolder | None:
        """Return the run folder that counts: the newest with a checkpoint, or else the newest."""
        folders = self.run_folders(run)
        resumable = [folder for folder in folders if folder.has_checkpoint()]
        found = resumable or folders
        return found[-1] if found else None

    def newest_update(self, run: PlannedRun) -> int:
        """Return the update of the newest checkpoint of a run; -1 if there is none."""
        folder = self.present_folder(run)
        if folder is None:
            return -1
        try:
            return max(numbered(folder.checkpoints, UPDATE_NAME), default=-1)
        except OSError:  # it has no such folder, or none that can be read
            return -1

    def is_done(self, run: PlannedRun) -> bool:
        """Whether a run has done its steps, and its last state is saved."""
        return self.steps_saved(run) >= run.steps

    def steps_saved(self, run: PlannedRun) -> int:
        """Return the agent steps of a run up to its last state, if that is saved; 0 if it is not.

        Its last record tells them, or the summary of how it ended, since a record can be lost.
        """
        folder = self.present_folder(run)
        if folder is None:
            return 0
        return max(
            (
                agent_steps
                for agent_steps, updates in _last_counts(folder)
                if (folder.checkpoints / update_name(updates)).exists()
            ),
            default=0,
        )

    # --- locks -----------------------------------------------------------------------------------

    def lock(
        self,
        patience_s: float,
        say: Callable[[str], None],
        waiting: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Become the only queue on this store, with no trainer of an earlier one running.

        A queue that was killed takes its trainer along, which first saves a checkpoint: that is
        waited for. A trainer that does not end within `patience_s` is killed.

        Args:
          patience_s: seconds to wait at most, before such a trainer is killed, and after it.
          say: takes a line on what is waited for.
          waiting: function that is asked meanwhile; returns whether to go on waiting.

        Returns:
          False if `waiting` has ended it; the caller closes the store then, and starts nothing.

        Raises:
          ConfigError: if the store cannot be made, or another queue works on it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"{self.path} cannot be used ({error}). Give another folder: --store=<path>, or "
                f"the variable {VARIABLE}."
            ) from error
        if not self._lock.wait(1.0, waiting):  # `list` looks at the lock for a moment
            if not waiting():
                return False
            raise ConfigError(
                f"another queue works on {self.path} ({self._lock.holder()}). {OF_ITS_OWN}"
            )
        trainer = self.trainer_lock
        if trainer.acquire():
            return True
        booked = self._booked_trainer()
        named = "unknown process" if booked is None else f"process {booked[0]}"
        say(f"waiting for the trainer of an earlier queue to save ({named})")
        for is_last in (False, True):
            if trainer.wait(patience_s, waiting):
                return True
            if not waiting():
                return False
            if booked is not None and not is_last:
                _kill(*booked, say)
        raise ConfigError(
            f"a trainer of an earlier queue ({named}) does not end. Stop it, or give another "
            f"store: --store=<path> (this one is {self.path})"
        )

    def lock_results(self, results: Path) -> None:
        """Become the only queue that writes to a folder of results, until `close`.

        Raises:
          ConfigError: if it cannot be made, or another queue, on another store, writes to it.
        """
        try:
            results.mkdir(parents=True, exist_ok=True)
            folder = os.open(results, os.O_RDONLY)
        except OSError as error:
            raise ConfigError(
                f"{results} cannot be used ({error}). Give another folder: --results_dir=<path>"
            ) from error
        self._results.callback(os.close, folder)
        try:
            is_ours = try_lock(folder, results)  # the folder, since git would show a file in it
        except ConfigError:
            return  # NFS locks no folder: there, users have to take care themselves
        if not is_ours:
            raise ConfigError(f"another queue writes to {results}. {OF_ITS_OWN}")

    def is_locked(self) -> bool:
        """Whether a queue works on this store now."""
        return is_held(self._lock.path)

    def book_trainer(self, pid: int | None) -> None:
        """Note which process trains (None: no one), for a later queue that finds it at work."""
        file = self.path / TRAINER_FILE
        if pid is None:
            file.unlink(missing_ok=True)
            return
        write_json(file, {"pid": pid, "started": str(psutil.Process(pid).create_time())})

    def _booked_trainer(self) -> tuple[int, str] | None:
        """Return what `book_trainer` has noted; None: nothing that can be read."""
        path = self.path / TRAINER_FILE
        try:
            data = parse_json(read_text(path, "the trainer of a queue"), str(path))
        except ConfigError:
            return None
        pid, started = (_value(data, key) for key in ("pid", "started"))
        return (pid, started) if type(pid) is int and isinstance(started, str) else None

    def close(self) -> None:
        """Let go of the locks. A trainer that still runs keeps its own."""
        self._results.close()
        self.trainer_lock.release()
        self._lock.release()


def _checked_state(data: Any) -> RunState:
    """Return what a state.json says; raises ConfigError if that is nothing that we wrote."""
    if not isinstance(data, dict):
        raise ConfigError(f"it holds {shown(data)}, expected an object")
    flags, failures, message = (_value(data, key) for key in ("flags", "failures", "message"))
    if not isinstance(flags, dict):
        raise ConfigError(f"flags is {shown(flags)}, expected an object")
    if type(failures) is not int or failures < 0:
        raise ConfigError(f"failures is {shown(failures)}, expected a whole number from 0 on")
    if not isinstance(message, str):
        raise ConfigError(f"message is {shown(message)}, expected a text")
    return RunState(flags, failures, shown_text(message, MAX_TEXT))


def _last_counts(folder: RunFolder) -> Iterator[tuple[int, int]]:
    """Yield the agent steps and updates of a run, by its last record and by its summary."""
    record = last_record(folder.path)
    if record is not None:
        yield record.agent_steps, record.updates
    with contextlib.suppress(ConfigError):  # no summary, or none that can be read
        data = parse_json(read_text(folder.summary_file, "the summary of a run"), "its text")
        agent_steps, updates = (_value(data, key) for key in ("agent_steps", "updates"))
        if type(agent_steps) is int and type(updates) is int:
            yield agent_steps, updates


def _value(data: Any, key: str) -> Any:
    return data.get(key) if isinstance(data, dict) else None


def _kill(pid: int, started: str, say: Callable[[str], None]) -> None:
    """Kill a trainer and its workers, if the process booked is still the same."""
    with contextlib.suppress(OSError, psutil.Error):  # it has just ended: the lock decides
        if str(psutil.Process(pid).create_time()) == started:
            say(f"process {pid} did not end in time: it is killed; its last checkpoint is there")
            os.killpg(pid, signal.SIGKILL)


def is_held(lock: Path) -> bool:
    """Whether some process has a lock (ritornello/core/file_lock.py). Makes and writes nothing."""
    if not lock.is_file():
        return False
    with lock.open("rb") as file:
        return not try_lock(file.fileno(), lock, together=True)
