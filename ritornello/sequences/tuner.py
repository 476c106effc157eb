"""Works on a search (tuning.py): one trial after the other, each as runs of main.py.

    results/<name>_<time>/
      tuning.json                  the search, as it was written, and what was typed
      study.db                     every trial (study.py); `optuna-dashboard` draws it
      trial_0003_seed1/            a run, as in a sequence (folder.py)
      trials.md  best.json         the trials, best first; flags of the best one, for --flags_file

Whatever happens, the folder says how far it came: a trial that was running when everything was
killed is taken up again, from its last checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from ritornello.agent.stored.run_folder import create_exclusively, safe_name
from ritornello.core.atomic_file import remove_temporaries, write_json, write_text
from ritornello.core.errors import ConfigError, PlatformError
from ritornello.core.file_lock import FileLock
from ritornello.core.markdown import table
from ritornello.core.plain_data import parse_json, read_text, shown, shown_text
from ritornello.metrics.curve import Curve, curve_of
from ritornello.metrics.run_files import read_records
from ritornello.sequences.folder import LOCK_FILE, RunState, SequenceFolder
from ritornello.sequences.foreign import (
    check_place,
    check_plan,
    check_typed,
    check_weights,
    keepable,
)
from ritornello.sequences.plan import PlannedRun
from ritornello.sequences.runner import Interrupts, run_one
from ritornello.sequences.study import Finished, Study, Trial
from ritornello.sequences.tuning import Tuning, parse_tuning

TUNING_FILE, TRIALS_PAGE, BEST_FILE = "tuning.json", "trials.md", "best.json"
FORMAT_VERSION = 1
LOOK_S = 2.0  # between two looks at the curve of a run
MAX_FAILURES = 5  # trials in a row: something is wrong with all of them

Show = Callable[[str], None]


class TuningFailed(PlatformError):
    """One trial after the other fails."""


class TuningFolder:
    """The folder of a search. One process writes it, which holds its lock."""

    def __init__(self, path: Path, tuning: Tuning, arguments: Sequence[str]) -> None:
        """Describe a search in memory; `create` and `open` connect it to its folder."""
        self.path = path
        self.tuning = tuning
        self.arguments = list(arguments)
        self.lock = FileLock(path / LOCK_FILE)
        # The runner knows runs of a sequence: this one is in no file.
        self.runs = SequenceFolder(path, tuning.name, [], self.arguments)

    @classmethod
    def create(cls, results: Path, tuning: Tuning, arguments: Sequence[str]) -> TuningFolder:
        """Make `results/<name>_<time>`.

        Raises:
          ConfigError: if nothing can be written there.
        """
        stem = f"{safe_name(tuning.name)}_{datetime.now():%Y%m%d-%H%M%S}"
        folder = cls(create_exclusively(results, stem), tuning, arguments)
        saved = {
            "format_version": FORMAT_VERSION,
            "search": tuning.data,
            "arguments": keepable(arguments),
        }
        try:
            write_json(folder.path / TUNING_FILE, saved)
        except OSError as error:
            where = shown_text(str(folder.path))
            raise ConfigError(f"Cannot write into {where}: {error.strerror}.") from error
        return folder

    @classmethod
    def open(cls, path: Path, typed: Sequence[str], *, trust_files: bool = False) -> TuningFolder:
        """Read a search that was begun; what the file asks for is checked as a stranger's.

        Args:
          path: the folder.
          typed: arguments that are given to every run, beside those that were given before.
          trust_files: whether weights may lie outside of the folder.

        Raises:
          ConfigError: if it is none of ours, or asks for what a file may not.
        """
        file = path / TUNING_FILE
        where = shown_text(str(file))
        data = parse_json(read_text(file, "the state of a search"), where)
        if not isinstance(data, dict) or data.get("format_version") != FORMAT_VERSION:
            raise ConfigError(f"{where} is no search of this version, {FORMAT_VERSION}.")
        kept = data.get("arguments")
        if not isinstance(kept, list) or not all(isinstance(item, str) for item in kept):
            raise ConfigError(f"{where} has arguments {shown(kept)}, expected a list of texts.")
        if keepable(kept) != kept:
            raise ConfigError(f"{where} gives arguments to the runs that no file may give.")
        of_file, by_hand = check_typed(kept), check_typed(typed)
        tuning = parse_tuning(data.get("search"), where)
        runs = [PlannedRun("arguments", 0, dict(of_file)), *tuning.extremes().runs]
        check_plan(runs, by_hand, where)
        for place in path.glob("trial_*"):
            check_place(path, place.name)
        if not trust_files:
            check_weights(path, [(run.group, run.flags) for run in runs], where)
        return cls(path, tuning, [*kept, *typed])

    def claim(self) -> None:
        """Take the search for this process, until it ends.

        Raises:
          ConfigError: if another process works on it.
        """
        if not self.lock.acquire():
            raise ConfigError(
                f"{shown_text(str(self.path))} is being worked on by another multi_train.py "
                f"({self.lock.holder()}). Wait for it, or stop it with Ctrl-C."
            )
        remove_temporaries(self.path)

    def run_of(self, trial: Trial, seed: int) -> RunState:
        """Return the run of a trial with one seed."""
        name = f"trial_{trial.number:04d}_seed{seed}"
        return RunState(name, name, seed, self.tuning.flags(trial.values, seed))

    def curve(self, run: RunState) -> Curve | None:
        """Return the curve of a run as far as it has come."""
        folders = self.runs.run_folders(run)
        return curve_of(record for made in folders for record in read_records(made.path))

    def write_results(self, finished: Sequence[Finished]) -> None:
        """Write the table of trials and the flags of the best one."""
        tuning = self.tuning
        names = list(tuning.search)
        ranked = sorted(
            finished, key=lambda t: (t.value is None, 0.0 if t.value is None else -t.value)
        )
        rows = [
            (
                str(trial.number),
                trial.state,
                "" if trial.value is None else f"{trial.value:.3f}",
                *(_text(tuning, name, trial.values.get(name)) for name in names),
            )
            for trial in ranked
        ]
        what = "mean return up to" if tuning.objective == "area" else "mean return at"
        lines = [
            f"# {shown_text(tuning.name)}", "",
            f"Value: {what} {tuning.steps:,} agent steps, over seeds "
            f"{', '.join(map(str, tuning.seeds))}.", "",
            *table(["trial", "state", "value", *names], rows), "",
        ]  # fmt: skip
        write_text(self.path / TRIALS_PAGE, "\n".join(lines))
        if ranked and ranked[0].value is not None:
            flags = tuning.flags(ranked[0].values, tuning.seeds[0])
            flags.pop("seed")
            write_json(self.path / BEST_FILE, flags)


class Tuner:
    """Runs the trials of a search until there are enough, or the user stops it. Use once."""

    def __init__(
        self, folder: TuningFolder, study: Study, interrupts: Interrupts, show: Show
    ) -> None:
        """Start nothing.

        Args:
          folder: the search, claimed.
          study: its trials.
          interrupts: what the user asks for.
          show: is called with each line for the user.
        """
        self._folder, self._study, self._interrupts, self._show = folder, study, interrupts, show
        self._hopeless = False
        self._looked_at = 0.0

    def work(self) -> bool:
        """Run what is to be run; return whether all trials are over.

        Raises:
          TuningFailed: if one trial after the other fails.
          StudyError: if the study cannot be read or written.
        """
        if earlier := self._study.finished():
            # A process before may have been killed when a trial was over, but not yet written.
            self._folder.write_results(earlier)
        while len(finished := self._study.finished()) < self._folder.tuning.trials:
            newest = [trial.state for trial in finished[-MAX_FAILURES:]]
            if newest == ["failed"] * MAX_FAILURES:
                raise TuningFailed(
                    f"the last {MAX_FAILURES} trials failed: read the output.log of "
                    f"{shown_text(str(self._folder.path))}/trial_*, mend the cause and begin anew."
                )
            if self._interrupts.stop:
                return False
            trial = self._study.next()
            self._show(f"trial {trial.number}: {self._describe(trial)}")
            if not self._run(trial):
                return False
            self._folder.write_results(self._study.finished())
        return True

    def _run(self, trial: Trial) -> bool:
        """Run a trial to its end; return False if the user stopped it before."""
        tuning = self._folder.tuning
        values: list[float] = []  # of the seeds before
        for seed in tuning.seeds:
            run = self._folder.run_of(trial, seed)
            self._hopeless = self._interrupts.ends_run = False
            status: int | None = 0
            if not self._folder.runs.has_ended(run):

                def tick(run: RunState = run, before: Sequence[float] = tuple(values)) -> None:
                    self._look(trial, run, before)

                status = run_one(self._folder.runs, run, self._interrupts, tick)
            curve = self._folder.curve(run)
            if self._hopeless:
                self._end(trial, "pruned")
                return True
            if self._interrupts.stop:
                return False
            # A run that was killed when all was done but its summary refuses to be resumed.
            is_whole = curve is not None and curve.agent_steps[-1] >= tuning.steps
            if curve is None or (status != 0 and not is_whole):
                self._end(trial, "failed")
                return True
            values.append(tuning.worth(curve, tuning.steps))
            self._report(trial, curve, values[:-1], tuning.steps)
        self._end(trial, "complete", fmean(values))
        return True

    def _look(self, trial: Trial, run: RunState, before: Sequence[float]) -> None:
        """Compare a run that is going on with the other trials, now and then."""
        pruning = self._folder.tuning.pruning
        now = time.monotonic()
        if pruning is None or self._interrupts.stop or now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        curve = self._folder.curve(run)
        if curve is not None and self._report(trial, curve, before, curve.agent_steps[-1]):
            self._hopeless = self._interrupts.ends_run = True

    def _report(self, trial: Trial, curve: Curve, before: Sequence[float], reached: float) -> bool:
        """Note the worth of a run at each step up to `reached`; return whether it is hopeless."""
        tuning = self._folder.tuning
        if tuning.pruning is None:
            return False
        every = tuning.pruning.every
        last = int(min(reached, tuning.steps)) // every * every
        offset = len(before) * tuning.steps
        hopeless = False
        for steps in range(every, last + 1, every):
            worth = fmean([*before, tuning.worth(curve, steps)])
            hopeless = trial.is_hopeless(worth, offset + steps) or hopeless
        return hopeless

    def _end(self, trial: Trial, state: str, value: float | None = None) -> None:
        trial.end(state, value)
        self._show(
            f"trial {trial.number}: {state}" + ("" if value is None else f", value {value:.3f}")
        )

    def _describe(self, trial: Trial) -> str:
        tuning = self._folder.tuning
        return ", ".join(
            f"{shown_text(name)} = {_text(tuning, name, value)}"
            for name, value in trial.values.items()
        )


def is_tuning(path: Path | str) -> bool:
    """Whether a folder is that of a search."""
    return (Path(path) / TUNING_FILE).is_file()


def _text(tuning: Tuning, name: str, value: Any) -> str:
    if value is None:
        return ""
    flag = tuning.search[name].flag(value)
    return f"{flag:.4g}" if isinstance(flag, float) else shown(flag, 100)
