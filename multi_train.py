"""Train a whole sequence of runs, one after the other or several at once, and compare them.

  python multi_train.py --list                          the sequences that come with the program
  python multi_train.py --sequence=smoke                run one of them (or a .yaml file of yours)
  python multi_train.py --sequence=smoke --dry_run      only print the runs it would do
  python multi_train.py --sequence=smoke --gamma=0.98   flags of main.py go to every run
  python multi_train.py --sequence=smoke --at_once=2    two runs at the same time
  python multi_train.py --tune=search.yaml              search for good flags (docs/tuning.md)
  python multi_train.py --resume=results/smoke_<time>   go on with what is not done
  python multi_train.py --resume=results/smoke_<time> --sequence=smoke
                                                        the same, with the groups and seeds that
                                                        the file has got since
  python multi_train.py --report=results/smoke_<time>   draw the tables and the figure again

Each run is a process of its own. If a run fails, that is recorded, and the sequence goes on with
the next run. Ctrl-C stops the sequence: what runs saves and ends, and --resume continues it. A
second Ctrl-C leaves without saving. The results are in results/<sequence>_<time>/. The exit status
is 0 if every run is done, 1 if some are not, 2 if the command cannot be honoured, and 130 if it was
interrupted, or one of its runs was, as at the end of a job of Slurm.

A flag in which the runs differ cannot be typed, because it would make them all alike. A sequence
from somebody else can choose what is trained, but not whose code is run, nor, as a folder that is
resumed, which weights outside of it are read. If you trust it, allow parts named module:name by
--trust_env_module=True, and weights from other folders by --trust_files=True.

docs/experiments.md and ritornello/sequences/plan.py say how to write a sequence.
"""

from __future__ import annotations

import signal

if __name__ == "__main__":
    # The first thing of all: until there is a handler, signals wait. They are let through below.
    signals = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)

from ritornello.core.this_python import check_python

if __name__ == "__main__":
    check_python()

import argparse
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from rich.markdown import Markdown
from rich.markup import escape

from ritornello.analysis.compare_sequence import (
    CSV_TABLE,
    FIGURE,
    GAMES_TABLE,
    SCORES_PAGE,
    TABLE,
    compare_sequence,
    summary,
    write_report,
)
from ritornello.command import command_line
from ritornello.core.command_line import (
    add_switch,
    counted,
    printable,
    show_what_can_be_shown,
    with_home,
)
from ritornello.core.errors import ConfigError, PlatformError
from ritornello.core.leaving import leave
from ritornello.core.plain_data import shown_text
from ritornello.core.project import PLAIN_SEQUENCE, sequence_command
from ritornello.core.standard_error import say
from ritornello.core.stop_signals import INTERRUPTED, answer_by, leave_at_once, let_through
from ritornello.flags.kinds import MAX_AGENTS, MAX_PATH_LENGTH
from ritornello.flags.names import named_values
from ritornello.sequences.checks import (
    check_not_overridden,
    check_runs,
    check_saved,
    check_typed,
    to_type_again,
    weights_outside,
)
from ritornello.sequences.folder import STATE_FILE, TUNING_FILE, RunState, SequenceFolder, is_tuning
from ritornello.sequences.plan import PlannedRun, load_plan, shipped_plans, source_of
from ritornello.sequences.runner import Interrupts, run_sequence
from ritornello.sequences.search import load_search
from ritornello.sequences.terminal import Progress, Terminal
from ritornello.sequences.tuner import BEST_FILE, TRIALS_PAGE, Tuner, create_folder

