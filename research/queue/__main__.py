"""The standing queue of experiments.

  python -m research.queue run --minutes=150    work on the queue for so long (make research)
  python -m research.queue list                 what is done, what is next, how long it will take

What is to be run stands in research/queue.yaml, in the order of its priorities. Run folders lie
outside of the clone (--store); curves and the index of all runs are written to research/results.
The queue may be stopped (Ctrl-C, once: a checkpoint is saved) or killed at any time: the next one
goes on from the last checkpoints. Two never work on one store, nor write to one folder of results.

Exit status: 0 done, 1 a run failed or the disk is full, 2 the command cannot be honoured,
130 interrupted.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from research.queue import index
from research.queue.overview import queue_lines
from research.queue.plan import SHIPPED_QUEUE, load_queue
from research.queue.queue_loop import Places, QueueLoop, StopRequests
from research.queue.store import VARIABLE, Store, default_store
from research.queue.trainer_process import GRACE_S
from ritornello.core.command_line import add_switch, reader_may_leave
from ritornello.core.errors import ConfigError
from ritornello.core.project import PROJECT_ROOT
from ritornello.core.stop_signals import INTERRUPTED

log = logging.getLogger("research.queue")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status."""
    options = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    try:
        return _list(options) if options.command == "list" else _run(options)
    except ConfigError as error:
        print(f"python -m research.queue: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # most likely a full disk; what runs are doing is in their folders
        print(f"python -m research.queue: the queue has ended: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> int:
    places = Places(
        Path(options.queue).resolve(),
        Path(options.store).resolve(),
        Path(options.results_dir).resolve(),
        background=options.background,
    )
    load_queue(places.queue_file)  # a mistake there is told before anything is made
    store = Store(places.store)
    with StopRequests().installed() as requests:
        try:
            if not store.lock(GRACE_S, log.info, lambda: not requests.count):
                log.info("stopped before its first run: nothing was started")
                return INTERRUPTED
            store.lock_results(places.results)
            if options.retry_failed:
                _forget_failures(places, store)
            seconds = None if options.minutes is None else 60.0 * options.minutes
            loop = QueueLoop(places, store, seconds)
            log.info("run folders are in %s", store.path)
            loop.run(requests)
        finally:
            store.close()
    if requests.count:
        return INTERRUPTED
    return 1 if loop.failed else 0


def _forget_failures(places: Places, store: Store) -> None:
    for run in load_queue(places.queue_file).runs:
        state = store.state(run)
        if state is not None and state.failures:
            store.write_state(run, replace(state, failures=0, message=""))


def _list(options: argparse.Namespace) -> int:
    queue = load_queue(Path(options.queue))
    store = Store(Path(options.store).resolve())
    rows = index.read_index(Path(options.results_dir) / index.INDEX_FILE)
    running = [row.run for row in rows.values() if row.status == index.RUNNING]
    is_live = store.is_locked()
    rows = index.refresh(rows, queue.runs, store, running if is_live else ())
    with reader_may_leave():
        print("\n".join(queue_lines(queue.experiments, store, rows)))
        print(f"run folders: {store.path}" + (" (a queue works on it)" if is_live else ""))
    return 0


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0.0 < minutes < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes above 0")
    return minutes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m research.queue",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="work on the queue", allow_abbrev=False)
    show = commands.add_parser("list", help="show the queue", allow_abbrev=False)
    for each in (run, show):
        each.add_argument(
            "--queue", default=str(SHIPPED_QUEUE), help="file of the queue (default: %(default)s)"
        )
        each.add_argument(
            "--store",
            default=str(default_store()),
            help=f"folder of all run folders; default: ${VARIABLE}, or %(default)s",
        )
        each.add_argument(
            "--results_dir",
            default=str(PROJECT_ROOT / "research" / "results"),
            help="where index.csv and curves are written (default: %(default)s)",
        )
    run.add_argument(
        "--minutes", type=_minutes, help="stop after so long; default: when all runs are done"
    )
    add_switch(run, "--retry_failed", "try runs again that failed twice")
    add_switch(run, "--background", "runs give way to everything else on the machine", default=True)
    return parser


if __name__ == "__main__":
    sys.exit(main())
