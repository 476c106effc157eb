"""What evaluation costs the training beside it: pairs of runs, with it and without it in turn.

    python benchmarks/bench_evaluation.py --pairs=6 --seconds=90 -- --evaluate_every_steps=5000
    python benchmarks/bench_evaluation.py --page --pairs=3 --seconds=150

Each pair trains the same seed for the same time, once with the flags after `--` and once without
them. With `--page` somebody watches the first of the two on the live page as well (page_reader.py);
this needs requirements-live.txt. The order alternates from pair to pair, so that a machine that
gets slower or faster favours neither. The cost is the ratio of the agent steps per second (with /
without) from `STARTED_S` on. `taken` is the share of the run's processor time that the evaluation
worker took, be it to start or to play: it runs at the lowest priority, so beside a training that
fills the machine it needs minutes for an evaluation, and none may end in the time. Prints a line of
JSON for each pair and a summary: the mean ratio with its standard error. Nothing else should run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.page_reader import PageReader, watched  # noqa: E402
from metrics.record import Record  # noqa: E402
from metrics.run_files import read_records  # noqa: E402

STARTED_S = 20.0  # of a run, in which workers start and buffers fill
PATIENCE_S = 300.0  # beyond a run's own time
FLAGS = ("--log_interval_s=1", "--charts=False", "--tensorboard=False", "--basic_verbose=False")
EVALUATION = ("--evaluate_every_steps=5000",)


def train(flags: list[str], seconds: float, seed: int, page: bool) -> list[Record]:
    """Return the records of a run of so many seconds, which somebody watches or nobody does."""
    with tempfile.TemporaryDirectory() as results, _page_of(results, page) as reader:
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
        if reader is not None and (reader.problem or not reader.updates):
            sys.exit(f"the page showed nothing: {reader.problem or 'no update came'}")
        (folder,) = Path(results).iterdir()
        return read_records(folder)


@contextlib.contextmanager
def _page_of(results: str, is_open: bool) -> Iterator[PageReader | None]:
    if not is_open:
        yield None
        return
    with watched(results) as reader:
        yield reader


def speed(records: list[Record]) -> float:
    """Return the agent steps per second of a run, without its beginning."""
    kept = [record for record in records if record.wall_s >= STARTED_S]
    if len(kept) < 2:
        sys.exit(f"no two records after {STARTED_S:.0f} s: give more --seconds")
    first, last = kept[0], kept[-1]
    return (last.agent_steps - first.agent_steps) / (last.wall_s - first.wall_s)


def _taken(records: list[Record]) -> float:
    """Return the share of all the run's processor time that evaluation took."""
    parts = [f"system/cores_{part}" for part in ("learner", "workers", "evaluation", "others")]
    used = {part: sum(r.values.get(part, 0.0) for r in records) for part in parts}
    return used["system/cores_evaluation"] / sum(used.values())


def compare(
    pair: int, flags: list[str], evaluation: list[str], seconds: float, page: bool
) -> dict[str, float]:
    """Measure one pair of runs."""
    runs: dict[bool, list[Record]] = {}
    for is_on in (True, False) if pair % 2 else (False, True):
        runs[is_on] = train(
            [*flags, *(evaluation if is_on else [])], seconds, 1 + pair, page and is_on
        )
    speeds = {is_on: speed(records) for is_on, records in runs.items()}
    over = [record for record in runs[True] if "evaluation/score" in record.values]
    last = runs[True][-1].values
    return {
        "pair": pair,
        "without": round(speeds[False]),
        "with": round(speeds[True]),
        "ratio": round(speeds[True] / speeds[False], 4),
        "taken": round(_taken(runs[True]), 4),
        "evaluations": len(over),
        "left_out": last.get("evaluation/left_out", 0.0),
    }


def main() -> None:
    """Measure pairs, and say what they come to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=90.0, help="of each training")
    parser.add_argument("--env", default="PongNoFrameskip-v4")
    parser.add_argument("--page", action="store_true", help="also watch the runs with evaluation")
    parser.add_argument("evaluation", nargs="*", help="flags of evaluation, after --")
    options = parser.parse_args()
    evaluation = options.evaluation or list(EVALUATION)
    ratios = []
    for pair in range(options.pairs):
        found = compare(pair, [f"--env={options.env}"], evaluation, options.seconds, options.page)
        ratios.append(found["ratio"])
        print(json.dumps(found), flush=True)
    error = statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan
    print(json.dumps({"ratio": round(statistics.fmean(ratios), 4), "standard_error": error}))


if __name__ == "__main__":
    main()
