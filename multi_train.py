"""Train a whole sequence of runs, one after the other or several at once, and compare them.

  python multi_train.py                                 this text
  python multi_train.py --list                          the sequences that come with the program
  python multi_train.py --sequence=smoke                run one of them (or a .yaml file of yours)
  python multi_train.py --sequence=smoke --dry_run      only print the runs it would do
  python multi_train.py --sequence=smoke --gamma=0.98   flags of main.py go to every run; so does
                                                        all that follows --
  python multi_train.py --sequence=smoke --at_once=2    two runs at the same time
  python multi_train.py --tune=search.yaml              search for good flags (docs/tuning.md)
  python multi_train.py --resume=results/smoke_<time>   go on with what is not done
  python multi_train.py --resume=results/smoke_<time> --sequence=smoke
                                                        the same, with the groups and seeds that
                                                        the file has got since
  python multi_train.py --report=results/smoke_<time>   draw the tables and the figure again

Each run is a process of its own. If a run fails, that is recorded, and the sequence goes on with
the next run; runs that would start from its weights are left out. Ctrl-C stops the sequence: the
present run, or all that run at once, saves and ends. A second Ctrl-C leaves without saving.
--resume then continues it from the last checkpoints. Agents that share their replay always run at
once. The results are in
results/<sequence>_<time>/. The exit status is 0 if every run is done, 1 if some are not, 2 if the
command cannot be honoured or says nothing to do, and 130 if it was interrupted while it started or
compared.

A flag in which the runs differ cannot be typed, because it would make them all alike.

What is shown is for people: a terminal that is closed, frozen or broken (| head) stops no run.

A sequence from somebody else can choose what is trained, but not whose code is run or which files
outside of its folder are read. If you trust it, allow environments named module:Id by --
--trust_env_module=True, and weights from other folders by --trust_files=True.

sequences/plan.py says how to write a sequence, and sequences/*.yaml are examples.
"""

from __future__ import annotations

import signal

if __name__ == "__main__" and hasattr(signal, "pthread_sigmask"):
    # The first thing of all: until there is a handler, signals wait. They are let through below.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})

import argparse
import functools
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

from rich.markup import escape

from ritornello.analysis.compare_sequence import CSV_TABLE, FIGURE, TABLE, rich_tables, write_report
from ritornello.core.command_line import WrappedHelp, add_switch, printable, with_home
from ritornello.core.errors import ConfigError
from ritornello.core.leaving import leave
from ritornello.core.plain_data import shown, shown_text
from ritornello.core.stop_signals import INTERRUPTED, answer_by, leave_at_once, let_through
from ritornello.flags.former_names import answer
from ritornello.flags.options import Flags
from ritornello.flags.parsing import check_values, named_values
from ritornello.sequences.folder import RunState, SequenceFolder
from ritornello.sequences.foreign import check_plan, check_saved, check_typed
from ritornello.sequences.growing import further_runs
from ritornello.sequences.plan import (
    Plan,
    PlannedRun,
    check_at_once,
    check_flags,
    load_plan,
    shipped_plans,
    source_of,
)
from ritornello.sequences.runner import Interrupts, run_sequence
from ritornello.sequences.scores import GAMES_TABLE, SCORES_PAGE
from ritornello.sequences.study import OptunaStudy, StudyError, check_optuna
from ritornello.sequences.terminal import Progress, Terminal
from ritornello.sequences.tuner import (
    BEST_FILE,
    TRIALS_PAGE,
    Tuner,
    TuningFailed,
    TuningFolder,
    is_tuning,
)
from ritornello.sequences.tuning import load_tuning
from ritornello.sequences.typed_flags import check_not_overridden, refuse

