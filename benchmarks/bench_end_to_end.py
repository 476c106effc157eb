"""How near a real run comes to what its parts allow.

    python benchmarks/bench_end_to_end.py --config=queue --seconds=60

Measures emulation, inference, learning (and scoring, for attentive and elite replay) alone, each on
all cores at once; the bound is what the machine could do if nothing else cost anything: no
hand-over, no sampling, no Python in between, no waiting. Then it trains for real and reports the
share of the bound that was reached. Parts are measured before and after the run, and the faster
of the two counts, so that a change of the machine's speed does not flatter the run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.programs import leaving_by_exception  # noqa: E402
from ritornello.core.errors import ConfigError  # noqa: E402
from ritornello.core.plain_data import json_text  # noqa: E402
from ritornello.core.process_death import environment_for_child  # noqa: E402
from ritornello.core.process_settings import restart_with_settings  # noqa: E402
from ritornello.flags.names import named_values  # noqa: E402
from ritornello.flags.parsing import parse as parse_flags  # noqa: E402

REPLAYS = {  # short forms of --replay_parameters; the default command has its own
    "queue": "queue:16:1.0",
    "mixed": "queue:16:0.5,standard:1000:0.5",
    "attentive": "queue:16:0.5,attentive:1000:0.5:alfa_annealing_factor=2.0",
    "elite": "queue:16:0.5,elite:1000:0.5:alfa_annealing_factor=2.0",
}
WARM_UP_SHARE = 0.25  # of the run: start of processes, filling of buffers
CANDIDATES_PER_REPLAYED = 6  # lambda


class RealRun(NamedTuple):
    """What a training showed from the end of its warm-up on."""

    speed: float  # agent steps per second
    memory_mb: float  # the most, also before
    updates: tuple[int, int]  # the first and the last update that was counted
    values: dict[str, float]  # all metrics of the last record that was counted


def parse() -> argparse.Namespace:
    """Read the options of the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--config", default="all", choices=["all", "default", *REPLAYS])
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each real run")
    parser.add_argument(
        "--part_seconds", type=float, default=6.0, help="length of each part; 0: real runs only"
    )
    parser.add_argument("--env", default="PongNoFrameskip-v4")
    parser.add_argument("--repeats", type=int, default=1, help="real runs; the median counts")
    parser.add_argument(
        "--from_update",
        type=int,
        default=0,
        help="count from this update on, if the warm-up of a quarter of the time is over by then; "
        "at 200 the mean image of the pixels is settled",
    )
    parser.add_argument(
        "flags", nargs="*", help="more flags of main.py, after --, e.g. -- --model=resnet"
    )
    return parser.parse_args()


