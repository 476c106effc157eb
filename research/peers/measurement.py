"""One timed run of one system: start its driver, meter its whole process tree, stop it.

A driver appends lines to its progress file. The first describes the run, {"flags": "..."}; then
comes one for each update, {"steps": agent steps so far, "wall_s": time.monotonic()}. Where learning
is compared, there is also one for each game that ended, {"game": sum of its rewards as the game
gives them, "wall_s": ...}, from whichever process plays. That clock is the same in all processes of
a machine, so steps, games and processor time are taken over one window.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from ritornello.core.stop_signals import handled_by

WARM_UP_SHARE = 0.25  # of the seconds asked for, counted from the first update
FIRST_UPDATE_LIMIT_S = 300.0  # Ray takes half a minute to start on two idle cores
STALL_LIMIT_S = 60.0  # without an update
METER_INTERVAL_S = 5.0  # reading the PSS of twenty processes takes a tenth of a second
STOP_GRACE_S = 5.0


class RunFailed(Exception):
    """A system could not be installed or did not run; the message is one line."""


@dataclass(frozen=True)
class Progress:
    """How far a run was: `steps` agent steps at `wall_s` on the monotonic clock, seconds."""

    steps: float
    wall_s: float


@dataclass(frozen=True)
class Game:
    """A whole game (all lives) that ended at `wall_s` on the monotonic clock, seconds."""

    episode_return: float  # of unclipped rewards
    wall_s: float


class Reported(NamedTuple):
    """What a driver has written so far."""

    flags: str
    progress: list[Progress]
    games: list[Game]


@dataclass(frozen=True)
class Usage:
    """What a process tree had used until `wall_s`: CPU seconds in all, and its memory then."""

    wall_s: float
    cpu_s: float
    memory_mb: float


class Drive(NamedTuple):
    """Everything that is known of one run of a driver."""

    reported: Reported
    usage: list[Usage]  # the first from the start of the process


@dataclass(frozen=True)
class Run:
    """The result of one run; all but the memory over the window after warm-up."""

    steps_per_s: float
    busy_cpus: float
    peak_memory_mb: float  # of the whole run; PSS, so that pages that are shared count once
    flags: str

    def summary(self) -> str:
        """Return the result in a few words."""
        return f"{self.steps_per_s:.0f} steps/s"


def read_progress(text: str) -> Reported:
    """Return what stands in the text of a progress file.

    The last line may be half written; it is left out. Other lines are an error of the driver.
    """
    flags, progress, games = "", [], []
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        entry: dict[str, Any] = json.loads(line)
        if "flags" in entry:
            flags = str(entry["flags"])
        elif "game" in entry:
            games.append(Game(float(entry["game"]), float(entry["wall_s"])))
        else:
            progress.append(Progress(float(entry["steps"]), float(entry["wall_s"])))
    return Reported(flags, progress, games)


def steady(progress: Sequence[Progress], seconds: float) -> tuple[Progress, Progress]:
    """Return the first and the last progress after the warm-up.

    Start-up is not counted at all: the warm-up begins with the first update.

    Raises:
      RunFailed: if fewer than two updates came after the warm-up.
    """
    kept = [p for p in progress if p.wall_s >= progress[0].wall_s + WARM_UP_SHARE * seconds]
    if len(kept) < 2 or kept[-1].wall_s <= kept[0].wall_s:
        raise RunFailed(
            f"{len(kept)} updates after the warm-up, expected at least 2: give more --seconds"
        )
    return kept[0], kept[-1]


def busy_cpus(usage: Sequence[Usage], began_s: float, ended_s: float) -> float:
    """Return CPU seconds per second between two times, interpolated between samples.

    Args:
      usage: samples in the order of time, the first before `began_s`, the last after `ended_s`.
      began_s: start of the time, in seconds of the monotonic clock.
      ended_s: end of the time, later than `began_s`, on the same clock.
    """
    times, cpu = [u.wall_s for u in usage], [u.cpu_s for u in usage]
    at_begin, at_end = np.interp([began_s, ended_s], times, cpu)
    return float((at_end - at_begin) / (ended_s - began_s))


@dataclass
class ProcessTree:
    """A process and all its descendants, remembered even when they end or lose their parent.

    Not thread-safe. Linux only: proportional set sizes (PSS) are read from /proc.
    """

    root: psutil.Process
    _seen: dict[psutil.Process, float] = field(default_factory=dict)  # CPU seconds when last alive

    def _alive(self) -> list[psutil.Process]:
        # A process whose parent has ended is still known, because it was seen before.
        alive = {p.pid: p for p in (*self._seen, self.root) if p.is_running()}
        # One pass in the order of ids, in which parents come first; asking each for its children
        # would read the whole of /proc each time, and slow those down that have most processes.
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid not in alive and process.ppid() in alive:
                    alive[process.pid] = process
        return list(alive.values())

    def measure(self) -> Usage:
        """Return what the tree has used until now; takes some milliseconds per process."""
        memory = 0
        for process in self._alive():
            self._seen.setdefault(process, 0.0)
            with contextlib.suppress(psutil.Error):  # it has just ended: its last figures stay
                times = process.cpu_times()
                self._seen[process] = times.user + times.system
                memory += process.memory_full_info().pss
        return Usage(time.monotonic(), sum(self._seen.values()), memory / 1e6)

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Ask the root to end, then kill what is left of the tree."""
        alive = self._alive()
        with contextlib.suppress(psutil.Error):
            self.root.terminate()
        psutil.wait_procs([self.root], timeout=grace_s)
        left = [*alive, *self._alive()]
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=grace_s)