# Names that mean something to main.py as well, and mean ours where they are before `--`.
OURS = ("results_dir", "resume")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0 if every run is done, 1 if some are not, 2 for wrong arguments."""
    ours, rest = _split(with_home(sys.argv[1:] if argv is None else argv))
    parser = _parser()
    arguments, unknown = parser.parse_known_args(ours)
    told = ("list", "report", "resume", "sequence", "tune")
    wishes = [name for name in told if getattr(arguments, name)]
    if len(wishes) != 1 and wishes != ["resume", "sequence"] and not unknown:
        if wishes:
            print(
                "multi_train.py: give one of --list, --sequence, --tune, --resume and --report, or "
                "--resume with the --sequence that has got more runs."
            )
        parser.print_help()
        return 2
    try:
        if unknown:
            refuse(unknown, vars(arguments))
        return _do(Terminal(), arguments, rest)
    except ConfigError as error:
        print(f"multi_train.py: {printable(str(error))}", file=sys.stderr)
        return 2
    except OSError as error:
        where = f": {shown_text(str(error.filename))}" if error.filename else ""
        reason = printable(f"{error.strerror or error}{where}")
        print(
            f"multi_train.py: {reason}. What was done is kept; --resume goes on.", file=sys.stderr
        )
        return 1


def _do(terminal: Terminal, arguments: argparse.Namespace, rest: Sequence[str]) -> int:
    if arguments.list:
        for name in shipped_plans():
            terminal.print(f"[bold]{name}[/]  {escape(load_plan(name).about)}")
        return 0
    if arguments.report:
        _report(terminal, SequenceFolder.open(arguments.report))
        return 0
    if arguments.tune or (arguments.resume and is_tuning(arguments.resume)):
        if arguments.sequence:
            raise ConfigError(
                f"{shown_text(arguments.resume)} is the folder of a search: --resume goes on with "
                "it, and --sequence is for the folder of a sequence."
            )
        return _tune(terminal, arguments, rest)
    folder = _folder(terminal, arguments, rest)
    if folder is None:
        return 0
    try:
        with terminal.in_background():
            return _run(terminal, folder)
    finally:
        folder.lock.release()


def _folder(
    terminal: Terminal, arguments: argparse.Namespace, rest: Sequence[str]
) -> SequenceFolder | None:
    """Return the folder of what is to be run, new or resumed; None if nothing is to be run."""
    typed = check_typed(rest)
    if arguments.resume:
        folder = SequenceFolder.open(arguments.resume)
        trusted = arguments.trust_files
        check_saved(folder.path, folder.runs, folder.arguments, typed, trust_files=trusted)
        if arguments.sequence:
            plan, where = _plan(arguments.sequence, typed)
            folder.add(further_runs(folder, plan, where))
            check_not_overridden(folder.runs, named_values(folder.arguments), where)
        check_not_overridden(folder.runs, typed, shown_text(str(folder.path)))
        folder.arguments += rest
        folder.at_once = _at_once(arguments, folder.at_once)
    else:
        plan, where = _plan(arguments.sequence, typed)
        check_not_overridden(plan.runs, typed, where)
        plan = replace(plan, at_once=_at_once(arguments, plan.at_once))
        folder = None
    if arguments.dry_run:
        waiting = plan.runs if folder is None else [r for r in folder.runs if r.status != "done"]
        _print_runs(terminal, waiting, rest if folder is None else folder.arguments)
        return None
    folder = folder or SequenceFolder.create(Path(arguments.results_dir), plan, rest)
    folder.claim()
    folder.save()  # with the runs that it has got
    return folder


def _plan(sequence: str, typed: Mapping[str, str]) -> tuple[Plan, str]:
    """Return a sequence that was checked, and its file for messages."""
    plan, where = load_plan(sequence), shown_text(sequence)
    check_flags(plan, Flags.model_fields, check_values, where)
    check_plan(plan.runs, typed, where)
    return plan, where


def _tune(terminal: Terminal, arguments: argparse.Namespace, rest: Sequence[str]) -> int:
    """Work on a search, new or resumed; return 0 if it is done, 1 if not, 130 if interrupted."""
    if arguments.resume:
        folder = TuningFolder.open(Path(arguments.resume), rest, trust_files=arguments.trust_files)
        where = shown_text(arguments.resume)
        check_not_overridden(folder.tuning.extremes().runs, check_typed(rest), where)
    else:
        where, typed = shown_text(arguments.tune), check_typed(rest)
        tuning = load_tuning(arguments.tune)
        check_flags(tuning.extremes(), Flags.model_fields, check_values, where)
        check_plan(tuning.extremes().runs, typed, where)
        check_not_overridden(tuning.extremes().runs, typed, where)
        check_optuna()
        if arguments.dry_run:
            _print_runs(terminal, tuning.extremes().runs, rest)
            return 0
        folder = TuningFolder.create(Path(arguments.results_dir), tuning, rest)
    folder.claim()
    path = shown_text(str(folder.path))
    try:
        with terminal.in_background(), Interrupts().installed() as interrupts:
            terminal.plainly(f"{path}: {folder.tuning.trials} trials")
            study = OptunaStudy(folder.path, folder.tuning)
            done = Tuner(folder, study, interrupts, terminal.plainly).work()
            if done and (folder.path / BEST_FILE).exists():
                terminal.plainly(f"done: {path}/{TRIALS_PAGE}; the best flags: {path}/{BEST_FILE}")
            elif done:
                terminal.plainly(
                    f"done: {path}/{TRIALS_PAGE}; no trial came to its end, so there are no best "
                    f"flags. Read {path}/trial_*/output.log."
                )
                return 1
            else:
                terminal.plainly(f"saved; go on with --resume={shlex.quote(path)}")
            return 0 if done else INTERRUPTED
    except (StudyError, TuningFailed) as error:
        print(f"multi_train.py: {printable(str(error))}", file=sys.stderr)
        return 1
    finally:
        folder.lock.release()


def _run(terminal: Terminal, folder: SequenceFolder) -> int:
    waiting = sum(run.status != "done" for run in folder.runs)
    path = shown_text(str(folder.path))
    terminal.plainly(f"{path}: {waiting} of {len(folder.runs)} runs to do")
    with Interrupts().installed() as interrupts, terminal.living_line() as living_line:
        run_sequence(folder, interrupts, Progress(terminal, living_line, folder))
    _report(terminal, folder)
    unfinished = [run for run in folder.runs if run.status != "done"]
    for run in unfinished:
        terminal.plainly(f"{run.status}: {run.name} (see {path}/{run.name}/output.log)")
    if unfinished:
        terminal.plainly(f"To go on: python multi_train.py --resume={shlex.quote(path)}")
    return 1 if unfinished else 0


def _at_once(arguments: argparse.Namespace, given: int) -> int:
    """Return how many runs are under way at the same time: as typed, else as given."""
    return given if arguments.at_once is None else check_at_once(arguments.at_once, "--at_once=")


def _report(terminal: Terminal, folder: SequenceFolder) -> None:
    """Compare what is there: on the terminal, and as files."""
    for table in rich_tables(write_report(folder)):
        terminal.print(table)
    path = shown_text(str(folder.path))
    if (folder.path / FIGURE).exists():
        terminal.plainly(f"Tables and figure: {path}/{TABLE}, {CSV_TABLE}, {FIGURE}")
    else:
        terminal.plainly(f"Tables: {path}/{TABLE}, {CSV_TABLE}; no run has a curve to draw yet")
    if (folder.path / SCORES_PAGE).exists():
        terminal.plainly(f"Tests of every game: {path}/{SCORES_PAGE}, {GAMES_TABLE}")


def _print_runs(
    terminal: Terminal, runs: Iterable[PlannedRun | RunState], arguments: Sequence[str]
) -> None:
    plainly = functools.partial(terminal.print, highlight=False, soft_wrap=True, markup=False)
    for number, run in enumerate(runs, start=1):
        given = dict(run.flags)
        if source_of(run.flags) is not None:
            given["load_model_url"] = f"<run folder of {source_of(run.flags)}>"
        flags = " ".join(f"--{name}={_typed(value)}" for name, value in given.items())
        plainly(f"{number:3}  {shown_text(run.group)}, seed {run.seed}")
        plainly(f"     {flags} {shown_text(shlex.join(arguments), 2000)}")


def _typed(value: object) -> str:
    return shown_text(value, 500) if isinstance(value, str) else shown(value, 500)


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Split into ours and main.py's: what follows `--`, and its flags wherever they are."""
    place = argv.index("--") if "--" in argv else len(argv)
    rest = argv[place + 1 :]
    ours: list[str] = []
    theirs: list[str] = []
    belongs_to = ours
    for item in argv[:place]:
        if item.startswith("--"):
            name, equals, value = item[2:].partition("=")
            name = name.replace("-", "_")
            is_known = name in Flags.model_fields or answer(name) is not None
            is_theirs = is_known and name not in OURS
            item = item if is_theirs else f"--{name}{equals}{value}"
            belongs_to = theirs if is_theirs else ours
        belongs_to.append(item)
    return ours, [*theirs, *rest]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="multi_train.py",
        description=__doc__,
        formatter_class=WrappedHelp,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--sequence", help="name of a shipped sequence, or path of a .yaml file, to run"
    )
    parser.add_argument(
        "--tune", metavar="FILE", help="search for good flags as this .yaml file says"
    )
    parser.add_argument("--resume", metavar="FOLDER", help="go on with what was begun in it")
    parser.add_argument("--report", metavar="FOLDER", help="only compare what is in this folder")
    parser.add_argument(
        "--at_once",
        type=int,
        metavar="N",
        help="number of runs at the same time (default: what the sequence says, or 1)",
    )
    parser.add_argument(
        "--results_dir", default="results", help="where folders are made (default: %(default)s)"
    )
    for name, text in (
        ("--dry_run", "only print the runs"),
        ("--list", "list the shipped sequences"),
        ("--trust_files", "with --resume: its runs may start from weights outside of the folder"),
    ):
        add_switch(parser, name, text)
    return parser


def _leave(number: int, frame: FrameType | None) -> None:
    leave_at_once("interrupted; --resume goes on with a sequence that was begun")


def run_as_program() -> NoReturn:
    """Do what the command line says, and leave with the exit status."""
    answer_by(_leave)
    let_through()
    leave(main())


if __name__ == "__main__":
    run_as_program()