def flag_values(config: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the flags of a configuration, as option_flags.Flags takes them."""
    values = {"env": options.env, "seed": 1}
    if config != "default":
        values |= {
            "model": "nature",
            "batch_size": 16,
            "envs_per_worker": 16,  # the fastest for this network, alone and in a run
            "replay_parameters": REPLAYS[config],
        }
    return values | named_values(options.flags)


def arguments_of(values: dict[str, Any]) -> list[str]:
    """Return the command line of main.py that says the same."""
    return [f"--{name}={value}" for name, value in values.items()]


def measure_parts(config: str, values: dict[str, Any], seconds: float) -> dict[str, float]:
    """Return machine microseconds per unit of each part that the configuration needs."""
    from benchmarks.parts import PARTS, machine_us
    from ritornello.agent.machine import cpu_count

    wanted = [part for part in PARTS if part != "scoring" or config in ("attentive", "elite")]
    return {part: machine_us(part, values, cpu_count(), seconds) for part in wanted}


def cost_per_step(values: dict[str, Any], parts: dict[str, float]) -> dict[str, float]:
    """Return machine microseconds per *new* agent step, of each part."""
    from ritornello.flags.options import Flags

    buffers = Flags(**values).replay_parameters
    ratio = sum(each["sample_ratio"] for each in buffers if each["type"] != "queue")
    learned_per_new = 1 / (1 - ratio)  # each batch has so many steps for one new one
    replayed_per_new = learned_per_new - 1
    factors = {
        "emulation": 1.0,
        "inference": 1.0,
        "hand-over": 1.0,
        "sampling": learned_per_new,
        "scoring": CANDIDATES_PER_REPLAYED * replayed_per_new,
        "learning": learned_per_new,
    }
    return {part: us * factors[part] for part, us in parts.items()}


def bound(costs: dict[str, float]) -> float:
    """Return agent steps per second if only the indispensable parts cost anything."""
    free = ("hand-over", "sampling")
    return 1e6 / sum(us for part, us in costs.items() if part not in free)


def real_run(arguments: list[str], seconds: float, from_update: int = 0) -> RealRun:
    """Train in a process of its own.

    Args:
      arguments: flags of main.py.
      seconds: length of the run; its first quarter is not counted.
      from_update: what is before this update is not counted either.

    Raises:
      SystemExit: if it did not come far enough for two records to count.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, str(ROOT / "main.py"), "--op_mode=train", *arguments,
            f"--results_dir={folder}", f"--training_seconds={seconds}", "--log_interval_s=1",
            "--tensorboard=False", "--charts=False", "--console=messages",
        ]  # fmt: skip
        subprocess.run(
            command, check=True, cwd=ROOT, timeout=seconds + 120, env=environment_for_child()
        )
        (path,) = Path(folder).glob("*/metrics.jsonl")
        records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    steady = [
        r for r in records if r["wall_s"] >= WARM_UP_SHARE * seconds and r["updates"] >= from_update
    ]
    if len(steady) < 3:
        sys.exit(
            f"after {seconds} seconds the run had made {records[-1]['updates']} updates, expected "
            f"some seconds of training after update {from_update}: raise --seconds."
        )
    first, last = steady[0], steady[-2]  # the last one is written while stopping
    speed = (last["agent_steps"] - first["agent_steps"]) / (last["wall_s"] - first["wall_s"])
    memory = max(r["values"].get("system/memory_mb", 0.0) for r in records)
    return RealRun(speed, memory, (first["updates"], last["updates"]), last["values"])


def run_config(config: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one configuration and print its table."""
    values, of_parts = flag_values(config, options), options.part_seconds > 0
    before = measure_parts(config, values, options.part_seconds) if of_parts else {}
    arguments = arguments_of(values)
    runs = [
        real_run(arguments, options.seconds, options.from_update) for _ in range(options.repeats)
    ]
    speed = statistics.median(run.speed for run in runs)
    print(f"\n{config}: {options.env}, {speed:.0f} agent steps/s")
    result = {
        "config": config,
        "env": options.env,
        "sps": round(speed, 1),
        "sps_runs": [round(run.speed, 1) for run in runs],
        "updates_counted": [run.updates for run in runs],
        "peak_memory_mb": round(max(run.memory_mb for run in runs)),
    }
    if not of_parts:
        return result
    after = measure_parts(config, values, options.part_seconds)
    parts = {part: min(before[part], after[part]) for part in before}
    return result | share_of_bound(values, parts, speed)


def share_of_bound(values: dict[str, Any], parts: dict[str, float], speed: float) -> dict[str, Any]:
    """Print what the parts allow beside the speed that was reached, and return it."""
    costs = cost_per_step(values, parts)
    limit = bound(costs)
    print(f"{'part':<12}{'us of the machine per unit':>28}{'per new agent step':>22}")
    for part, us in parts.items():
        print(f"{part:<12}{us:>28.1f}{costs[part]:>22.1f}")
    print(f"bound {limit:.0f} agent steps/s, reached {100 * speed / limit:.0f} % of it")
    return {
        "bound_sps": round(limit, 1),
        "fraction": round(speed / limit, 3),
        "parts_us": {part: round(us, 1) for part, us in parts.items()},
    }


def main() -> None:
    """Run the benchmark; the last lines are JSON, one per configuration."""
    options = parse()
    configs = list(REPLAYS) if options.config == "all" else [options.config]
    try:
        for config in configs:  # before the first part is measured
            parse_flags(arguments_of(flag_values(config, options)))
    except ConfigError as error:
        sys.exit(f"error: {error}")
    with leaving_by_exception():
        results = [run_config(config, options) for config in configs]
    print()
    for result in results:
        print(json_text(result))


if __name__ == "__main__":
    restart_with_settings()
    main()
