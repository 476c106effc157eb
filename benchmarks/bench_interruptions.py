"""Whether a run that is killed and resumed learns as well as one that is left alone.

    python benchmarks/bench_interruptions.py --env=CartPole-v1 --steps=300000
    python benchmarks/bench_interruptions.py --env=PongNoFrameskip-v4 --steps=2500000 --kills=2

Trains, in the fast mode, `--runs` runs without interruption and as many with the same seeds that
are killed by SIGKILL `--kills` times, at equal distances, and resumed each time from their newest
checkpoint. At each of these checkpoints, and at the same steps of the uninterrupted run of the same
seed, it compares the games of the window before with those of the window after. There is a dent if
the change is worse, by more than chance would have it, where a run was interrupted; null says that
too few windows had games to tell.

A resumed run begins new games, and of these the short ones end first. So the window after begins
only `--settle` steps after the checkpoint, in all runs alike.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.programs import leaving_by_exception, running  # noqa: E402
from ritornello.core.run_layout import FLAGS, LOG, RECORDS  # noqa: E402
from ritornello.live.json_text import json_text  # noqa: E402
from ritornello.metrics.run_files import read_games  # noqa: E402

POLL_S = 0.2
SILENCE_S = 600.0  # a run that writes no record for so long hangs
ENOUGH_ERRORS = 2.0  # standard errors that a difference must exceed to count as one


def parse() -> argparse.Namespace:
    """Read the options of the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--steps", type=int, default=300_000, help="agent steps of a run")
    parser.add_argument("--runs", type=int, default=3, help="of each kind")
    parser.add_argument("--kills", type=int, default=3, help="of each interrupted run")
    parser.add_argument("--window", type=int, default=0, help="agent steps; 0: a twentieth")
    parser.add_argument("--settle", type=int, default=0, help="agent steps; 0: half a window")
    parser.add_argument("--results", default="", help="folder to keep the runs in")
    parser.add_argument(
        "flags", nargs="*", help="more flags of main.py, after --, e.g. -- --save_replay=True"
    )
    options = parser.parse_args()
    options.window = options.window or options.steps // 20
    options.settle = options.settle or options.window // 2
    return options


