"""What evaluation costs the training beside it: pairs of runs, with it and without it in turn.

    python benchmarks/bench_evaluation.py --pairs=6 --seconds=90 -- --evaluate_every_steps=20000

Each pair trains the same seed for the same time, once with the flags after `--` and once without
them. The order alternates from pair to pair, so that a machine that gets slower or faster favours
neither. The cost is the ratio of the agent steps per second (with / without), measured from the
moment at which the first evaluation is over, so that starting the process, which happens once in a
run, counts separately (`started`: the ratio of the whole times). Prints a line of JSON for each
pair and a summary: the mean ratio with its standard error. Nothing else should run.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from metrics.record import Record  # noqa: E402
from metrics.run_files import read_records  # noqa: E402

STARTED_S = 10.0  # of a run, in which workers start and buffers fill
PATIENCE_S = 300.0  # beyond a run's own time
FLAGS = ("--log_interval_s=1", "--charts=False", "--tensorboard=False", "--basic_verbose=False")
EVALUATION = ("--evaluate_every_steps=20000",)


def train(flags: list[str], seconds: float, seed: int) -> list[Record]:
    """Return the records of a run of so many seconds."""
    with tempfile.TemporaryDirectory() as results:
        command = [
            sys.executable, "main.py", f"--results_dir={results}", f"--seed={seed}", *FLAGS,
            f"--training_seconds={seconds}", *flags,
        ]  # fmt: skip
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False,
            timeout=seconds + PATIENCE_S,
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"the run failed:\n{done.stdout}{done.stderr}")
        (folder,) = Path(results).iterdir()
        return read_records(folder)


def speed(records: list[Record], from_s: float) -> float:
    """Return the agent steps per second from a moment of the run on."""
    kept = [record for record in records if record.wall_s >= from_s]
    if len(kept) < 2:
        sys.exit(f"no two records after {from_s:.0f} s: give more --seconds")
    first, last = kept[0], kept[-1]
    return (last.agent_steps - first.agent_steps) / (last.wall_s - first.wall_s)


def first_evaluation_s(records: list[Record]) -> float:
    """Return when the first evaluation was over."""
    for record in records:
        if "evaluation/score" in record.values:
            return record.wall_s
    sys.exit("no evaluation came to its end: give more --seconds or fewer --evaluation_games")


def compare(pair: int, flags: list[str], evaluation: list[str], seconds: float) -> dict[str, float]:
    """Measure one pair of runs."""
    runs: dict[bool, list[Record]] = {}
    for is_on in (True, False) if pair % 2 else (False, True):
        runs[is_on] = train([*flags, *(evaluation if is_on else [])], seconds, 1 + pair)
    from_s = max(STARTED_S, first_evaluation_s(runs[True]))
    over = [record for record in runs[True] if "evaluation/score" in record.values]
    last = runs[True][-1].values
    return {
        "pair": pair,
        "without": round(speed(runs[False], from_s)),
        "with": round(speed(runs[True], from_s)),
        "ratio": round(speed(runs[True], from_s) / speed(runs[False], from_s), 4),
        "started": round(speed(runs[True], STARTED_S) / speed(runs[False], STARTED_S), 4),
        "evaluations": len(over),
        "left_out": last.get("evaluation/left_out", 0.0),
        "time_s": round(statistics.fmean(r.values["evaluation/time_s"] for r in over), 1),
    }


def main() -> None:
    """Measure pairs, and say what they come to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=90.0, help="of each training")
    parser.add_argument("--env", default="PongNoFrameskip-v4")
    parser.add_argument("evaluation", nargs="*", help="flags of evaluation, after --")
    options = parser.parse_args()
    evaluation = options.evaluation or list(EVALUATION)
    ratios = []
    for pair in range(options.pairs):
        found = compare(pair, [f"--env={options.env}"], evaluation, options.seconds)
        ratios.append(found["ratio"])
        print(json.dumps(found), flush=True)
    error = statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan
    print(json.dumps({"ratio": round(statistics.fmean(ratios), 4), "standard_error": error}))


if __name__ == "__main__":
    main()