@contextlib.contextmanager
def started(
    command: Sequence[str], folder: Path, log: Path, environment: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen, ProcessTree]]:
    """Run a command in a session of its own; on leaving, however, its whole tree is stopped.

    Args:
      command: program and arguments.
      folder: the working directory, where it may leave files.
      log: file that takes its output.
      environment: environment variables; None for those of this process.
    """
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            list(command), cwd=folder, env=environment, stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    tree = ProcessTree(psutil.Process(process.pid))
    try:
        yield process, tree
    finally:
        with undisturbed():
            try:
                tree.stop()
            finally:
                with contextlib.suppress(ProcessLookupError):  # what no sample has ever seen
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let no signal interrupt the block, in which programs are ended. Main thread only.

    The first one that came meanwhile is answered afterwards.
    """
    heard: list[int] = []
    with handled_by(lambda number, _: heard.append(number)):
        yield
    if heard:
        signal.raise_signal(heard[0])


def last_error(log: Path) -> str:
    """Return the last line of a log that names an error, or else its last line."""
    lines = [x.strip() for x in log.read_text("utf-8", "replace").splitlines() if x.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["it ended without a word"])[-1][:200]


def drive(
    command: Sequence[str],
    folder: Path,
    seconds: float,
    environment: dict[str, str] | None = None,
    *,
    from_start: bool = False,
) -> Drive:
    """Run a driver for a time, and stop it.

    Args:
      command: the driver with its arguments, but for `--progress` and `--scratch`.
      folder: empty; takes the progress file, the log and what the system writes.
      seconds: how long, from the first update.
      environment: variables; None for those of this process.
      from_start: whether `seconds` count from the start of the process.

    Raises:
      RunFailed: if it ends with an error, or no update comes for too long.
    """
    path, log = folder / "progress.jsonl", folder / "log.txt"
    path.touch()
    arguments = [*command, f"--progress={path}", f"--scratch={folder}"]
    with started(arguments, folder, log, environment) as (process, tree):
        usage = [tree.measure()]
        deadline = time.monotonic() + FIRST_UPDATE_LIMIT_S
        updates = 0
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                if process.wait(timeout=METER_INTERVAL_S) != 0:
                    raise RunFailed(last_error(log))
            reported = read_progress(path.read_text("utf-8"))
            usage.append(tree.measure())  # after the progress, whose last line it must cover
            progress = reported.progress
            if from_start and usage[-1].wall_s - usage[0].wall_s >= seconds:
                return Drive(reported, usage)
            if not from_start and progress and progress[-1].wall_s - progress[0].wall_s >= seconds:
                return Drive(reported, usage)
            if process.returncode == 0 and from_start and reported.games:
                return Drive(reported, usage)  # it trains for a number of steps, and has done so
            if process.returncode == 0:
                raise RunFailed(f"it ended before {seconds:g} s were over: {last_error(log)}")
            if len(progress) > updates:
                updates = len(progress)
                deadline = time.monotonic() + STALL_LIMIT_S
            if time.monotonic() > deadline:
                raise RunFailed(f"no update for too long, after {updates}: {last_error(log)}")


def run_driver(
    command: Sequence[str], folder: Path, seconds: float, environment: dict[str, str] | None = None
) -> Run:
    """Run a driver until it was metered for `seconds` after its first update.

    Args:
      command: as for `drive`.
      folder: as for `drive`.
      seconds: from the first update, warm-up included.
      environment: as for `drive`.

    Raises:
      RunFailed: as for `drive`.
    """
    (flags, progress, _), usage = drive(command, folder, seconds, environment)
    first, last = steady(progress, seconds)
    return Run(
        steps_per_s=(last.steps - first.steps) / (last.wall_s - first.wall_s),
        busy_cpus=busy_cpus(usage, first.wall_s, last.wall_s),
        peak_memory_mb=max(u.memory_mb for u in usage),
        flags=flags,
    )
