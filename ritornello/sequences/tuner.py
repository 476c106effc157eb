"""A search for good flags: Optuna chooses, and each trial is runs of a sequence (search.py).

The folder of a search is that of a sequence (folder.py), whose groups are the trials, with three
files more: tuning.json (the search), study.db (Optuna's study) and best.json, and trials.md in the
place of a comparison. A trial that was under way when everything was killed goes on on resume.
"""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from ritornello.core.atomic_file import write_json, write_text
from ritornello.core.command_line import number_in
from ritornello.core.errors import ConfigError, PlatformError
from ritornello.core.markdown import table
from ritornello.core.plain_data import shown, shown_text
from ritornello.core.project import import_extra
from ritornello.flags.names import named_values
from ritornello.metrics.curve import Curve, curve_of
from ritornello.metrics.run_files import read_records
from ritornello.metrics.text import same_decimals
from ritornello.sequences.checks import keepable
from ritornello.sequences.folder import OUTPUT_FILE, TUNING_FILE, RunState, SequenceFolder
from ritornello.sequences.plan import Plan, PlannedRun
from ritornello.sequences.runner import Interrupts, run_sequence
from ritornello.sequences.search import Search, import_optuna

STUDY_FILE = "study.db"
TRIALS_PAGE, BEST_FILE = "trials.md", "best.json"
LOOK_S = 2.0  # between two looks at the curve of a run
LOCKED_S = 60.0  # SQLite waits so long for another program that reads the file
FIXED = ("base", "search", "objective", "steps", "seeds")  # of a search that was begun
MAX_FAILURES = 5  # trials in a row: something is wrong with all of them


class TuningFailed(PlatformError):
    """One trial after the other fails, or the study cannot be used."""


def create_folder(results: Path, search: Search, arguments: list[str]) -> SequenceFolder:
    """Make `results/<name>_<time>` of a search, with no trial yet."""
    folder = SequenceFolder.create(results, Plan(search.name, search.about, ()), arguments)
    data = search.model_dump(mode="json", by_alias=True, exclude_unset=True)
    write_json(folder.path / TUNING_FILE, data)
    return folder


