"""Whether a long training leaks: memory, descriptors, threads and shared memory over hours.

    python benchmarks/bench_soak.py --minutes=120 --output=docs/results/soak

Trains Pong with all four kinds of replay, looks at the whole process tree every few seconds, and
writes samples.csv and soak.png. A figure leaks if it grows after the warm-up, in which buffers
fill: its growth is the slope of a line through the samples after it, times their time. Prints one
line of JSON. Ctrl-C ends it early, with what was measured; so does a training that fails, with
status 1. If it ended within the warm-up, all samples count, and warm_up_minutes is 0.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import psutil
from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.programs import leaving_by_exception, running  # noqa: E402
from ritornello.core.durations import duration  # noqa: E402
from ritornello.live.json_text import json_text  # noqa: E402
from ritornello.metrics.machine_share import descendants  # noqa: E402
from ritornello.metrics.run_files import read_records  # noqa: E402

REPLAY = [
    {"type": "queue", "capacity": 4, "sample_ratio": 0.25},
    {"type": "standard", "capacity": 1000, "sample_ratio": 0.25},
    {"type": "attentive", "capacity": 1000, "sample_ratio": 0.25, "score_stride": 4},
    {"type": "elite", "capacity": 1000, "sample_ratio": 0.25, "score_stride": 4},
]
STOP_S = 120.0  # for the training to save and leave


@dataclass(frozen=True)
class Sample:
    """The process tree of the training at one moment."""

    seconds: float
    agent_steps: int
    processes: int
    pss_mb: float  # proportional set size, summed: shared pages count once
    shared_mb: float  # of it, memory that is shared with names or descriptors (memfd)
    descriptors: int
    threads: int


def look_at(pid: int, seconds: float, agent_steps: int) -> Sample:
    """Measure a process and all that it has started; one that is just ending counts for nothing."""
    totals = dict.fromkeys(("processes", "pss", "shared", "descriptors", "threads"), 0.0)
    for each in [pid, *descendants(pid)]:
        try:
            process = psutil.Process(each)
            memory = rollup(each)
            seen = {
                "processes": 1,
                "pss": memory["Pss"] / 1e3,
                "shared": memory.get("Pss_Shmem", 0) / 1e3,
                "descriptors": process.num_fds(),
                "threads": process.num_threads(),
            }
        except (psutil.Error, OSError):
            continue
        for name, value in seen.items():
            totals[name] += value
    return Sample(
        round(seconds, 1), agent_steps, int(totals["processes"]), round(totals["pss"], 1),
        round(totals["shared"], 1), int(totals["descriptors"]), int(totals["threads"]),
    )  # fmt: skip


def rollup(pid: int) -> dict[str, int]:
    """Return /proc/<pid>/smaps_rollup: name -> kB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    pairs = (line.split()[:2] for line in lines)
    return {name.rstrip(":"): int(value) for name, value in pairs}


def growth(samples: Sequence[Sample], name: str) -> dict[str, float]:
    """Return first, last and grown of one figure, in its unit.

    `grown` is the slope of the least-squares line through the samples times the time between the
    first and the last of them: a single high sample at the end is no leak.
    """
    seconds = np.array([sample.seconds for sample in samples])
    values = np.array([getattr(sample, name) for sample in samples], float)
    slope = np.polyfit(seconds, values, 1)[0] if len(samples) > 2 else 0.0
    return {
        "first": float(values[0]),
        "last": float(values[-1]),
        "grown": round(float(slope * (seconds[-1] - seconds[0])), 2),
    }


