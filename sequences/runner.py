"""Runs a plan: one child process after the other, and a file that says how far it came.

    results/<sequence>_<time>/
      sequence.json               the plan and the state of every run; rewritten at each change
      001_queue_seed1/
        overrides.json            the flags of this run, a layer below the command line
        output.log                what main.py printed
        PongNoFrameskip-v4_<time>/    the run folder
      table.md table.csv comparison.png   (sequences/report.py)

Each run is a process of its own, so that one that fails, leaks or is killed cannot touch the next.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any

from agent.atomic_file import write_json
from agent.run_folder import PROJECT_ROOT, RunFolder, create_exclusively, safe_name
from core.errors import ConfigError
from core.process_death import environment_for_child
from sequences.plan import Plan, is_test, source_of

MAIN_PROGRAM = PROJECT_ROOT / "main.py"
STATE_FILE = "sequence.json"
FORMAT_VERSION = 1
STOP_WINDOW_S = 5.0  # a second Ctrl-C within this time means: stop everything
GRACE_S = 120.0  # for a run to save its checkpoint after SIGINT, before it is killed
POLL_S = 0.5


@dataclass(frozen=True)
class RunState:
    """One run of a sequence. `status`: waiting, running, done, failed, skipped or stopped."""

    name: str  # also its folder
    group: str
    seed: int
    flags: dict[str, Any]
    status: str = "waiting"
    exit_code: int | None = None
    seconds: float = 0.0  # wall-clock, all attempts together


class SequenceFolder:
    """The folder of a sequence and its state. One process writes it."""

    def __init__(self, path: Path, name: str, runs: list[RunState], arguments: list[str]) -> None:
        """Describe a sequence in memory; `create` and `open` connect it to its folder."""
        self.path = path
        self.name = name
        self.runs = runs
        self.arguments = arguments  # of the command line, after `--`; given to every run

    @classmethod
    def create(cls, results: Path, plan: Plan, arguments: Sequence[str]) -> SequenceFolder:
        """Make `results/<sequence>_<time>` with every run waiting."""
        path = create_exclusively(results, f"{safe_name(plan.name)}_{datetime.now():%Y%m%d-%H%M%S}")
        runs = [
            RunState(
                f"{n:03d}_{safe_name(run.group)}_seed{run.seed}", run.group, run.seed, run.flags
            )
            for n, run in enumerate(plan.runs, start=1)
        ]
        folder = cls(path, plan.name, runs, list(arguments))
        folder.save()
        return folder

    @classmethod
    def open(cls, path: Path | str) -> SequenceFolder:
        """Read the state of a sequence that was begun.

        Raises:
          ConfigError: if the folder holds no sequence.
        """
        state_file = Path(path) / STATE_FILE
        try:
            data = json.loads(state_file.read_text(encoding="utf-8"))
            if data["format_version"] != FORMAT_VERSION:
                raise ConfigError(
                    f"{state_file} has format version {data['format_version']}, "
                    f"expected {FORMAT_VERSION}."
                )
            runs = [RunState(**run) for run in data["runs"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{path} is not the folder of a sequence: cannot read {state_file} ({error}). "
                "Give a folder that multi_train.py made, e.g. results/compare_replay_<time>."
            ) from error
        return cls(Path(path), data["name"], runs, data["arguments"])

    def save(self) -> None:
        """Write sequence.json, atomically."""
        data = {
            "format_version": FORMAT_VERSION,
            "name": self.name,
            "arguments": self.arguments,
            "runs": [asdict(run) for run in self.runs],
        }
        write_json(self.path / STATE_FILE, data)

    def update(self, index: int, **changes: Any) -> RunState:
        """Change the state of one run, on disk too."""
        self.runs[index] = replace(self.runs[index], **changes)
        self.save()
        return self.runs[index]

    def run_folders(self, run: RunState) -> list[RunFolder]:
        """Return the folders that main.py made for a run, oldest first.

        More than one if it was begun anew because it had no checkpoint to resume from.
        """
        found = (self.path / run.name).glob("*/checkpoints")
        return [RunFolder(path.parent) for path in sorted(found)]  # names end in the time

    def source(self, run: RunState) -> RunState | None:
        """Return the earlier run of the same seed that this one starts from or tests, if any."""
        group = source_of(run.flags)
        if group is None:
            return None
        return next(each for each in self.runs if (each.group, each.seed) == (group, run.seed))

    def resolved_flags(self, run: RunState) -> dict[str, Any]:
        """Return the flags of a run with the folder of its source in the place of the name."""
        source = self.source(run)
        if source is None:
            return run.flags
        return {**run.flags, "load_model_url": str(self.run_folders(source)[-1].path)}

    def command(self, run: RunState) -> list[str]:
        """Return the command line of a run: a new one, or the resume of its last checkpoint."""
        folder = self.path / run.name
        command = [sys.executable, str(MAIN_PROGRAM)]
        resumable = [made for made in self.run_folders(run) if made.has_checkpoint()]
        if is_test(run.flags):
            command += ["--op_mode=test"]
        elif resumable:
            command += ["--op_mode=train_w_load", f"--load_model_url={resumable[-1].path}"]
        else:
            command += ["--op_mode=train"]
        command += [
            f"--results_dir={folder}",
            f"--multi_train_overrides={folder / 'overrides.json'}",
        ]
        return command + self.arguments


class Interrupts:
    """Ctrl-C, told apart: once skips the current run, twice within 5 s stops the sequence.

    SIGTERM and SIGHUP stop the sequence. Used as a context manager around the runs; it only notes
    what was asked, the runner acts on it.
    """

    def __init__(self) -> None:
        """Nothing asked yet."""
        self.skip = False
        self.stop = False
        self._last_s = -float("inf")

    def note(self, signal_number: int, frame: FrameType | None = None) -> None:
        """Note one signal. Python calls it in the main thread, between two instructions."""
        now_s = time.monotonic()
        self.skip = True
        if signal_number != signal.SIGINT or now_s - self._last_s <= STOP_WINDOW_S:
            self.stop = True
        self._last_s = now_s

    @contextlib.contextmanager
    def installed(self) -> Iterator[Interrupts]:
        """Install the handlers, and put the previous ones back at the end."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        previous = {number: signal.signal(number, self.note) for number in numbers}
        try:
            yield self
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def run_sequence(
    folder: SequenceFolder,
    interrupts: Interrupts,
    progress: Callable[[RunState, float], None] = lambda run, seconds: None,
) -> None:
    """Run everything that is not done. Failures are recorded and passed over.

    Args:
      folder: the sequence; its state is kept up to date on disk.
      interrupts: what the user asks for meanwhile.
      progress: called with (run, seconds so far) at each change and twice a second in between.
    """
    for index, run in enumerate(folder.runs):
        if run.status == "done":
            continue
        interrupts.skip = False
        if interrupts.stop:
            return
        source = folder.source(run)
        if source is not None and source.status != "done":
            # Not a failure of its own: when the sequence is resumed, the other is tried first.
            run = folder.update(index, status="waiting")
            progress(run, run.seconds)
            continue
        run = folder.update(index, status="running", exit_code=None)
        started_s = time.monotonic()

        def tick(run: RunState = run, started_s: float = started_s) -> None:
            progress(run, run.seconds + time.monotonic() - started_s)

        tick()
        exit_code = _run_child(folder, run, interrupts, tick)
        seconds = run.seconds + time.monotonic() - started_s
        if interrupts.skip:
            status = "stopped" if interrupts.stop else "skipped"
        else:
            status = "done" if exit_code == 0 else "failed"
        run = folder.update(index, status=status, exit_code=exit_code, seconds=round(seconds, 1))
        progress(run, run.seconds)


def _run_child(
    folder: SequenceFolder, run: RunState, interrupts: Interrupts, tick: Callable[[], None]
) -> int:
    """Run main.py to its end, or until it has stopped cleanly after an interrupt."""
    path = folder.path / run.name
    path.mkdir(exist_ok=True)
    command = folder.command(run)
    write_json(path / "overrides.json", folder.resolved_flags(run))
    with open(path / "output.log", "ab") as log:
        log.write(f"$ {' '.join(command)}\n".encode())
        log.flush()
        # A session of its own: the terminal sends Ctrl-C to every process in its group, and a run
        # must get exactly one, from us.
        child = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, cwd=PROJECT_ROOT, start_new_session=True,
            env=environment_for_child(),
        )  # fmt: skip
    kill_at_s: float | None = None
    try:
        while kill_at_s is None or time.monotonic() < kill_at_s:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(timeout=POLL_S)
            tick()
            if interrupts.skip and kill_at_s is None:
                child.send_signal(signal.SIGINT)
                kill_at_s = time.monotonic() + GRACE_S
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)  # its workers too
    return child.wait()
