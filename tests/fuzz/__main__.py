"""Fuzz every door of the program, or play one case again.

    python -m tests.fuzz                                    10,000 cases of seed 1
    python -m tests.fuzz --cases=500 --seed=7               as many, in the same proportions
    python -m tests.fuzz --target=plans --case=417          one case, with its traceback

Prints a table, and each finding with the command that shows it again. Exit status 1 with findings.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.harness import Outcome, limit_memory, run_cases
from tests.fuzz.targets import TARGETS

EXTRA_MEMORY_BYTES = 6_000_000_000


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cases", type=int, default=10_000, help="of all targets together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", choices=[target.name for target in TARGETS])
    parser.add_argument("--case", type=int, help="only this one of --target")
    options = parser.parse_args()
    if sys.platform.startswith("linux"):
        limit_memory(EXTRA_MEMORY_BYTES)
    outcomes: list[Outcome] = []
    print(f"{'target':18}{'valid':>9}{'refused':>9}{'finding':>9}", flush=True)
    with tempfile.TemporaryDirectory(prefix="fuzz_") as folder:
        for target in TARGETS:
            if options.target not in (None, target.name):
                continue
            count = max(1, target.share * options.cases // 10_000)
            cases = range(count) if options.case is None else range(options.case, options.case + 1)
            outcome = run_cases(target, options.seed, Path(folder), cases)
            print(outcome.row(), flush=True)
            outcomes.append(outcome)
    for finding in (finding for outcome in outcomes for finding in outcome.findings):
        print(f"\n{finding}")
    return int(any(outcome.findings for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
