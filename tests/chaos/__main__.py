"""Injects faults into real trainings, as a seed has it, and judges what is left.

    python -m tests.chaos --minutes=60 --seed=1        two scenarios side by side for an hour
    python -m tests.chaos --faults=20 --only=worker    20 scenarios of faults named like that
    python -m tests.chaos --seed=1 --replay=17         scenario 17 of that seed again
    python -m tests.chaos --list --seed=1 --faults=50  what the schedule is

Exit status: 0 every promise was held, 1 one was broken, 2 wrong arguments, 130 interrupted (with
the table so far). Ctrl-C ends it and everything it has started. Linux only.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from rich.console import Console

from tests.chaos import kernel, report
from tests.chaos.catalogue import Fault, all_faults
from tests.chaos.machine import look_around
from tests.chaos.runner import BAD, Crew, Lane, Outcome
from tests.chaos.schedule import Scenario, is_wanted, scenario, schedule
from tests.chaos.templates import Templates
from tests.chaos.zygote import ROOT

LAST_SCENARIO_S = 30.0  # none is begun so shortly before the end


class Progress:
    """Prints a line for each scenario, and keeps what the table needs."""

    def __init__(self, console: Console, folder: Path, ends_s: float, wanted: int | None) -> None:
        """Nothing is done yet."""
        self.outcomes: list[Outcome] = []
        self._console = console
        self._folder = folder
        self._ends_s = ends_s
        self._wanted = wanted

    def add(self, outcome: Outcome) -> None:
        """Take one outcome."""
        self.outcomes.append(outcome)
        report.append(self._folder / "outcomes.jsonl", outcome)
        faults = sum(len(each.injected) for each in self.outcomes)
        bad = sum(each.verdict in BAD for each in self.outcomes)
        if self._wanted is None:
            left = max(0.0, self._ends_s - time.monotonic())
            when = f"{left / 60:5.1f} min left"
        else:
            when = f"{len(self.outcomes)}/{self._wanted}"
        ended = " ".join("-" if each is None else str(each) for each in outcome.statuses)
        self._console.print(
            f"{when} | {faults} faults, {bad} bad | {outcome.number:4} {outcome.fault}: "
            f"{outcome.verdict} in {outcome.seconds:.0f} s, exit {ended or 'none'}"
            + (f" | {outcome.note[:200]}" if outcome.note else ""),
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
        for violation in outcome.violations[:4]:
            text = f"      {' '.join(str(violation).split())[:240]}"
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return the exit status."""
    arguments = _parser().parse_args(argv)
    console = Console()
    faults = all_faults()
    if not any(is_wanted(name, arguments.only) for name in faults):
        names = ", ".join(sorted(faults))
        console.print(f"no fault is named like {arguments.only!r}; there are: {names}")
        return 2
    if arguments.list:
        for entry in itertools.islice(schedule(arguments.seed, faults, arguments.only),
                                      arguments.faults or 2 * len(faults)):  # fmt: skip
            console.print(str(entry), markup=False, highlight=False, soft_wrap=True)
        return 0
    if not sys.platform.startswith("linux"):
        console.print("this harness needs Linux: /proc, inotify, mounts")
        return 2
    return _run(arguments, console, faults)


def _run(arguments: argparse.Namespace, console: Console, faults: dict[str, Fault]) -> int:
    # A shell that starts a program in the background lets it ignore these, and what it starts too.
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    machine = look_around()  # before any thread
    kernel.become_subreaper()
    command = f"python -m tests.chaos {_text(arguments)}"
    folder = Path(arguments.results_dir).resolve()
    folder = folder / f"chaos_{datetime.now():%Y%m%d-%H%M%S}_seed{arguments.seed}_{os.getpid()}"
    work = folder / "scenarios"
    work.mkdir(parents=True)
    began_s = time.monotonic()
    ends_s = began_s + arguments.minutes * 60.0
    wanted = len(arguments.replay) or arguments.faults
    progress = Progress(console, folder, ends_s, wanted)
    cancelled = threading.Event()
    previous = {
        number: signal.signal(number, lambda *_: cancelled.set())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    templates = Templates(folder / "templates")
    lanes = [Lane(work, machine, templates, cancelled) for _ in range(arguments.lanes)]
    crew = Crew(lanes, cancelled, progress.add)
    scenarios = _chosen(arguments, faults, ends_s)
    try:
        crew.work(iter([(entry, faults[entry.fault]) for entry in scenarios])
                  if wanted else ((entry, faults[entry.fault]) for entry in scenarios))  # fmt: skip
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        text = report.markdown(
            progress.outcomes, command=command, minutes=(time.monotonic() - began_s) / 60.0
        )
        (folder / "report.md").write_text(text, encoding="utf-8")
        shutil.rmtree(folder / "templates", ignore_errors=True)
        console.print(text, markup=False, highlight=False, soft_wrap=True)
        console.print(f"{folder}/report.md, outcomes.jsonl; scenarios/ has those that failed")
    if any(outcome.verdict in BAD for outcome in progress.outcomes):
        return 1
    return 130 if cancelled.is_set() else 0


def _chosen(
    arguments: argparse.Namespace, faults: dict[str, Fault], ends_s: float
) -> Iterator[Scenario]:
    if arguments.replay:
        yield from (scenario(arguments.seed, number, faults) for number in arguments.replay)
        return
    entries = schedule(arguments.seed, faults, arguments.only)
    if arguments.faults:
        yield from itertools.islice(entries, arguments.faults)
        return
    while time.monotonic() < ends_s - LAST_SCENARIO_S:
        yield next(entries)


def _text(arguments: argparse.Namespace) -> str:
    """Return the arguments that matter, as they would be typed."""
    parts = [f"--seed={arguments.seed}"]
    if arguments.replay:
        parts.append(f"--replay={','.join(map(str, arguments.replay))}")
    elif arguments.faults:
        parts.append(f"--faults={arguments.faults}")
    else:
        parts.append(f"--minutes={arguments.minutes:g}")
    if arguments.only:
        parts.append(f"--only={arguments.only}")
    return " ".join(parts)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=__doc__,
        epilog="What is promised:\n" + report.promises(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="of the whole schedule (default: 1)")
    parser.add_argument("--faults", type=int, help="number of scenarios, instead of --minutes")
    parser.add_argument(
        "--only", default="", help="parts of the names of the faults to inject: worker,disk"
    )
    parser.add_argument(
        "--replay", type=_numbers, default=[], help="numbers of the schedule: 17,23"
    )
    parser.add_argument("--lanes", type=int, default=2, help="scenarios at once (default: 2)")
    parser.add_argument("--list", action="store_true", help="print the schedule and do nothing")
    parser.add_argument("--results_dir", default=str(ROOT / "results"), help="for the report")
    return parser


if __name__ == "__main__":
    sys.exit(main())
