"""What the learner's process costs besides learning itself, on a machine without a GPU.

    python benchmarks/bench_host.py --seconds=10

Everything of the process is real: the intake of unrolls, replay, batches, the loop, the weights
that are published, the records. Played are the workers, which offer recorded unrolls as fast as
they are taken, and the device: what a GPU would have recorded is not computed, but takes
`--step_ms` in which Python's lock is free. Prints updates per second, and the milliseconds of
processor time of each thread per update; the last line is JSON.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import psutil
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.parts import synthetic_records  # noqa: E402
from benchmarks.programs import leaving_by_exception  # noqa: E402
from ritornello.agent.assembly import Blueprint  # noqa: E402
from ritornello.agent.learning.feed import Feed, PackedBatch  # noqa: E402
from ritornello.agent.learning.learner import Learner  # noqa: E402
from ritornello.agent.models.pixels import OBSERVED_BATCHES  # noqa: E402
from ritornello.agent.pools.worker_pool import UnrollBlock  # noqa: E402
from ritornello.agent.run.run import Run  # noqa: E402
from ritornello.agent.run.threaded import Threaded  # noqa: E402
from ritornello.agent.run.trainer import PUBLISH_EACH_S, Trainer  # noqa: E402
from ritornello.agent.run.training import GPU_SWITCH_INTERVAL_S  # noqa: E402
from ritornello.agent.stored.run_folder import RunFolder, cpu_name  # noqa: E402
from ritornello.core.plain_data import json_text  # noqa: E402
from ritornello.core.process_settings import restart_with_settings  # noqa: E402
from ritornello.core.stop_signals import Answer, StopSignals  # noqa: E402
from ritornello.flags.options import Flags  # noqa: E402
from ritornello.metrics.sinks import JsonLinesSink  # noqa: E402
from ritornello.replay.item import Draw  # noqa: E402
from ritornello.transport.channel import WorkerStats  # noqa: E402

SETTLED_S = 2.0  # after the first update: the device has been "recorded" by then
BLOCKS = 4  # different ones of each worker


class PlayedPool:
    """Workers that offer the same blocks of unrolls again and again. A `WorkerPool`."""

    restarts = 0

    def __init__(self, blueprint: Blueprint, workers: int, environments: int) -> None:
        """Make the unrolls of all workers."""
        records = synthetic_records(blueprint, BLOCKS * environments)
        stacked = torch.stack([torch.from_numpy(record) for record in records]).numpy()
        blocks = stacked.reshape(BLOCKS, environments, -1)
        steps = blueprint.schema.unroll_length * environments
        self._blocks = [
            UnrollBlock(worker, blocks[turn], (), WorkerStats(steps), lambda: None)
            for turn, worker in product(range(BLOCKS), range(workers))
        ]
        self._next = 0

    def poll(self, timeout_s: float) -> list[UnrollBlock]:
        """Return the block of the next worker."""
        self._next += 1
        return [self._blocks[self._next % len(self._blocks)]]

    def start(self) -> None:
        """Start nothing."""

    def alive(self) -> int:
        """Return 0: there are no processes."""
        return 0

    def stats(self) -> dict[str, float]:
        """Return nothing."""
        return {}

    def describe(self) -> list[str]:
        """Return nothing."""
        return []

    def stop(self, grace_s: float) -> None:
        """Stop nothing."""


def as_recorded(learner: Learner, step_ms: float) -> None:
    """Let a learner take each update as a GPU's recording of it that takes so long."""
    for statistics in learner.model.unsettled().values():
        statistics.batches.fill_(OBSERVED_BATCHES)  # type: ignore[operator]
        statistics._count = None
    learner.record_with(played(step_ms))
    for group in learner.optimiser.param_groups:
        group["lr"] = torch.tensor(group["lr"])  # as on a GPU, so that a step is recorded


