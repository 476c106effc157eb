"""What training keeps of its speed beside other programs, by the niceness of its workers.

    python benchmarks/bench_neighbour.py --niceness=4,19 --busy=0,2 --rounds=2
    python benchmarks/bench_neighbour.py --niceness=4 --trainings=2

Trains Pong for a few seconds, again and again, with each niceness in turn, beside so many programs
that compute for ever at ordinary priority, or beside another training like it. Prints one line of
JSON for each training or pair of trainings. Nothing else should run.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.peers.measurement import last_error  # noqa: E402
from benchmarks.programs import leaving_by_exception, running  # noqa: E402
from ritornello.live.json_text import json_text  # noqa: E402
from ritornello.metrics.run_files import read_records  # noqa: E402

STARTED_S = 8.0  # of a run, in which workers start and buffers fill
PATIENCE_S = 120.0  # beyond a run's own time
LOG = "output.log"  # what a training prints, beside its run
FLAGS = ("--log_interval_s=2", "--charts=False", "--tensorboard=False", "--basic_verbose=False")
BUSY = """
from ritornello.core.process_death import end_with_starter
end_with_starter()
while True: pass
"""


def speed(folder: Path) -> float:
    """Return the agent steps per second of the only run in a folder, 0 if none can be said."""
    runs = [path.parent for path in folder.glob("*/metrics.jsonl")]
    records = [record for run in runs for record in read_records(run)]
    records = [record for record in records if record.wall_s >= STARTED_S]
    if len(records) < 2:
        return 0.0
    first, last = records[0], records[-1]
    return (last.agent_steps - first.agent_steps) / (last.wall_s - first.wall_s)


def measure(niceness: int, busy: int, trainings: int, seconds: float) -> list[float]:
    """Return the speed of each of so many trainings at once, beside so many busy programs.

    Raises:
      SystemExit: if a training fails.
    """
    with ExitStack() as stack:
        for _ in range(busy):
            stack.enter_context(running([sys.executable, "-c", BUSY]))
        folders = [
            Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(trainings)
        ]
        started = []
        for folder in folders:
            command = [
                sys.executable, str(ROOT / "main.py"), f"--results_dir={folder}", "--seed=1",
                *FLAGS, f"--training_seconds={seconds}", f"--worker_niceness={niceness}",
            ]  # fmt: skip
            output = stack.enter_context((folder / LOG).open("wb"))
            run = running(command, stdout=output, stderr=subprocess.STDOUT)
            started.append(stack.enter_context(run))
        for training, folder in zip(started, folders, strict=True):
            status = training.wait(seconds + PATIENCE_S)
            if status:
                sys.exit(f"a training ended with status {status}: {last_error(folder / LOG)}")
        return [round(speed(folder)) for folder in folders]


def main() -> None:
    """Measure every case in turn, round after round."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--niceness", default="4,19", help="of the workers")
    parser.add_argument("--busy", default="0", help="programs beside the training")
    parser.add_argument("--trainings", type=int, default=1, help="at once")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=26.0, help="of each training")
    options = parser.parse_args()
    if options.seconds <= STARTED_S:
        parser.error(f"--seconds must be above {STARTED_S:g}: speed counts from there on")
    cases = itertools.product(
        range(options.rounds),
        [int(text) for text in options.busy.split(",")],
        [int(text) for text in options.niceness.split(",")],
    )
    with leaving_by_exception():
        for number, busy, niceness in cases:
            speeds = measure(niceness, busy, options.trainings, options.seconds)
            case = {"round": number + 1, "busy": busy, "niceness": niceness}
            print(json_text({**case, "steps_per_s": speeds}), flush=True)


if __name__ == "__main__":
    main()
