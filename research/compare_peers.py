"""How fast other systems train on this machine, and how fast ours does.

    python -m research.compare_peers --env=PongNoFrameskip-v4 --seconds=60 --repeats=2
    python -m research.compare_peers --learn --env=PongNoFrameskip-v4 --seconds=600

Other systems are installed by pip, each in a virtual environment of its own below --peers_dir: some
3 GB in all, once. Then all are run one at a time and in turn (A B C, A B C, ...), so that a change
of the machine's speed hits all alike. Each gets the Nature network on 84x84x4 pixels, 16 games,
unrolls of 20 steps and 320 steps per update, as near as it allows; the table says where it does
otherwise. Nothing else should run meanwhile.

With --learn the question is how well each system plays after --seconds, counted from its start.
Each then has the settings that its own authors give for Atari games, ours the default command, and
each repeat has the next seed. The score is the mean return of the last 100 whole games.

A run is timed from its first update, ours from its 200th, when the mean image of the pixels is
settled; the first quarter of --seconds is warm-up. Counted are agent steps (of 4 frames each) that
were learned from as new, CPU seconds of the whole process tree per second, and the peak of its
memory as PSS, in which pages that processes share count once. A system that cannot be installed or
run is reported as failed, with the last line of its error, and the others go on. The last line is
JSON. Ctrl-C stops everything that was started, and the runs that are done are shown. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.programs import leaving_by_exception  # noqa: E402
from research.peers.catalogue import LEARNERS, SYSTEMS, System, driver_command  # noqa: E402
from research.peers.installation import python_of  # noqa: E402
from research.peers.learning import (  # noqa: E402
    Learned,
    LearningResult,
    learned,
    learning_table,
)
from research.peers.measurement import Run, RunFailed, drive, run_driver  # noqa: E402
from research.peers.report import Result, ours_over, table  # noqa: E402
from ritornello.core.plain_data import json_text  # noqa: E402
from ritornello.core.process_death import environment_for_child  # noqa: E402
from ritornello.core.process_settings import SETTINGS  # noqa: E402
from ritornello.core.stop_signals import INTERRUPTED  # noqa: E402

EXAMPLES = """
examples:
  python -m research.compare_peers --list
  python -m research.compare_peers --peers=sb3_a2c,sync_loop,ours_queue --seconds=30 --repeats=1
"""


def systems(names: str, there: Sequence[System]) -> list[System]:
    """Return the systems that a list like "sb3_a2c,ours_queue" names.

    Args:
      names: separated by commas; all if empty.
      there: those that there are.

    Raises:
      ValueError: if there is no system of such a name.
    """
    by_name = {system.name: system for system in there}
    wanted = list(dict.fromkeys(names.split(","))) if names else list(by_name)
    unknown = [name for name in wanted if name not in by_name]
    if unknown:
        raise ValueError(
            f"no system is called {', '.join(unknown)}; expected some of {', '.join(by_name)}"
        )
    return [by_name[name] for name in wanted]


def positive(text: str) -> float:
    """Return a number above 0; argparse reports any other as a mistake."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return value


def count(text: str) -> int:
    """Return a whole number above 0; argparse reports any other as a mistake."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number above 0")
    return int(text)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read the options of the benchmark."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", default="PongNoFrameskip-v4", help="<Game>NoFrameskip-v4")
    parser.add_argument("--learn", action="store_true", help="compare learning at equal time")
    parser.add_argument(
        "--seconds", type=positive, default=60.0, help="of each run, from its first update"
    )
    parser.add_argument(
        "--repeats", type=count, default=2, help="runs of each system; the median counts"
    )
    parser.add_argument("--peers", default="", help="names, by commas; default all")
    parser.add_argument(
        "--peers_dir",
        type=Path,
        default=cache / "actor-critic-peers",
        help="where other systems are installed, and logs are kept; default %(default)s",
    )
    parser.add_argument("--list", action="store_true", help="list the systems and stop")
    options = parser.parse_args(argv)
    try:
        options.peers = systems(options.peers, LEARNERS if options.learn else SYSTEMS)
    except ValueError as error:
        parser.error(f"argument --peers: {error}")
    return options


def cpu_count() -> int:
    """Return the cores this process may use, like agent/machine.py, but without torch."""
    return len(os.sched_getaffinity(0))


def environment_of_peers() -> dict[str, str]:
    """Return this process's variables without the settings that ours gives itself at its start."""
    there = environment_for_child()  # our own drivers end with this process, even if it is killed
    return {name: value for name, value in there.items() if name not in SETTINGS}