def played(step_ms: float) -> Callable[[Callable[[], Any]], tuple[Callable[[], None], Any]]:
    """Return what "records" work for a device that then takes so long for each gradient."""

    def record(work: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        result = work()
        took_s = step_ms / 1e3 if result is not None else 0.0  # the optimiser's step has no result
        return lambda: time.sleep(took_s), result

    return record


class OnDevice(torch.Tensor):
    """Bytes of a batch there, which a GPU copies to where its recording reads them."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # what is computed is plain

    def clone(self, **_: Any) -> OnDevice:
        """Return itself."""
        return self

    def copy_(self, *_: Any, **__: Any) -> OnDevice:
        """Copy nothing: it takes no processor."""
        return self


class PlayedFeed(Feed):
    """Hands batches over as bytes, as to a GPU, in the same memory each time.

    `Feed` waits until a GPU has its bytes, and PyTorch then gives the pinned memory to the next
    batch. Here that changes the batch before it, which only the recording has read.
    """

    def __init__(self, blueprint: Blueprint, batch: int) -> None:
        """Take the memory for batches of `batch` unrolls."""
        super().__init__(blueprint.schema, blueprint.choices.device)
        self._packed = torch.empty((batch, self.layout.nbytes), dtype=torch.uint8)

    def compose(self, draws: Sequence[Draw], update: int) -> PackedBatch:
        """Return a batch whose bytes stay on the host."""
        self.pack(draws, update, self._packed)
        there = self._packed.as_subclass(OnDevice)
        return PackedBatch(self.layout, there, torch.tensor([draw.item.id for draw in draws]))


class Watch(threading.Thread):
    """Measures the process from SETTLED_S after the first update on, then stops the training."""

    def __init__(self, run: Run, seconds: float) -> None:
        """Start nothing."""
        super().__init__(name="watch", daemon=True)
        self._run, self._seconds = run, seconds
        self.found: dict[str, Any] = {}

    def run(self) -> None:
        """Wait for the first update, then measure."""
        learner = self._run.learner
        while not learner.version:
            time.sleep(0.05)
        time.sleep(SETTLED_S)
        began, updates, before = time.monotonic(), learner.version, _seconds_of_threads()
        time.sleep(self._seconds)
        done, after = learner.version - updates, _seconds_of_threads()
        used = {
            name: round(1e3 * (spent - before.get(name, 0.0)) / done, 3)
            for name, spent in after.items()
        }
        self.found = {
            "updates_per_s": round(done / (time.monotonic() - began), 1),
            "cpu_ms_per_update": round(sum(used.values()), 3),
            "cpu_ms_by_thread": {name: ms for name, ms in used.items() if ms >= 0.005},
        }
        self._run.stop.handle(signal.SIGTERM)


def _seconds_of_threads() -> dict[str, float]:
    """Return the processor time of each thread of this process, by name."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    seconds: dict[str, float] = {}
    for thread in psutil.Process().threads():
        name = names.get(thread.id, "others")
        seconds[name] = seconds.get(name, 0.0) + thread.user_time + thread.system_time
    return seconds


def measure(batch: int, environments: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return what a run with this batch and so many environments per worker costs."""
    flags = Flags(
        env=options.env, seed=1, device="cpu", batch_size=batch, worker_count=options.workers,
        envs_per_worker=environments, environment_max_steps=10**9, charts=False,
        tensorboard=False, console="messages",
    )  # fmt: skip
    blueprint, stop = Blueprint.draw(flags), StopSignals()
    feed = PlayedFeed(blueprint, batch)
    pool = PlayedPool(blueprint, options.workers, environments)
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder.create(Path(place), options.env)
        with closing(JsonLinesSink(folder.metrics_file)) as sink:
            run = Run(
                blueprint, folder, stop=stop,
                experience=lambda *_: Threaded(
                    pool, blueprint.replay(), feed, None, cache_depth=None, cache_threads=1
                ),
            )  # fmt: skip
            as_recorded(run.learner, options.step_ms)
            trainer = Trainer(run, sink)
            trainer._publish_each_s = PUBLISH_EACH_S
            watch = Watch(run, options.seconds)
            watch.start()
            with stop.answered_by(Answer.NOTE):
                trainer.run()
    return {"batch": batch, "envs_per_worker": environments} | watch.found


def parse() -> argparse.Namespace:
    """Read the options of the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    numbers = lambda text: [int(part) for part in text.split(",")]  # noqa: E731
    parser.add_argument("--env", default="BreakoutNoFrameskip-v4")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each measurement")
    parser.add_argument("--batches", type=numbers, default=[8, 32, 128], help="unrolls per update")
    parser.add_argument("--workers", type=int, default=15)
    parser.add_argument("--environments", type=numbers, default=[8, 32], help="of each worker")
    parser.add_argument("--step_ms", type=float, default=1.8, help="of the played device")
    return parser.parse_args()


def main() -> None:
    """Run the benchmark; the last line is JSON."""
    options = parse()
    torch.set_num_threads(1)
    sys.setswitchinterval(GPU_SWITCH_INTERVAL_S)
    found = []
    with leaving_by_exception():
        for batch, environments in product(options.batches, options.environments):
            found.append(measure(batch, environments, options))
            print(found[-1], flush=True)
    print(json_text({"processor": cpu_name(), "step_ms": options.step_ms, "rows": found}))


if __name__ == "__main__":
    restart_with_settings()
    main()
