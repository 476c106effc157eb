"""Plants single faults in a copy of the program and shows that the fast tests notice each.

    python -m tests.mutants                    all of them, one after another
    python -m tests.mutants --only=vtrace,lag  those whose name contains one of these
    python -m tests.mutants --list             what there is, without a run
    python -m tests.mutants --write            and put the verdicts into docs/mutants.md

Exit status: 0 all were noticed, 1 one survived, 2 wrong arguments or nothing could be found out,
130 interrupted, by Ctrl-C, SIGTERM or SIGHUP (with the table so far).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from ritornello.core.durations import duration
from ritornello.core.stop_signals import handled_by
from tests.mutants import table
from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import DoesNotApply, Mutant, named
from tests.mutants.runner import Broken, Runner


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return the exit status."""
    arguments = _parser().parse_args(argv)
    mutants = named(MUTANTS, arguments.only)
    if not mutants:
        print(f"no mutant is called anything like {arguments.only!r}; --list shows all")
        return 2
    if arguments.list:
        print("\n".join(f"{mutant.name:36} {mutant.fault}" for mutant in mutants))
        return 0
    rows: list[table.Row] = []
    try:
        with handled_by(_interrupt), Runner() as runner:
            if not arguments.unchecked:
                _check_tests(runner, mutants)
            _run_all(runner, mutants, rows)
    except KeyboardInterrupt:
        print(table.of(rows))
        print(f"interrupted after {len(rows)} of {len(mutants)} mutants")
        return 130
    except (Broken, DoesNotApply) as error:
        print(table.of(rows))
        print(error)
        return 2
    print(table.of(rows))
    survivors = [mutant.name for mutant, killed_by in rows if not killed_by]
    print(f"{len(rows) - len(survivors)} of {len(rows)} mutants were noticed")
    if arguments.write:
        table.write(rows, MUTANTS)
    if survivors:
        print(f"survived: {', '.join(survivors)}")
        return 1
    return 0


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _check_tests(runner: Runner, mutants: Sequence[Mutant]) -> None:
    tests = sorted({test for mutant in mutants for test in mutant.test_ids(runner.root)})
    # A file stands for its tests: pytest would run one that is named in both ways twice.
    tests = [test for test in tests if "::" not in test or test.split("::")[0] not in tests]
    print(f"{len(tests)} tests and files of tests on the sound program ...", flush=True)
    print(f"all pass, after {duration(runner.check(tests))}", flush=True)


def _run_all(runner: Runner, mutants: Sequence[Mutant], rows: list[table.Row]) -> None:
    began = time.monotonic()
    for number, mutant in enumerate(mutants, start=1):
        verdict = runner.run(mutant)
        rows.append((mutant, verdict.killed_by))
        left_s = (time.monotonic() - began) / number * (len(mutants) - number)
        print(
            f"{number:3}/{len(mutants)} {mutant.name}: "
            f"{'killed by ' + verdict.killed_by if verdict.killed_by else 'SURVIVED'} "
            f"({verdict.seconds:.0f} s; about {duration(left_s)} left)",
            flush=True,
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--only", default="", help="parts of names, separated by commas")
    parser.add_argument("--list", action="store_true", help="show the mutants and run nothing")
    parser.add_argument(
        "--write", action="store_true", help="put the verdicts into docs/mutants.md"
    )
    parser.add_argument(
        "--unchecked", action="store_true",
        help="do not first run the tests on the sound program: they have passed just now",
    )  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main())
