"""Sinks: where records go. Files here; the terminal in metrics/console.py.

All of them append and flush as the run goes, so a power cut loses a second and not a day.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol, TextIO

from ritornello.core.atomic_file import write_text
from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import ConfigError
from ritornello.core.run_layout import GAMES
from ritornello.metrics.meters import EpisodeMeter
from ritornello.metrics.record import Record
from ritornello.metrics.run_files import (
    TIMES,
    force_to_disk,
    games_counted,
    open_for_append,
    read_games,
)
from ritornello.metrics.text import duration


class Sink(Protocol):
    """Receives measurements. Called by one thread; `close` may be called twice.

    It may raise and it may block: training writes to it through metrics/output_thread.py, where
    all methods but `write` may be left out. A sink of your own is made by a function of the run
    folder's path, registered in `flags.parts.SINKS` and named by `--sink=<module>:<name>`
    (docs/your_own.md).
    """

    def write(self, record: Record) -> None:
        """Write the measurements of one moment."""

    def episode(self, end: EpisodeEnd, at: Record) -> None:
        """Write one finished game; `at` holds the counters of the moment."""
        return

    def flush(self) -> None:
        """Bring what was written so far to where neither a crash nor a power cut can undo it."""
        return

    def close(self) -> None:
        """Finish and release files."""


class Tee(Sink):
    """Hands everything to several sinks."""

    def __init__(self, sinks: Iterable[Sink]) -> None:
        """Own the sinks: closing the tee closes them all."""
        self.sinks = list(sinks)

    def write(self, record: Record) -> None:
        """Write to every sink."""
        for sink in self.sinks:
            sink.write(record)

    def episode(self, end: EpisodeEnd, at: Record) -> None:
        """Report a game to every sink."""
        for sink in self.sinks:
            sink.episode(end, at)

    def flush(self) -> None:
        """Flush every sink."""
        for sink in self.sinks:
            sink.flush()

    def close(self) -> None:
        """Close every sink."""
        for sink in self.sinks:
            sink.close()


class JsonLinesSink(Sink):
    """metrics.jsonl: one Record per line."""

    def __init__(self, path: Path) -> None:
        """Append to `path`."""
        self._path = path
        self._file = open_for_append(path)

    def write(self, record: Record) -> None:
        """Append one line."""
        self._file.write(record.to_json() + "\n")
        self._file.flush()

    def flush(self) -> None:
        """Force all lines to the disk; the system has been given each when it was written."""
        force_to_disk([self._path])

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TextFilesSink(Sink):
    """The plain text files that the older platform wrote, so that its tools go on working.

    Comma-separated, no header. The last three columns are always training steps (updates x batch
    size x unroll length), agent steps, seconds since the start.

    | file | first columns | a line for |
    |---|---|---|
    | Scores.txt | raw return | each game |
    | Episode_steps.txt | length in frames | each game |
    | max_reward_file.txt | best return so far | each game |
    | Loss_file.txt | policy, value, entropy loss | each record |
    | lr_file.txt | learning rate | each record |

    Train_time.txt has its own columns (games, h:mm:ss, seconds, updates), a line for each record
    with a finished game. `close` writes training_summary.txt, lines of "name: value", in which
    Total_worker_rollout_iter counts unrolls: a rollout of a worker is one unroll of each of its
    environments.
    """

    OF_GAMES = (GAMES, "Episode_steps.txt", "max_reward_file.txt")
    NAMES = (*OF_GAMES, "Loss_file.txt", "lr_file.txt", TIMES)

    def __init__(
        self,
        folder: Path,
        *,
        batch_size: int,
        unroll_length: int,
        details: Mapping[str, object] | None = None,
    ) -> None:
        """Append to the files in `folder`; the best return goes on from what they hold.

        `batch_size` is B, unrolls per update, and `unroll_length` T, steps per unroll. `details`
        are further lines for the summary, e.g. {"Optimizer": "rmsprop"}.
        """
        self._folder = folder
        self._batch_size = batch_size
        self._unroll_length = unroll_length
        self._details = details or {}
        self._games = EpisodeMeter()
        for score in read_games(folder).returns.tolist():
            self._games.add(EpisodeEnd(env_id=0, return_raw=score, length_steps=0, length_frames=0))
        self._files: dict[str, TextIO] = {}
        with contextlib.ExitStack() as opened:
            for name in self.NAMES:
                self._files[name] = opened.enter_context(open_for_append(folder / name))
            self._opened = opened.pop_all()
        self._last = Record()
        self._last_lr: float | None = None
        # Games that no line of Train_time.txt counts yet: a session may have ended before one.
        self._games_of_record = max(0, self._games.count - games_counted(folder))

    def episode(self, end: EpisodeEnd, at: Record) -> None:
        """Append one line to each file of games."""
        self._last = at
        self._games_of_record += 1
        self._games.add(end)
        first = (end.return_raw, end.length_frames, self._games.best)
        for name, value in zip(self.OF_GAMES, first, strict=True):
            self._line(name, at, value)

    def write(self, record: Record) -> None:
        """Append losses, learning rate and times; flush everything."""
        self._last = record
        values = record.values
        if "optimiser/lr" in values:
            # NaN: the algorithm has no such loss.
            names = ("policy", "value", "entropy")
            losses = [values.get(f"loss/{name}", math.nan) for name in names]
            self._line("Loss_file.txt", record, *losses)
            self._last_lr = values["optimiser/lr"]
            self._line("lr_file.txt", record, self._last_lr)
        if self._games_of_record:
            minutes, seconds = divmod(int(record.wall_s), 60)  # days would be one more column
            elapsed = f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
            self._files[TIMES].write(
                f"{self._games_of_record},{elapsed},{record.wall_s:.3f},{record.updates}\n"
            )
            self._games_of_record = 0
        for file in self._files.values():
            file.flush()

    def flush(self) -> None:
        """Force all lines to the disk."""
        for file in self._files.values():
            file.flush()
        force_to_disk(self._folder / name for name in self._files)

    def close(self) -> None:
        """Close the files, each also when another cannot be closed, and write the summary."""
        if not self._files:
            return
        self._files = {}
        self._opened.close()
        at = self._last
        summary: dict[str, object] = {
            "Max_reach_reward": self._games.best,
            "Max_avg(100)_reward": self._games.best_mean,
            "Total_episodes": at.episodes,
            "Total_worker_rollout_iter": at.agent_steps // self._unroll_length,
            "Total_training_steps": self._training_steps(at),
            "Total_environment_steps": at.agent_steps,
            "Last_lr": self._last_lr,
            "Total_execution_time": duration(at.wall_s),
            **self._details,
        }
        lines = [f"{name}: {value}\n" for name, value in summary.items() if value is not None]
        write_text(self._folder / "training_summary.txt", "".join(lines))

    def _training_steps(self, at: Record) -> int:
        return at.updates * self._batch_size * self._unroll_length

    def _line(self, name: str, at: Record, *columns: float | None) -> None:
        first = ",".join(f"{column:.7g}" for column in columns if column is not None)
        counters = f"{self._training_steps(at)},{at.agent_steps},{at.wall_s:.3f}"
        self._files[name].write(f"{first},{counters}\n")


class TensorBoardSink(Sink):
    """Event files for TensorBoard over agent steps; a thread writes them every two minutes."""

    def __init__(self, folder: Path, resumed_at: int | None = None) -> None:
        """Write into the folder of the run.

        `resumed_at` is the number of agent steps in the checkpoint of a resumed run: TensorBoard no
        longer shows what an earlier session wrote after it.

        Raises:
          ConfigError: if the tensorboard package is not installed.
        """
        try:
            # Imported here because it is optional, by name because this package needs no torch.
            module = importlib.import_module("torch.utils.tensorboard")
        except ImportError as error:
            raise ConfigError(
                "TensorBoard files were asked for, but the package is missing: "
                "`pip install tensorboard`, or switch them off."
            ) from error
        purge_step = None if resumed_at is None else resumed_at + 1
        self._writer = module.SummaryWriter(str(folder), purge_step=purge_step)
        self._others = threading.excepthook
        threading.excepthook = self._hook = self._unless_own  # one object, to know it again

    def _unless_own(self, args: threading.ExceptHookArgs) -> None:
        """Print no traceback of TensorBoard's thread, whose error `write` raises as well."""
        if not type(args.thread).__module__.startswith("tensorboard."):
            self._others(args)

    def write(self, record: Record) -> None:
        """Add all values, and the other counters as alternatives to steps."""
        scalars = {**record.values, "counters/frames": record.frames}
        scalars |= {"counters/updates": record.updates, "counters/episodes": record.episodes}
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, record.agent_steps)

    def close(self) -> None:
        """Write what is pending."""
        try:
            self._writer.close()
        finally:
            if threading.excepthook is self._hook:
                threading.excepthook = self._others