def one_run(system: System, options: argparse.Namespace, seed: int) -> Run | Learned:
    """Install a system if needed and run it once, in a folder that is removed afterwards.

    Args:
      system: which one.
      options: of the benchmark.
      seed: of the run.

    Raises:
      RunFailed: if it cannot be installed or does not run.
    """
    peers_dir: Path = options.peers_dir.resolve()
    python = python_of(system, peers_dir)
    command = driver_command(system, python, options.env, cpu_count(), seed)
    # A short path: Ray makes sockets in it, whose names have at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="peer-"))
    environment = environment_of_peers()
    try:
        if options.learn:
            run = drive(command, folder, options.seconds, environment, from_start=True)
            return learned(run, options.seconds)
        return run_driver(command, folder, options.seconds, environment)
    finally:
        logs = peers_dir / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # it could not be started at all
            shutil.copyfile(folder / "log.txt", logs / f"{system.name}.txt")
        shutil.rmtree(folder, ignore_errors=True)


def compare(options: argparse.Namespace, results: dict[str, Any]) -> None:
    """Run all systems in turn, `repeats` times; a system that has failed is not run again.

    Args:
      options: of the benchmark.
      results: name of each system -> its Result, or its LearningResult; takes the runs.
    """
    for repeat in range(options.repeats):
        for name, result in results.items():
            if result.failure:
                continue
            print(f"run {repeat + 1} of {options.repeats}: {name} ...", end=" ", flush=True)
            try:
                # Speeds are compared on one course of the game, learning on several.
                run = one_run(result.system, options, repeat + 1 if options.learn else 1)
            except Exception as error:  # whatever is wrong with one, the others go on
                result.failure = one_line(error)
                print(f"failed: {result.failure}", flush=True)
            else:
                result.runs.append(run)
                print(run.summary(), flush=True)


def one_line(error: Exception) -> str:
    """Return why a system has failed."""
    said = str(error) if isinstance(error, RunFailed) else f"{type(error).__name__}: {error}"
    return " ".join(said.split())


def to_json(results: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Return the whole comparison, with the machine it was made on, as plain types."""
    if options.learn:
        systems_json = {name: result.to_json(options.env) for name, result in results.items()}
    else:
        systems_json = {
            name: result.to_json(ours_over(results, name)) for name, result in results.items()
        }
    return {
        "env": options.env,
        "seconds": options.seconds,
        "repeats": options.repeats,
        "machine": {
            "cores": cpu_count(),
            "python": platform.python_version(),
            "platform": platform.platform(),
        },
        "systems": systems_json,
    }


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return the exit status, 1 if no system could be run."""
    options = parse(argv)
    if options.list:
        for system in options.peers:
            print(f"{system.name:<16}{system.title:<32}{system.version:<11}{system.remark}")
        return 0
    if not sys.platform.startswith("linux"):
        print("error: process trees are metered in /proc, so this runs on Linux", file=sys.stderr)
        return 2
    kind = LearningResult if options.learn else Result
    results: dict[str, Any] = {system.name: kind(system) for system in options.peers}
    stopped = None
    try:
        with leaving_by_exception():
            compare(options, results)
    except (KeyboardInterrupt, SystemExit) as stop:
        print("\ninterrupted; everything that was started is stopped", file=sys.stderr)
        stopped = int(stop.code or 0) if isinstance(stop, SystemExit) else INTERRUPTED
    shown = learning_table(results, options.env) if options.learn else table(results)
    print(f"\n{shown}\n")
    print(json_text(to_json(results, options)))
    if stopped is not None:
        return stopped
    return 0 if any(result.runs for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