PROGRAM = PLAIN_SEQUENCE.removeprefix("python ")  # as messages name it


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return the exit status, see above."""
    ours, typed = _split(with_home(sys.argv[1:] if argv is None else argv))
    parser = _parser()
    arguments, unknown = parser.parse_known_args(ours)
    rest = [*unknown, *typed]  # for main.py; whatever that does not know is refused below
    told = ("list", "report", "resume", "sequence", "tune")
    wishes = [name for name in told if getattr(arguments, name) not in (None, False)]
    if not wishes and not rest:
        parser.print_help()
        return 2
    try:
        named_values(rest, vars(arguments))
        for name, value in vars(arguments).items():
            if value == "":
                raise ConfigError(f"--{name} needs a value (--help explains it).")
        if len(wishes) != 1 and wishes != ["resume", "sequence"]:
            raise ConfigError(
                "give one of --list, --sequence, --tune, --resume and --report, or --resume with "
                "the --sequence that has got more runs (--help explains them)."
            )
        return _do(Terminal(), arguments, rest)
    except PlatformError as error:
        say(f"{PROGRAM}: {printable(str(error))}")
        return 2 if isinstance(error, ConfigError) else 1
    except OSError as error:
        say(f"{PROGRAM}: {printable(_reason(error))}. What was done is kept.")
        return 1


def _do(terminal: Terminal, arguments: argparse.Namespace, rest: Sequence[str]) -> int:
    if arguments.list:
        for name in shipped_plans():
            terminal.print(f"[bold]{name}[/]  {escape(load_plan(name).about)}")
        return 0
    if arguments.report:
        _report(terminal, SequenceFolder.open(arguments.report))
        return 0
    is_search = bool(arguments.tune or (arguments.resume and is_tuning(arguments.resume)))
    if is_search and arguments.sequence:
        raise ConfigError(f"{shown_text(arguments.resume)} is a search, and takes no --sequence.")
    if is_search and arguments.at_once:
        raise ConfigError("the runs of a search are one after the other: leave --at_once out.")
    folder = _folder(terminal, arguments, rest, is_search)
    if folder is None:
        return 0
    folder.claim()
    with folder.lock as lock:
        if arguments.resume:  # again: until the claim, another process may have written it
            folder = _folder(terminal, arguments, rest, is_search)
            assert folder is not None, "it is no dry run"
            folder.lock = lock
        if not is_search:  # which saves once its trials can be compared
            folder.save()  # with the runs that it has got
        over = sum(run.status == "done" for run in folder.runs)
        is_left = is_search or over < len(folder.runs)
        given = folder.arguments if is_left else rest
        if arguments.resume and given:
            flags = shlex.join(f"--{name}={value}" for name, value in named_values(given).items())
            what = "is for the others" if is_left else "is not kept, for no run is left to do"
            told = f"done already: {counted(over, 'run')}; {shown_text(flags)} {what}"
            terminal.plainly(told)
        with terminal.in_background():
            try:
                return (_tune if is_search else _run)(terminal, folder)
            except OSError as error:
                done = f"{_reason(error)}. What was done is kept. {_how_to_go_on(folder)}"
                raise PlatformError(done) from error


def _reason(error: OSError) -> str:
    return f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")


def _folder(
    terminal: Terminal, arguments: argparse.Namespace, rest: Sequence[str], is_search: bool
) -> SequenceFolder | None:
    """Return the folder of the sequence or search to run, new or resumed; None if there is none."""
    typed = check_typed(rest)
    folder = _opened(arguments, rest) if arguments.resume else None
    results = Path(arguments.results_dir)
    if is_search:
        file = folder.path / TUNING_FILE if folder else Path(arguments.tune)
        search, where = load_search(file), shown_text(str(file))
        check_runs(search.extremes(), typed, where)
        if folder is not None:
            trust = arguments.trust_files
            check_saved(folder.path, search.extremes(), [], where, trust_files=trust)
        if not arguments.dry_run:
            return folder or create_folder(results, search, list(rest))
        _print_runs(terminal, search.extremes(), rest if folder is None else folder.arguments)
        return None
    plan = load_plan(arguments.sequence) if arguments.sequence else None
    if plan is not None:
        where = shown_text(arguments.sequence)
        check_runs(plan.runs, typed, where)
        if folder is not None:
            folder.grow(plan, where)
            check_not_overridden(folder.runs, named_values(folder.arguments), where)
    if arguments.dry_run:
        waiting: Iterable[PlannedRun | RunState] = plan.runs if plan else ()
        if folder is not None:
            waiting = [run for run in folder.runs if run.status != "done"]
            if not waiting:
                terminal.plainly(f"{_path_of(folder)}: no run is left to do")
        _print_runs(terminal, waiting, rest if folder is None else folder.arguments)
        return None
    if folder is None:
        assert plan is not None
        plan = replace(plan, at_once=arguments.at_once or plan.at_once)
        folder = SequenceFolder.create(results, plan, rest)
    elif all(run.status == "done" for run in folder.runs):
        del folder.arguments[len(folder.arguments) - len(rest) :]  # no run would be started with it
    return folder


def _opened(arguments: argparse.Namespace, rest: Sequence[str]) -> SequenceFolder:
    """Return the folder of a sequence or search that was begun, checked as a stranger's."""
    folder = SequenceFolder.open(arguments.resume)
    where = shown_text(str(folder.path / STATE_FILE))
    trust = arguments.trust_files
    check_saved(folder.path, folder.runs, folder.arguments, where, trust_files=trust)
    check_not_overridden(folder.runs, named_values(rest), where)
    folder.arguments += rest
    folder.at_once = arguments.at_once or folder.at_once
    return folder