@contextlib.contextmanager
def training(results: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run main.py until the end of the block, then kill it; it prints to a file beside its runs."""
    results.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(ROOT / "main.py"), *flags]
    with (
        (results / "output.log").open("ab") as output,
        running(
            command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        ) as process,
    ):
        yield process


def run_folder(results: Path) -> Path | None:
    """Return the run folder in `results`, once there is one."""
    return next((path.parent for path in results.glob(f"*/{FLAGS}")), None)


def steps_done(results: Path) -> int:
    """Return the agent steps of the last whole record."""
    folder = run_folder(results)
    if folder is None or not (folder / RECORDS).exists():
        return 0
    lines = (folder / RECORDS).read_bytes().splitlines(keepends=True)
    whole = [line for line in lines[-2:] if line.endswith(b"\n")]
    return int(json.loads(whole[-1])["agent_steps"]) if whole else 0


def wait_for(process: subprocess.Popen[bytes], results: Path, steps: int) -> bool:
    """Wait until a run has done so many agent steps; False if it ended before.

    Raises:
      TimeoutError: if it goes on without doing anything.
    """
    last, moved_at = -1, time.monotonic()
    while process.poll() is None:
        done = steps_done(results)
        if done >= steps:
            return True
        if done != last:
            last, moved_at = done, time.monotonic()
        elif time.monotonic() - moved_at > SILENCE_S:
            raise TimeoutError(f"{results} stands still at {done} agent steps")
        time.sleep(POLL_S)
    return False


def train(results: Path, seed: int, options: argparse.Namespace, kills: list[int]) -> Path:
    """Train a run, killed when it has done so many steps each time; return its folder.

    Raises:
      RuntimeError: if a session fails, or somebody else kills it.
    """
    flags = [
        f"--results_dir={results}", f"--environment_max_steps={options.steps}",
        "--tensorboard=False", "--charts=False", "--log_interval_s=1", *options.flags,
    ]  # fmt: skip
    mode = [f"--env={options.env}", f"--seed={seed}"]
    for limit in [*kills, options.steps * 10]:
        with training(results, *mode, *flags) as process:
            goes_on = wait_for(process, results, limit)
        status = process.returncode
        if status != 0 and not (goes_on and status == -signal.SIGKILL):
            said = (results / "output.log").read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"a session ended with status {status}: {said[-500:]}")
        if not goes_on:
            break
        mode = ["--op_mode=train_w_load", f"--load_model_url={run_folder(results)}"]
    folder = run_folder(results)
    assert folder is not None
    return folder


def resumed_at(folder: Path) -> list[int]:
    """Return the agent steps that each later session of a run began with, from its log."""
    lines = (folder / LOG).read_text("utf-8", "replace").splitlines()
    begun = [line for line in lines if " resuming " in line and line.endswith(" agent steps")]
    return [int(line.split()[-3].replace(",", "")) for line in begun]


def change_at(folder: Path, steps: int, options: argparse.Namespace) -> float | None:
    """Return by how much the mean return rose from before `steps` to after; None without games."""
    begin = steps + options.settle
    before = mean_return(folder, steps - options.window, steps)
    after = mean_return(folder, begin, begin + options.window)
    return None if before is None or after is None else after - before


def mean_return(folder: Path, after: float, until: float) -> float | None:
    """Return the mean return of the games that ended between two agent steps; None without any."""
    played = read_games(folder)
    is_in = (after < played.agent_steps) & (played.agent_steps <= until)
    return float(played.returns[is_in].mean()) if is_in.any() else None


def mean_and_error(values: list[float]) -> tuple[float, float]:
    """Return the mean and its standard error, which is NaN of a single value."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else math.nan
    return statistics.fmean(values), error


def compare(
    alone: list[Path], interrupted: list[Path], options: argparse.Namespace
) -> dict[str, Any]:
    """Return the result, as plain types.

    Args:
      alone: folders of the uninterrupted runs.
      interrupted: those of the others, with the same seeds in the same order.
      options: of the benchmark.

    Raises:
      RuntimeError: if no game ended in the windows.
    """
    marks = [resumed_at(folder) for folder in interrupted]
    hurt, control = (
        [
            change
            for folder, steps in zip(folders, marks, strict=True)
            for step in steps
            if (change := change_at(folder, step, options)) is not None
        ]
        for folders in (interrupted, alone)
    )
    if not hurt or not control:
        raise RuntimeError("no game ended in the windows: give a larger --window or more --steps")
    (change, error), (other, other_error) = mean_and_error(hurt), mean_and_error(control)
    both = (error**2 + other_error**2) ** 0.5
    is_known = not math.isnan(both)
    begin = options.steps - options.window
    final = {
        name: [mean_return(folder, begin, math.inf) for folder in folders]
        for name, folders in (("alone", alone), ("interrupted", interrupted))
    }
    return {
        "env": options.env,
        "steps": options.steps,
        "kills": sum(map(len, marks)),
        "resumed_at": marks,
        "change_where_interrupted": [round(change, 3), round(error, 3)],
        "change_where_not": [round(other, 3), round(other_error, 3)],
        "difference_in_errors": round((change - other) / both, 2) if both else 0.0,
        "dent": change - other < -ENOUGH_ERRORS * both if is_known else None,
        "final_mean_returns": {
            name: [None if mean is None else round(mean, 2) for mean in means]
            for name, means in final.items()
        },
    }


def main() -> None:
    """Run the benchmark; the last line is JSON."""
    options = parse()
    kills = [options.steps * (i + 1) // (options.kills + 1) for i in range(options.kills)]
    with leaving_by_exception(), tempfile.TemporaryDirectory() as temporary:
        root = Path(options.results or temporary).resolve()
        alone, interrupted = [], []
        for seed in range(1, options.runs + 1):  # in turn, so that both kinds see the same machine
            alone.append(train(root / f"alone_{seed}", seed, options, []))
            interrupted.append(train(root / f"interrupted_{seed}", seed, options, kills))
        print(json_text(compare(alone, interrupted, options)))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
