"""Plays whole trainings in one thread, in which a seed decides who acts next and what fails.

    python -m tests.simulated --seeds=1000 --first=1    seeds 1 to 1000
    python -m tests.simulated --first=17 --trace        seed 17 alone, move by move
    python -m tests.simulated --plan='{"seed": 17, ...' a plan, as a broken seed prints it; change
                                                        a number in it to see what matters

Exit status: 0 every promise was held, 1 one was broken, 2 wrong arguments. Seeds that broke a
promise are added to tests/simulated/seeds.txt, which the fast tests always play.
"""

import argparse
import gc
import sys
import time

from tests.simulated.plan import SEEDS_FILE, Plan
from tests.simulated.run import simulate

PROGRESS_S = 5.0


def main(argv=None):
    """Run the program; return the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        plans = _plans(arguments)
    except (ValueError, TypeError) as error:
        print(f"--plan cannot be read: {error}; expected a line that a broken seed has printed")
        return 2
    gc.freeze()  # what is there now stays, and need not be looked at after each played death
    began_s, said_s, broken, updates = time.monotonic(), 0.0, 0, 0
    for count, plan in enumerate(plans, 1):
        result = simulate(plan, trace=arguments.trace)
        updates += result.updates
        if arguments.trace:
            print("\n".join(result.trace))
        if result.broken:
            broken += 1
            _report(result, remember=arguments.plan is None)
        passed_s = time.monotonic() - began_s
        if passed_s - said_s >= PROGRESS_S or count == len(plans):
            said_s = passed_s
            print(f"{count}/{len(plans)} seeds, {updates:,} updates, {broken} broken", flush=True)
    return 1 if broken else 0


def _plans(arguments):
    if arguments.plan is not None:
        return [Plan.from_json(arguments.plan)]
    return [Plan.draw(seed) for seed in range(arguments.first, arguments.first + arguments.seeds)]


def _report(result, remember):
    for line in result.broken:
        print(f"seed {result.plan.seed}: {line}")
    print(
        f"  again: python -m tests.simulated --trace --plan='{result.plan.to_json()}'", flush=True
    )
    if remember:
        known = SEEDS_FILE.read_text(encoding="utf-8") if SEEDS_FILE.exists() else ""
        if f"\n{result.plan.seed} " not in f"\n{known}":
            text = " ".join(result.broken[0].split())[:100]
            SEEDS_FILE.write_text(f"{known}{result.plan.seed} # {text}\n", encoding="utf-8")


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulated",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--seeds", type=int, default=1, help="how many (default: 1)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (default: 1)")
    parser.add_argument("--plan", help="one plan, instead of seeds")
    parser.add_argument("--trace", action="store_true", help="print every move")
    return parser


if __name__ == "__main__":
    sys.exit(main())
