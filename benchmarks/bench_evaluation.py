"""What evaluation, and an open live page, cost the training beside them.

    python benchmarks/bench_evaluation.py --pairs=12 -- --evaluate_every_steps=5000
    python benchmarks/bench_evaluation.py --page --pairs=12

One run trains throughout, with the flags after `--`. In windows of `--window` seconds the process
that evaluates is frozen (SIGSTOP) and let go on in turn; with `--page`, so is the server of the
live page, which somebody watches (page_reader.py; this needs extra live). Frozen
processes take no processor time. So each pair of neighbouring windows compares the same agent in
the same process, where two runs of the same flags already differ by several percent. The order
alternates from pair to pair. The cost is the ratio of the agent steps per second (with / without).
`taken` is the share of all cores that evaluation took in the windows in which it could. What it
takes to start lies before the windows. Prints a line of JSON for each pair and a summary: the mean
ratio with its standard error. Nothing else should run.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.page_reader import PageReader, watched  # noqa: E402
from benchmarks.programs import leaving_by_exception, running  # noqa: E402
from ritornello.agent.machine import LOWEST_NICENESS  # noqa: E402
from ritornello.live.json_text import json_text  # noqa: E402
from ritornello.metrics.record import Record  # noqa: E402
from ritornello.metrics.run_files import last_record  # noqa: E402

START_S = 180.0  # until the process that evaluates has been started
WARM_UP_S = 40.0  # after that: it loads PyTorch at the lowest priority
SETTLE_S = 1.0  # after freezing or letting go on
RECORD_S = 30.0  # until the next record, which is due after a second
END_S = 120.0
LOOK_S = 0.02
# What is frozen here gives no sign of life, and is not to be replaced: no time is too long.
FLAGS = (
    "--log_interval_s=1",
    "--charts=False",
    "--tensorboard=False",
    "--basic_verbose=False",
    "--worker_timeout=0",
)
EVALUATION = ("--evaluate_every_steps=5000",)


class Window(NamedTuple):
    """What happened between two records."""

    steps_per_s: float
    evaluation_cores: float  # how many cores evaluation kept busy


@contextlib.contextmanager
def training(flags: Sequence[str], results: str) -> Iterator[subprocess.Popen[bytes]]:
    """Train within the block."""
    command = [sys.executable, "main.py", f"--results_dir={results}", *FLAGS, *flags]
    with running(
        command, grace_s=END_S, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    ) as run:
        yield run


def evaluator_of(run: subprocess.Popen[bytes]) -> psutil.Process:
    """Return the process that evaluates as soon as there is one."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and run.poll() is None:
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(run.pid).children(recursive=True):
                if child.nice() == LOWEST_NICENESS:
                    return child
        time.sleep(1.0)
    sys.exit(f"the run ended, or nothing evaluated within {START_S:.0f} s")


def next_record(folder: Path, after: int) -> Record:
    """Return the first record that says more than `after` updates, as soon as it is written."""
    deadline = time.monotonic() + RECORD_S
    while time.monotonic() < deadline:
        record = last_record(folder)
        if record is not None and record.updates > after:
            return record
        time.sleep(LOOK_S)
    sys.exit(f"the run wrote no record within {RECORD_S:.0f} s")


def watch(folder: Path, seconds: float) -> Window:
    """Measure from the next record on, for at least so many seconds."""
    newest = last_record(folder)
    first = last = next_record(folder, newest.updates if newest else -1)
    cores = []
    while last.wall_s - first.wall_s < seconds:
        last = next_record(folder, last.updates)
        cores.append(last.values.get("system/cores_evaluation", 0.0))
    steps_per_s = (last.agent_steps - first.agent_steps) / (last.wall_s - first.wall_s)
    return Window(steps_per_s, statistics.fmean(cores))


def compare(
    folder: Path, beside: Sequence[psutil.Process], is_first: bool, seconds: float
) -> tuple[Window, Window]:
    """Measure two windows: with the processes `beside`, which may run first, and without them."""
    found = {}
    for is_on in (is_first, not is_first):
        for process in beside:
            process.send_signal(signal.SIGCONT if is_on else signal.SIGSTOP)
        time.sleep(SETTLE_S)
        found[is_on] = watch(folder, seconds)
    return found[True], found[False]


def main() -> None:
    """Measure pairs of windows, and say what they come to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--window", type=float, default=20.0, help="seconds of each")
    parser.add_argument("--env", default="PongNoFrameskip-v4")
    parser.add_argument("--page", action="store_true", help="somebody watches the run meanwhile")
    parser.add_argument("evaluation", nargs="*", help="flags of evaluation, after --")
    options = parser.parse_args()
    flags = [f"--env={options.env}", *(options.evaluation or EVALUATION)]
    ratios = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(leaving_by_exception())
        results = stack.enter_context(tempfile.TemporaryDirectory())
        run = stack.enter_context(training(flags, results))
        beside = [evaluator_of(run)]
        reader: PageReader | None = None
        if options.page:
            reader = stack.enter_context(watched(results))
            beside.append(psutil.Process(reader.server_pid))
        time.sleep(WARM_UP_S)
        (folder,) = Path(results).iterdir()
        # Whatever is frozen is let go on before its owner is asked to end it.
        for process in beside:
            stack.callback(process.send_signal, signal.SIGCONT)
        for pair in range(options.pairs):
            on, off = compare(folder, beside, bool(pair % 2), options.window)
            ratios.append(on.steps_per_s / off.steps_per_s)
            line = {
                "pair": pair,
                "without": round(off.steps_per_s),
                "with": round(on.steps_per_s),
                "ratio": round(ratios[-1], 4),
                "taken": round(on.evaluation_cores / (psutil.cpu_count() or 1), 4),
            }
            print(json_text(line), flush=True)
        if reader is not None and (reader.problem or not reader.updates):
            sys.exit(f"the page showed nothing: {reader.problem or 'no update came'}")
    error = statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan
    summary = {"ratio": round(statistics.fmean(ratios), 4), "standard_error": round(error, 4)}
    print(json_text({**summary, "page": options.page, "flags": flags}))


if __name__ == "__main__":
    main()