class Tuner:
    """Runs the trials of a search until there are enough, or the user stops it. Use once."""

    def __init__(
        self,
        folder: SequenceFolder,
        search: Search,
        interrupts: Interrupts,
        show: Callable[[str], None],
    ) -> None:
        """Open the study, or begin it. `show` is called with each line for the user.

        Raises:
          ConfigError: if the search has been changed so that its trials cannot be compared.
          TuningFailed: if the study cannot be used.
        """
        typed = number_in(named_values(folder.arguments).get("environment_max_steps"))
        if typed is not None and int(typed) < search.last_step:  # no run comes further
            search = search.model_copy(update={"steps": int(typed)})
        asked = search.model_dump(mode="json", by_alias=True, include=set(FIXED))
        self._folder, self._search, self._interrupts, self._show = folder, search, interrupts, show
        self._optuna = optuna = import_optuna()
        self._looked_at_s, self._looked_at = 0.0, ("", 0)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        url = import_extra("sqlalchemy", "tune", "--tune").URL
        pruning = search.prune
        pruner = optuna.pruners.NopPruner()
        if pruning:
            warm_up = pruning.after_steps or search.every
            pruner = optuna.pruners.MedianPruner(pruning.after_trials, warm_up)
        with _told():
            self._study = optuna.create_study(
                storage=optuna.storages.RDBStorage(
                    str(url.create("sqlite", database=str((folder.path / STUDY_FILE).resolve()))),
                    engine_kwargs={"connect_args": {"timeout": LOCKED_S}},
                ),
                study_name="tuning",
                direction="maximize",
                load_if_exists=True,
                pruner=pruner,
            )
            begun = self._study.user_attrs.get("search", asked)
            if begun != asked:
                changed = [key for key in FIXED if begun.get(key) != asked[key]]
                typed_too = " or --max_steps" if "steps" in changed else ""
                raise ConfigError(
                    f"{shown_text(str(folder.path / TUNING_FILE))}{typed_too} changes "
                    f"{' and '.join(changed)}, which must stay as when the search was begun: its "
                    "trials could not be compared. Put back what was there, or begin another "
                    "search."
                )
            self._study.set_user_attr("search", asked)
            self._distributions = {n: r.distribution(optuna) for n, r in search.search.items()}
            for trial in self._study.trials:
                self._check_values(trial)
            # Another seed after a resume, or it would try again what it has tried.
            seed = (search.sampler_seed + 1000 * len(self._study.trials)) % 2**31
            self._study.sampler = optuna.samplers.TPESampler(seed=seed)

    def work(self) -> bool:
        """Run trials until all are over or the user stops; return whether all are over.

        Raises:
          TuningFailed: if one trial after the other fails, or the study cannot be used.
        """
        with _told():
            while True:
                over = [trial for trial in self._study.trials if trial.state.is_finished()]
                self._write_results(over)
                if len(over) >= self._search.trials:
                    return True
                newest = [trial.state.name for trial in over[-MAX_FAILURES:]]
                if newest == ["FAIL"] * MAX_FAILURES:
                    raise TuningFailed(
                        f"the last {MAX_FAILURES} trials failed: read the output.log of their runs "
                        f"in {shown_text(str(self._folder.path))}, mend the cause and begin anew."
                    )
                if self._interrupts.stop or not self._run(self._next()):
                    return False

    def _check_values(self, trial: Any) -> None:
        """Have Optuna raise ValueError if a trial has values that the search cannot choose.

        The study may be a stranger's, and what is checked of his search is its own values.
        """
        chosen = trial.params
        ours = {name: each for name, each in self._distributions.items() if name in chosen}
        state = self._optuna.trial.TrialState.RUNNING
        self._optuna.trial.create_trial(state=state, params=chosen, distributions=ours)

    def _next(self) -> Any:
        """Return the trial that an earlier process left running, or a new one."""
        for trial in self._study.trials:
            if trial.state.is_finished():
                continue
            if trial.params.keys() == self._distributions.keys():
                return self._optuna.trial.Trial(self._study, trial._trial_id)
            self._end(trial, "FAIL")  # its process was killed before every flag was chosen
        return self._study.ask(self._distributions)

    def _run(self, trial: Any) -> bool:
        """Run a trial to its end; return False if it was stopped or waits for an earlier one."""
        search, name = self._search, f"trial_{trial.number:04d}"
        self._show(f"trial {trial.number}: {self._described(trial.params)}")
        planned = [PlannedRun(name, x, search.flags(trial.params, x)) for x in search.seeds]
        there = [run.flags for run in self._folder.runs if run.group == name]
        if not there:
            self._folder.add(planned)
            self._folder.save()
        elif any(there[0].get(flag) != planned[0].flags[flag] for flag in trial.params):
            raise TuningFailed(
                f"{STUDY_FILE} is not that of the runs in {shown_text(str(self._folder.path))}, "
                f"where {name} has other flags: put back the one that is, or begin anew."
            )
        values: list[float] = []  # of the seeds before
        for index, run in enumerate(self._folder.runs):
            if run.group != name:
                continue
            self._interrupts.ends_run = False
            look = partial(self._look, trial, tuple(values))
            run_sequence(self._folder, self._interrupts, look, [index])
            if self._interrupts.ends_run:
                self._end(trial, "PRUNED")
                return True
            if self._folder.runs[index].status in ("stopped", "waiting"):
                return False
            curve = self._curve(run)
            is_done = self._folder.runs[index].status == "done"
            # A run may fail when all was done but its summary; without an update, nothing was.
            newest = self._folder.newest_record(run)
            is_whole = is_done or (newest is not None and newest.updates > 0)
            least = 0 if is_done else search.last_step
            if not (is_whole and (curve.agent_steps >= least).any()):
                log = f"{shown_text(run.name)}/{OUTPUT_FILE}"
                self._end(trial, "FAIL", why="no game was over" if is_done else f"read {log}")
                return True
            values.append(search.worth(curve, search.last_step))
            self._report(trial, curve, values[:-1], search.last_step)
        self._end(trial, "COMPLETE", fmean(values))
        return True

    def _curve(self, run: RunState) -> Curve:
        folders = self._folder.run_folders(run)
        return curve_of(record for made in folders for record in read_records(made.path))

    def _look(self, trial: Any, before: Sequence[float], run: RunState, seconds: float) -> None:
        """Compare a run that is under way with the other trials, now and then."""
        now_s = time.monotonic()
        if self._interrupts.stop or run.status != "running" or now_s - self._looked_at_s < LOOK_S:
            return
        self._looked_at_s = now_s
        # The whole curve, which grows, is read only once at each point of comparison.
        newest = self._folder.newest_record(run) if self._search.prune else None
        place = (run.name, newest.agent_steps // self._search.every if newest else 0)
        if newest is None or place == self._looked_at:
            return
        self._looked_at = place
        curve = self._curve(run)
        if len(curve.agent_steps) and self._report(trial, curve, before, curve.agent_steps[-1]):
            self._interrupts.ends_run = True

    def _report(self, trial: Any, curve: Curve, before: Sequence[float], reached: float) -> bool:
        """Report the value of a run at each look up to `reached`; return whether it is hopeless."""
        search = self._search
        if not search.prune:
            return False
        noted = self._study.trials[trial.number].intermediate_values
        last = int(min(reached, search.last_step)) // search.every * search.every
        hopeless = False
        for steps in range(search.every, last + 1, search.every):
            at = len(before) * search.last_step + steps
            if at not in noted:
                trial.report(fmean([*before, search.worth(curve, steps)]), at)
                hopeless = bool(trial.should_prune()) or hopeless
        return hopeless

    def _end(self, trial: Any, state: str, value: float | None = None, why: str = "") -> None:
        self._study.tell(trial.number, value, state=self._optuna.trial.TrialState[state])
        why = why if value is None else f"value {same_decimals([value], 3)[0]}"
        self._show(f"trial {trial.number}: {state.lower()}{why and f', {why}'}")

    def _write_results(self, over: list[Any]) -> None:
        search = self._search
        complete = [t for t in over if t.state.name == "COMPLETE"]
        ranked = sorted(complete, key=lambda t: -t.value)
        rows = [
            (
                str(trial.number),
                trial.state.name.lower(),
                same_decimals([trial.value], 3)[0] if trial in complete else "",
                self._described(trial.params),
            )
            for trial in [*ranked, *(t for t in over if t not in complete)]
        ]
        lines = [
            f"# {shown_text(search.name)}", "",
            f"Value: {search.objective} of the mean return at {search.last_step:,} agent steps, "
            f"over seeds {', '.join(map(str, search.seeds))}.", "",
            *table(["trial", "state", "value", "flags"], rows), "",
        ]  # fmt: skip
        write_text(self._folder.path / TRIALS_PAGE, "\n".join(lines))
        if ranked:
            group = f"trial_{ranked[0].number:04d}"
            run = next((run for run in self._folder.runs if run.group == group), None)
            typed = named_values(keepable(self._folder.arguments_of(run)))
            flags = {**search.flags(ranked[0].params, 0), **typed}
            del flags["seed"]
            write_json(self._folder.path / BEST_FILE, flags)

    def _described(self, values: Mapping[str, Any]) -> str:
        flags = {name: self._search.search[name].flag(value) for name, value in values.items()}
        return ", ".join(f"{shown_text(name)} = {shown(flags[name], 100)}" for name in flags)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Turn exceptions that come through Optuna, which have no common base, into one message."""
    try:
        yield
    except (PlatformError, OSError):
        raise
    except Exception as error:
        frames = traceback.walk_tb(error.__traceback__)
        if not any(frame.f_globals["__name__"].startswith("optuna.") for frame, _ in frames):
            raise
        cause = error.__cause__ or error  # Optuna's own sentence guesses at one
        lines = str(cause).strip().splitlines() or [type(cause).__name__]
        raise TuningFailed(
            f"{STUDY_FILE} cannot be used: {shown_text(lines[0], 300)}: mend that and --resume, or "
            "put back a sound copy, or begin anew."
        ) from error
