"""The folder of a sequence, and the file in it that says how far every run came.

    results/<sequence>_<time>/
      sequence.json               the plan and the state of every run; rewritten at each change
      sequence.lock               held by the multi_train.py that runs it (core/file_lock.py)
      001_queue_seed1/
        overrides.json            the flags of this run, a layer below the command line
        output.log                what main.py printed
        run.lock                  held while main.py runs, also without its multi_train.py
        PongNoFrameskip-v4_<time>/    the run folder
      table.md table.csv comparison.png   (analysis/compare_sequence.py)

Somebody may have been given the folder. Names of runs become folders and the rest becomes command
lines, so `open` checks form, names and bounds; what a file may not *ask* for is in checks.py.
Next to read: runner.py.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from ritornello.agent.stored.checkpoint_folder import update_name
from ritornello.agent.stored.run_folder import RunFolder, create_exclusively, safe_name
from ritornello.core.atomic_file import remove_temporaries, writable_folder, write_json
from ritornello.core.errors import ConfigError
from ritornello.core.file_lock import FileLock
from ritornello.core.plain_data import parse_json, read_text, shown, shown_text
from ritornello.core.project import PLAIN_SEQUENCE
from ritornello.core.run_layout import SEQUENCE
from ritornello.metrics.record import Record
from ritornello.metrics.run_files import last_record
from ritornello.sequences.checks import keepable
from ritornello.sequences.forms import Form, Name, checked
from ritornello.sequences.plan import (
    MAX_RUNS,
    AtOnce,
    Plan,
    PlannedRun,
    goes_on,
    is_test,
    shipped_plans,
    source_of,
)

STATE_FILE = SEQUENCE
TUNING_FILE = "tuning.json"  # the search whose trials are the runs (tuner.py), if it is one
LOCK_FILE, RUN_LOCK_FILE = "sequence.lock", "run.lock"
OUTPUT_FILE = "output.log"
FORMAT_VERSION = 1
MAX_STATE_BYTES = 40_000_000  # MAX_RUNS runs of 20 kB
# As `SequenceFolder.add` makes them; no path, and never the name of one of the other files.
RUN_NAME = r"^[0-9]{3,5}_[A-Za-z0-9._+-]{1,100}_seed[0-9]{1,19}$"


class RunState(Form):
    """One run of a sequence."""

    name: Annotated[str, Field(pattern=RUN_NAME)]  # also its folder
    group: Name
    seed: Annotated[int, Field(ge=0)]
    flags: dict[str, Any]
    status: Literal["waiting", "running", "done", "failed", "skipped", "stopped"] = "waiting"
    exit_code: int | None = None
    # As of the sequence when it was last started; None: it was not, or by an earlier version.
    arguments: list[str] | None = None
    # Wall-clock, all attempts together.
    seconds: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.0


class _SavedSequence(Form):
    """sequence.json."""

    format_version: Literal[1]
    name: Name
    at_once: AtOnce = 1
    arguments: list[str]
    runs: list[RunState]  # none yet: a search just begun


class SequenceFolder:
    """The folder of a sequence and its state. One process writes it."""

    def __init__(
        self, path: Path, name: str, runs: list[RunState], arguments: list[str], at_once: int = 1
    ) -> None:
        """Describe a sequence in memory; `create` and `open` connect it to its folder."""
        self.at_once = at_once  # number of runs that are under way at the same time
        self.path = path
        self.name = name
        self.runs = runs
        self.arguments = arguments  # of the command line, after `--`; given to every run
        self.lock = FileLock(path / LOCK_FILE)

    @classmethod
    def create(cls, results: Path, plan: Plan, arguments: Sequence[str]) -> SequenceFolder:
        """Make `results/<sequence>_<time>` with every run waiting.

        Raises:
          ConfigError: if nothing can be written into `results`.
        """
        writable_folder(results)
        path = create_exclusively(results, f"{safe_name(plan.name)}_{datetime.now():%Y%m%d-%H%M%S}")
        folder = cls(path, plan.name, [], list(arguments), plan.at_once)
        folder.add(plan.runs)
        folder.save()
        return folder

    @classmethod
    def open(cls, path: Path | str) -> SequenceFolder:
        """Read the state of a sequence that was begun. To run it, `checks.check_saved` comes next.

        A run that was done waits again if its folder, or that of the run it tests, is gone.

        Raises:
          ConfigError: if the folder holds no sequence, or one that we did not write.
        """
        file = Path(path) / STATE_FILE
        try:
            text = read_text(file, "the state of a sequence", MAX_STATE_BYTES)
            data = parse_json(text, str(file))
        except ConfigError as error:
            raise ConfigError(
                f"{shown_text(str(path))} is not the folder of a sequence: {error} Give a folder "
                "that multi_train.py made, e.g. results/compare_replay_<time>."
            ) from error
        saved = checked(_SavedSequence, data, shown_text(str(file)))
        folder = cls(Path(path), saved.name, saved.runs, saved.arguments, saved.at_once)
        folder._check_order()
        folder.runs = [
            run.model_copy(update={"status": "waiting"}) if folder._is_lost(run) else run
            for run in folder.runs
        ]
        return folder

    def arguments_of(self, run: RunState | None) -> list[str]:
        """Return what was typed for a run; without one, or if it has no own, for the sequence."""
        if run is None or run.arguments in (None, keepable(self.arguments)):
            return self.arguments
        return run.arguments

    def command(self, run: RunState | None = None) -> str:
        """Return the command line of a run; what is not shipped is a file of its name."""
        wish = f"--sequence={self.name}"
        if is_tuning(self.path):
            wish = f"--tune={self.name}.yaml"
        elif self.name not in shipped_plans():
            wish += ".yaml"
        arguments = self.arguments_of(run)
        extra = ["--", *arguments] if arguments else []
        return f"{PLAIN_SEQUENCE} {shlex.join([wish, *extra])}"

    def _check_order(self) -> None:
        """Raise ConfigError unless names are unique and each run starts from an earlier one."""
        names: set[str] = set()
        earlier: set[tuple[str, int]] = set()
        for run in self.runs:
            source = source_of(run.flags)
            if run.name in names or (source is not None and (source, run.seed) not in earlier):
                raise ConfigError(
                    f"{shown_text(str(self.path / STATE_FILE))}: {run.name} is there twice, or "
                    "starts from a run that is not before it."
                )
            names.add(run.name)
            earlier.add((run.group, run.seed))

    def add(self, planned: Iterable[PlannedRun]) -> None:
        """Add waiting runs behind the others; `save` writes them down.

        Raises:
          ConfigError: if there would be more than MAX_RUNS.
        """
        added = list(planned)
        if len(self.runs) + len(added) > MAX_RUNS:
            raise ConfigError(
                f"{shown_text(self.name)} would have {len(self.runs) + len(added):,} runs, "
                f"expected at most {MAX_RUNS:,}: begin another one for the rest."
            )
        for number, run in enumerate(added, start=len(self.runs) + 1):
            name = f"{number:03d}_{safe_name(run.group)}_seed{run.seed}"
            state = {"name": name, "group": run.group, "seed": run.seed, "flags": run.flags}
            self.runs.append(checked(RunState, state, shown_text(self.name)))

    def grow(self, plan: Plan, where: str) -> None:
        """Add the groups and seeds that the file of this sequence has got since it was begun.

        Raises:
          ConfigError: if the file is of another sequence, or changes an existing run.
        """
        begun = {(run.group, run.seed): run for run in self.runs}
        if plan.name != self.name:
            raise ConfigError(f"{where} is {shown(plan.name)}, expected {shown(self.name)}.")
        for run in plan.runs:
            there = begun.get((run.group, run.seed))
            if there is None:
                continue
            old, new = there.flags, json.loads(json.dumps(run.flags))
            changed = [x for x in sorted({*old, *new}) if old.get(x) != new.get(x)]
            if changed:
                raise ConfigError(
                    f"{where}: {there.name} was begun with another {', '.join(changed)}. Give what "
                    "is changed a name of its own, or begin a new sequence."
                )
        self.add(run for run in plan.runs if (run.group, run.seed) not in begun)

    def claim(self) -> None:
        """Take the sequence for this process, until it ends; remove what a killed one left.

        Raises:
          ConfigError: if another multi_train.py runs it.
          OSError: if something that was left cannot be removed.
        """
        if not self.lock.acquire():
            raise ConfigError(
                f"{shown_text(str(self.path))} is being run by another multi_train.py "
                f"({self.lock.holder()}). Wait for it, or stop it with Ctrl-C twice."
            )
        for folder in (self.path, *(self.path / run.name for run in self.runs)):
            remove_temporaries(folder)

    def save(self) -> None:
        """Write sequence.json, atomically."""
        data = {
            "format_version": FORMAT_VERSION,
            "name": self.name,
            "at_once": self.at_once,
            "arguments": keepable(self.arguments),
            "runs": [run.model_dump() for run in self.runs],
        }
        write_json(self.path / STATE_FILE, data)

    def update(self, index: int, **changes: Any) -> RunState:
        """Change the state of one run, and on disk if that takes it: each `save` writes it all."""
        self.runs[index] = self.runs[index].model_copy(update=changes)
        with suppress(OSError):  # no run ends for it, and a resume sees which of them have ended
            self.save()
        return self.runs[index]

    def run_folders(self, run: RunState) -> list[RunFolder]:
        """Return the folders that main.py made for a run; the last one is what counts.

        There are several if the run was begun anew because it had no checkpoint to resume from.
        Those without a checkpoint come first, and otherwise the oldest.
        """
        found = [RunFolder(path.parent) for path in (self.path / run.name).glob("*/checkpoints")]
        # Names end in the time, but a clock can be put back while a run is begun anew.
        return sorted(found, key=lambda made: (made.has_checkpoint(), made.path))

    def newest_record(self, run: RunState) -> Record | None:
        """Return the last record of the folder that counts; None if there is none."""
        made = self.run_folders(run)
        return last_record(made[-1].path) if made else None

    def seconds_of(self, run: RunState) -> float:
        """Return the time of a run so far, which a killed multi_train.py could not note in full."""
        record = self.newest_record(run)
        # The clock of a run that goes on from another one goes on as well.
        known_s = 0.0 if record is None or goes_on(run.flags) else record.wall_s
        return max(run.seconds, round(known_s, 1))

    def _is_lost(self, run: RunState) -> bool:
        """Whether what a run that was done has made is gone; a test writes beside what it tests."""
        maker = self.source(run) if is_test(run.flags) else run
        return run.status == "done" and maker is not None and not self.run_folders(maker)

    def has_ended(self, run: RunState) -> bool:
        """Whether a training came to its own end, however its process ended after that.

        Nothing is left to do then, and main.py would refuse to resume it. The end of a test is
        known by its exit status alone.
        """
        return not is_test(run.flags) and any(map(has_ended, self.run_folders(run)))

    def source(self, run: RunState) -> RunState | None:
        """Return the earlier run of the same seed that this one starts from or tests, if any."""
        group = source_of(run.flags)
        if group is None:
            return None
        return next(each for each in self.runs if (each.group, each.seed) == (group, run.seed))

    def resolved_flags(self, run: RunState) -> dict[str, Any]:
        """Return the flags of a run, with the folder of its source in place of the name."""
        source = self.source(run)
        if source is None:
            return run.flags
        return {**run.flags, "load_model_url": str(self.run_folders(source)[-1].path)}


def is_tuning(path: Path | str) -> bool:
    """Whether a folder is that of a search."""
    return (Path(path) / TUNING_FILE).is_file()


def has_ended(made: RunFolder) -> bool:
    """Whether a run folder says that its run has ended, or that all its steps are saved.

    A run that ended without a single update has failed, as its exit status says.
    """
    with suppress(ConfigError):  # no summary, or none that can be read: it has not said so
        text = read_text(made.summary_file, "the summary of a run")
        summary = parse_json(text, str(made.summary_file))
        if isinstance(summary, dict) and summary.get("reason") != "interrupted":
            return bool(summary.get("updates") != 0)
    record = last_record(made.path)
    try:
        steps = made.read_flags().get("environment_max_steps")
    except ValueError:
        return False
    if record is None or type(steps) is not int:
        return False
    saved = made.checkpoints / update_name(record.updates)
    return record.agent_steps >= steps and saved.exists()
