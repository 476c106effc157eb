"""Optuna, behind the few calls that a search needs: what to try next, and what is worth going on.

The study is a SQLite file in the folder of the search, written at each step, so that a killed
search goes on where it was: a trial that was running is given out again, with the same values.
Optuna is optional (extra tune) and imported only here.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ritornello.core.errors import ConfigError, PlatformError
from ritornello.core.plain_data import shown, shown_text
from ritornello.core.project import install_extra
from ritornello.metrics.run_files import is_regular
from ritornello.sequences.tuning import Range, Tuning

STUDY_FILE = "study.db"
NAME = "tuning"
LOCKED_S = 60.0  # SQLite waits so long for another program that reads the file


class StudyError(PlatformError):
    """The file of a study cannot be read or written."""


@dataclass(frozen=True)
class Finished:
    """A trial that is over."""

    number: int
    state: str  # complete | pruned | failed
    value: float | None
    values: dict[str, Any]  # of the study; `Range.flag` makes flags of them


class Trial(Protocol):
    """One trial that is running."""

    number: int
    values: dict[str, Any]

    def is_hopeless(self, worth: float, steps: int) -> bool:
        """Note what it is worth after some agent steps; return whether it should be ended."""

    def end(self, state: str, value: float | None = None) -> None:
        """Note that it is over: complete with a value, pruned, or failed."""


class Study(Protocol):
    """All trials of a search."""

    def finished(self) -> list[Finished]:
        """Return the trials that are over, oldest first."""

    def next(self) -> Trial:
        """Return a trial that an earlier process left running, or a new one."""


class OptunaTrial:
    """A trial of Optuna's."""

    def __init__(self, optuna: Any, trial: Any, study: Any, values: dict[str, Any]) -> None:
        """Wrap a trial whose values are known."""
        self.number = int(trial.number)
        self.values = values
        self._optuna, self._trial, self._study = optuna, trial, study
        self._noted = set(study.trials[self.number].intermediate_values)  # by an earlier process

    def is_hopeless(self, worth: float, steps: int) -> bool:
        """See `Trial`. What was noted before is not judged again."""
        if steps in self._noted:
            return False
        self._noted.add(steps)
        with _told("the study cannot be written"):
            self._trial.report(worth, steps)
            return bool(self._trial.should_prune())

    def end(self, state: str, value: float | None = None) -> None:
        """See `Trial`."""
        states = self._optuna.trial.TrialState
        kind = {"complete": states.COMPLETE, "pruned": states.PRUNED, "failed": states.FAIL}[state]
        with _told("the study cannot be written"):
            self._study.tell(self._trial, value if state == "complete" else None, state=kind)


class OptunaStudy:
    """A study of Optuna's: the TPE sampler, the median pruner, and SQLite."""

    def __init__(self, folder: Path, tuning: Tuning) -> None:
        """Open the study of a folder, or begin it.

        Raises:
          ConfigError: if Optuna is not installed, or the file is none that may be written.
          StudyError: if it cannot be read.
        """
        self._optuna = optuna = _import_optuna()
        self._tuning = tuning
        path = folder.resolve() / STUDY_FILE
        if path.is_symlink() or (path.exists() and not is_regular(path)):
            raise ConfigError(f"{shown_text(str(path))} is a link or no file: remove it.")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        url = importlib.import_module("sqlalchemy.engine").URL
        with _told("the study cannot be opened"):
            storage = optuna.storages.RDBStorage(
                url.create("sqlite", database=str(path)).render_as_string(),
                engine_kwargs={"connect_args": {"timeout": LOCKED_S}},
            )
            self._study = optuna.create_study(
                storage=storage,
                study_name=NAME,
                direction="maximize",
                load_if_exists=True,
                pruner=self._pruner(),
            )
            # Another seed after a resume, or it would try again what it has tried.
            seed = (tuning.sampler_seed + 1000 * len(self._study.trials)) % 2**31
            self._study.sampler = optuna.samplers.TPESampler(seed=seed)

    def finished(self) -> list[Finished]:
        """See `Study`."""
        states = self._optuna.trial.TrialState
        names = {states.COMPLETE: "complete", states.PRUNED: "pruned", states.FAIL: "failed"}
        with _told("the study cannot be read"):
            trials = self._study.get_trials(deepcopy=False)
        found = []
        for trial in trials:
            if trial.state in names:
                state = names[trial.state]
                value = trial.value if state == "complete" else None
                known = value is not None and math.isfinite(value)
                found.append(
                    Finished(trial.number, state, value if known else None, dict(trial.params))
                )
        return found

    def next(self) -> OptunaTrial:
        """See `Study`.

        Raises:
          ConfigError: if a trial in the file has values that the search does not allow.
        """
        optuna = self._optuna
        with _told("the study cannot be written"):
            running = [
                trial
                for trial in self._study.get_trials(deepcopy=False)
                if trial.state == optuna.trial.TrialState.RUNNING
            ]
            trial = (
                optuna.trial.Trial(self._study, running[0]._trial_id)
                if running
                else self._study.ask()
            )
            values = {
                name: _suggest(trial, name, range_) for name, range_ in self._tuning.search.items()
            }
        for name, value in values.items():
            if not self._tuning.search[name].contains(value):
                raise ConfigError(
                    f"trial {trial.number} of {STUDY_FILE} has {shown_text(name)} = {shown(value)},"
                    " which the search does not allow: the file is of another search."
                )
        return OptunaTrial(optuna, trial, self._study, values)

    def _pruner(self) -> Any:
        pruning = self._tuning.pruning
        if pruning is None:
            return self._optuna.pruners.NopPruner()
        return self._optuna.pruners.MedianPruner(
            n_startup_trials=pruning.after_trials, n_warmup_steps=pruning.after_steps
        )


def check_optuna() -> None:
    """Raise ConfigError unless Optuna is installed; nothing of it is kept."""
    _import_optuna()


def _suggest(trial: Any, name: str, range_: Range) -> Any:
    if range_.choices:
        return trial.suggest_categorical(name, list(range_.choices))
    if range_.is_whole:
        step = 1 if range_.step is None else int(range_.step)
        return trial.suggest_int(name, range_.low, range_.high, step=step, log=range_.is_log)
    return trial.suggest_float(name, range_.low, range_.high, step=range_.step, log=range_.is_log)


def _import_optuna() -> Any:
    try:
        return importlib.import_module("optuna")
    except ImportError as error:
        raise ConfigError(
            f"--tune needs a package that is not installed: {install_extra('tune')}"
        ) from error


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """Make one message of what Optuna, SQLAlchemy and SQLite raise."""
    try:
        yield
    except PlatformError:
        raise
    except Exception as error:  # of three libraries, which have no common base
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise StudyError(f"{what} ({STUDY_FILE}): {shown_text(lines[0], 300)}") from error