def _tune(terminal: Terminal, folder: SequenceFolder) -> int:
    """Work on a search; return 0 if it is done, 1 if no trial ended, 130 if interrupted."""
    path = _path_of(folder)
    with Interrupts().installed() as interrupts:
        search = load_search(folder.path / TUNING_FILE)
        terminal.plainly(f"{path}: {counted(search.trials, 'trial')}")
        done = Tuner(folder, search, interrupts, terminal.plainly).work()
    if not done:
        how = "ended without saving" if interrupts.at_once else "saved"
        terminal.plainly(f"{how}. {_how_to_go_on(folder)}")
        return INTERRUPTED
    if not (folder.path / BEST_FILE).exists():
        terminal.plainly(f"done: {path}/{TRIALS_PAGE}; no trial came to its end")
        return 1
    terminal.plainly(f"done: {path}/{TRIALS_PAGE}; the best flags: {path}/{BEST_FILE}")
    return 0


def _run(terminal: Terminal, folder: SequenceFolder) -> int:
    waiting = sum(run.status != "done" for run in folder.runs)
    path = _path_of(folder)
    terminal.plainly(f"{path}: {waiting} of {len(folder.runs)} runs to do")
    with Interrupts().installed() as interrupts:
        run_sequence(folder, interrupts, Progress(terminal, folder))
    terminal.end_live()
    _report(terminal, folder)
    unfinished = [run for run in folder.runs if run.status != "done"]
    for run in (run for run in unfinished if run.status != "waiting"):
        terminal.plainly(f"{run.status}: {run.name} (see {path}/{run.name}/output.log)")
    if unfinished:
        terminal.plainly(_how_to_go_on(folder))
    is_stopped = interrupts.stop or any(run.status == "stopped" for run in unfinished)
    return (INTERRUPTED if is_stopped else 1) if unfinished else 0


def _path_of(folder: SequenceFolder) -> str:
    """Return the path of a folder as it is shown and typed: whole, however long it is."""
    return shown_text(str(folder.path), MAX_PATH_LENGTH)


def _how_to_go_on(folder: SequenceFolder) -> str:
    runs: list[Any] = [*folder.runs]
    if is_tuning(folder.path):
        runs += load_search(folder.path / TUNING_FILE).extremes()
    outside = weights_outside(folder.path, runs, folder.arguments)
    trust = ["--trust_files=True"] if outside else []
    given = [f"--resume={_path_of(folder)}", *trust, *to_type_again(folder.arguments)]
    return f"To go on: {sequence_command()} {shlex.join(given)}"


def _report(terminal: Terminal, folder: SequenceFolder) -> None:
    """Compare what is there: on the terminal, and as files."""
    compared = compare_sequence(folder)
    terminal.print(Markdown(summary(compared), hyperlinks=False))
    write_report(folder, compared)
    path = _path_of(folder)
    if (folder.path / FIGURE).exists():
        terminal.plainly(f"Tables and figure: {path}/{TABLE}, {CSV_TABLE}, {FIGURE}")
    else:
        terminal.plainly(f"Tables: {path}/{TABLE}, {CSV_TABLE}; no run has a curve to draw yet")
    if (folder.path / SCORES_PAGE).exists():
        terminal.plainly(f"Tests of every game: {path}/{SCORES_PAGE}, {GAMES_TABLE}")


def _print_runs(
    terminal: Terminal, runs: Iterable[PlannedRun | RunState], arguments: Sequence[str]
) -> None:
    for number, run in enumerate(runs, start=1):
        given = dict(run.flags)
        if source_of(run.flags) is not None:
            given["load_model_url"] = f"<run folder of {source_of(run.flags)}>"
        line = shlex.join([*command_line(given), *arguments])
        terminal.plainly(f"{number:3}  {shown_text(run.group)}, seed {run.seed}")
        terminal.plainly(f"     {shown_text(line, 3000)}")


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Split at `--`, which everything for main.py may follow; dashes in names mean underscores."""
    place = argv.index("--") if "--" in argv else len(argv)
    ours = []
    for item in argv[:place]:
        name, equals, value = item.partition("=")
        is_name = name.startswith("--")
        ours.append(f"--{name[2:].replace('-', '_')}{equals}{value}" if is_name else item)
    return ours, argv[place + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=sequence_command(),
        description=(__doc__ or "").replace("python multi_train.py", sequence_command()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--sequence", help="name of a shipped sequence, or path of a .yaml file, to run")
    add("--tune", metavar="FILE", help="search for good flags as this .yaml file says")
    add("--resume", metavar="FOLDER", help="go on with what was begun in it")
    add("--report", metavar="FOLDER", help="only compare what is in this folder")
    about = "number of runs at the same time (default: what the sequence says, or 1)"
    add("--at_once", type=int, choices=range(1, MAX_AGENTS + 1), metavar="N", help=about)
    about = "where folders are made (default: %(default)s)"
    add("--results_dir", default="results", help=about)
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
    """Do what the command line says, and exit with the status."""
    answer_by(_leave)
    let_through()
    show_what_can_be_shown()
    leave(main())


if __name__ == "__main__":
    run_as_program()