def draw(samples: Sequence[Sample], warm_up_s: float, path: Path) -> None:
    """Draw memory, and below it the counts, over time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    minutes = [sample.seconds / 60 for sample in samples]
    above.plot(minutes, [s.pss_mb for s in samples], color="#0072B2", label="memory (PSS), all")
    above.plot(minutes, [s.shared_mb for s in samples], color="#D55E00", label="of it shared")
    above.set_ylabel("MB")
    for name, colour in (("descriptors", "#009E73"), ("threads", "#CC79A7")):
        below.plot(minutes, [getattr(s, name) for s in samples], color=colour, label=name)
    below.set_xlabel("minutes")
    for axes in (above, below):
        axes.axvline(warm_up_s / 60, color="#999999", linestyle=":", label="end of the warm-up")
        axes.set_ylim(bottom=0)
        axes.legend(loc="lower right", fontsize=8)
    figure.savefig(path, dpi=90)


class TrainingEnded(Exception):
    """The training is over before its time."""


def train_and_look(
    flags: Sequence[str],
    minutes: float,
    interval_s: float,
    console: Console,
    samples: list[Sample],
) -> None:
    """Train for so many minutes, and add what is seen meanwhile to `samples`.

    Raises:
      TrainingEnded: if it ends by itself.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "main.py"), f"--results_dir={folder}", *flags]
        with running(command, grace_s=STOP_S, stdout=subprocess.DEVNULL) as process:
            began = time.monotonic()
            while (passed := time.monotonic() - began) < 60 * minutes:
                time.sleep(interval_s)
                if process.poll() is not None:
                    raise TrainingEnded(f"the training ended with status {process.returncode}")
                runs = list(Path(folder).glob("*/metrics.jsonl"))
                records = read_records(runs[0].parent) if runs else []
                steps = records[-1].agent_steps if records else 0
                samples.append(look_at(process.pid, time.monotonic() - began, steps))
                if len(samples) % 30 == 1:
                    left = duration(max(0.0, 60 * minutes - passed))
                    console.print(f"{samples[-1]}; {left} to go", highlight=False)


def report(samples: Sequence[Sample], warm_up_minutes: float, output: Path | None) -> None:
    """Write and draw the samples, of which there is one at least, and print one line of JSON."""
    is_over = samples[-1].seconds >= 60 * warm_up_minutes
    warm_up_s = 60 * warm_up_minutes if is_over else 0.0
    after = [sample for sample in samples if sample.seconds >= warm_up_s]
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        with (output / "samples.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, [field.name for field in fields(Sample)])
            writer.writeheader()
            writer.writerows(asdict(sample) for sample in samples)
        draw(samples, warm_up_s, output / "soak.png")
    figures = ("pss_mb", "shared_mb", "descriptors", "threads", "processes")
    result = {
        "minutes": round(samples[-1].seconds / 60, 1),
        "warm_up_minutes": warm_up_s / 60,
        "agent_steps": samples[-1].agent_steps,
        **{name: growth(after, name) for name in figures},
    }
    print(json_text(result))


def main() -> None:
    """Train, look, draw, print one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--warm_up_minutes", type=float, default=10.0)
    parser.add_argument("--interval_s", type=float, default=10.0, help="between two samples")
    parser.add_argument("--output", type=Path, help="folder for samples.csv and soak.png")
    parser.add_argument("flags", nargs="*", help="for main.py, after --")
    options = parser.parse_args()
    if options.minutes <= options.warm_up_minutes:
        parser.error(
            f"--minutes={options.minutes:g} must be above "
            f"--warm_up_minutes={options.warm_up_minutes:g}"
        )
    flags = [
        "--environment_max_steps=1000000000",
        f"--replay_parameters={json.dumps(REPLAY, allow_nan=False)}",
        "--charts=False",
        *options.flags,
    ]
    console = Console(stderr=True)
    samples: list[Sample] = []
    ending: int | str = 0  # status or message
    try:
        with leaving_by_exception():
            train_and_look(flags, options.minutes, options.interval_s, console, samples)
    except TrainingEnded as error:
        ending = str(error)
    except KeyboardInterrupt:
        console.print("interrupted")
    except SystemExit as stop:  # SIGTERM, SIGHUP
        ending = int(stop.code or 0)
    if samples:
        report(samples, options.warm_up_minutes, options.output)
    else:
        ending = f"nothing was measured. {ending or ''}".strip()
    sys.exit(ending)


if __name__ == "__main__":
    main()
