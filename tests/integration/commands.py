"""Runs main.py as a user would, in a process of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.deadlines import HANGS_S, wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
QUIET = ("--tensorboard=False", "--charts=False", "--log_interval_s=0.5")
# Small enough that every run of the tests is over in seconds.
SMALL = (
    "--env=CartPole-v1", "--seed=3", "--worker_count=2", "--envs_per_worker=2", "--r_f_steps=5",
    "--batch_size=4", "--feature_out_layer_size=16", "--training_fill_in_factor=0.01",
    "--learner_thread_count=1",
)  # fmt: skip


def start(results, *flags, program=("main.py",), **streams):
    return subprocess.Popen(
        [sys.executable, *program, f"--results_dir={results}", *QUIET, *flags],
        cwd=ROOT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **streams},
    )


@contextlib.contextmanager
def started(results, *flags, **more):
    """A run that is killed in the end, whatever happens."""
    process = start(results, *flags, **more)
    try:
        yield process
    finally:
        process.kill()


def run(results, *flags, timeout=HANGS_S, program=("main.py",)):
    with started(results, *flags, program=program) as process:
        output, _ = process.communicate(timeout=timeout)
    return process.returncode, output


def hurt_by(plan):
    """Return the program that follows a plan of faults."""
    return ("-m", "tests.faulty", plan)


def only_run(results):
    (folder,) = [path for path in Path(results).iterdir() if path.is_dir()]
    return folder


def records(folder):
    lines = (folder / "metrics.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def wait_for_records(results, count):
    """Wait until a run has written this many records with updates; return its folder."""

    def folder():
        for metrics in Path(results).glob("*/metrics.jsonl"):
            lines = metrics.read_text("utf-8").splitlines(keepends=True)
            written = [json.loads(line) for line in lines if line.endswith("\n")]
            if sum(record["updates"] > 0 for record in written) >= count:
                return metrics.parent
        return None

    return wait_until(folder, f"the run did not write {count} records")


def descendants(pid):
    import psutil

    return psutil.Process(pid).children(recursive=True)


def interrupt(process, number=signal.SIGINT, limit_s=HANGS_S):
    """Send a signal; return the exit status and the output. Fails if it hangs."""
    children = descendants(process.pid)
    process.send_signal(number)
    output, _ = process.communicate(timeout=limit_s)
    wait_until(lambda: not any(child.is_running() for child in children), "left behind")
    return process.returncode, output


def comparable(folder):
    """All records but for what depends on the clock."""
    timed = ("throughput/", "system/", "workers/", "ring/", "cache/")
    result = []
    for record in records(folder):
        values = {
            name: value
            for name, value in record.pop("values").items()
            if not name.startswith(timed) and not name.endswith("_s")
        }
        record.pop("wall_s")
        result.append({**record, **values})
    return result
