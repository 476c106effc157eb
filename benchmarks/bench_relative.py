"""How many times as fast a training is as one process that does the same work.

    python benchmarks/bench_relative.py

A training with a queue and the loop of benchmarks/one_process_loop.py take turns, so that a change
of the machine's speed hits both. Prints one line of JSON, and ends with status 1 only if the ratio
is below half of what was recorded (docs/performance.md): that far it does not fall by noise.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.bench_end_to_end import arguments_of, flag_values, real_run  # noqa: E402
from benchmarks.children import START_S, answers  # noqa: E402
from benchmarks.one_process_loop import loop_speed  # noqa: E402
from benchmarks.programs import leaving_by_exception  # noqa: E402
from ritornello.core.process_settings import environment_to_restart_with  # noqa: E402
from ritornello.live.json_text import json_text  # noqa: E402

RECORDED_RATIO = 1.3  # the lowest of three machines, Pong, two cores
ALLOWED_SHARE = 0.5


def ratio_is_good(ratio: float) -> bool:
    """Whether the ratio is at least half of the recorded one."""
    return ratio >= ALLOWED_SHARE * RECORDED_RATIO


def main() -> int:
    """Run both in turn; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--env", default="PongNoFrameskip-v4")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each run")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each; the median counts")
    options = parser.parse_args()
    more = argparse.Namespace(env=options.env, flags=["--device=cpu"])
    arguments = arguments_of(flag_values("queue", more))
    trainings, loops = [], []
    with leaving_by_exception():
        for _ in range(options.repeats):
            trainings.append(real_run(arguments, options.seconds).speed)
            loop = (options.env, options.seconds, 10)
            loops += answers(loop_speed, [loop], START_S + options.seconds)
    ratio = statistics.median(trainings) / statistics.median(loops)
    print(
        json_text(
            {
                "env": options.env,
                "training_sps": [round(speed, 1) for speed in trainings],
                "one_process_sps": [round(speed, 1) for speed in loops],
                "ratio": round(ratio, 3),
                "recorded_ratio": RECORDED_RATIO,
            }
        )
    )
    if ratio_is_good(ratio):
        return 0
    print(
        f"error: the training is {ratio:.2f} times as fast as one process; recorded is "
        f"{RECORDED_RATIO}, and less than {ALLOWED_SHARE:.0%} of it is not accepted.",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    environment = environment_to_restart_with()
    if environment is not None:
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    sys.exit(main())
