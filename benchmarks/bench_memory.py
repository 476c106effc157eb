"""What a large replay takes in memory, with and without compression.

    python benchmarks/bench_memory.py --steps=1000000

Plays real games with an untrained network for a while, inserts those unrolls again and again into a
replay buffer until it holds that many agent steps, and reports by how much the process has grown.
One agent step is one stored frame here (the simulator ran --skipped_frames of them): 1 000 000
steps are the "replay of one million" of the DQN literature. Each compression is measured in a
process of its own. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.children import START_S, answers  # noqa: E402
from benchmarks.programs import leaving_by_exception  # noqa: E402
from ritornello.agent.acting.worker import WorkerBody  # noqa: E402
from ritornello.agent.assembly import Blueprint  # noqa: E402
from ritornello.core.unroll import Record  # noqa: E402
from ritornello.flags.options import Flags  # noqa: E402
from ritornello.live.json_text import json_text  # noqa: E402
from ritornello.transport.weights import WeightBoard  # noqa: E402

PLAYED_STEPS = 40_000
MOST_S_PER_STEP = 0.005  # to insert one; a hundred times what it takes


def played(blueprint: Blueprint, count: int) -> list[Record]:
    """Return unrolls of the first worker's games, as many whole blocks as `count` holds."""
    board = WeightBoard(blueprint.acting_weights.nbytes)
    with board.write(0) as block:
        blueprint.acting_weights.pack(blueprint.learner().model, block)
    config = blueprint.workers()[0]
    worker = WorkerBody(config, board)
    blocks = []
    for _ in range(count // config.num_envs):
        blocks.append(blueprint.schema.allocate(config.num_envs))
        worker.collect(blocks[-1])
    worker.close()
    return [record for block in blocks for record in block]


def grown_mb(env: str, unroll_length: int, steps: int, compressed: bool) -> tuple[float, float]:
    """Child process: fill a buffer; return (growth of the process, payload bytes), both in MB."""
    flags = Flags(
        env=env,
        seed=1,
        r_f_steps=unroll_length,
        use_replay_compression=compressed,
        discarding_strategy="keep_latest",  # nobody draws here, and nothing should wait for it
        replay_parameters=[
            {"type": "queue", "capacity": 1, "sample_ratio": 0.5},
            {"type": "standard", "capacity": steps // unroll_length, "sample_ratio": 0.5},
        ],
    )
    blueprint = Blueprint.draw(flags)
    records = played(blueprint, PLAYED_STEPS // unroll_length)
    replay = blueprint.replay()
    before = psutil.Process().memory_info().rss
    for index in range(steps // unroll_length):
        if not replay.insert(records[index % len(records)], 0, timeout_s=1.0):
            raise RuntimeError("the buffer took no more unrolls, expected it never to wait.")
    after = psutil.Process().memory_info().rss
    return (after - before) / 1e6, replay.stats()["replay/memory_mb"]


def main() -> None:
    """Measure both, print one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", default="PongNoFrameskip-v4")
    parser.add_argument("--steps", type=int, default=1_000_000, help="agent steps to hold")
    parser.add_argument("--r_f_steps", type=int, default=20, help="T, unroll length")
    options = parser.parse_args()
    result = {"env": options.env, "steps": options.steps, "r_f_steps": options.r_f_steps}
    limit_s = START_S + MOST_S_PER_STEP * options.steps
    for name, compressed in (("raw", False), ("lz4", True)):
        arguments = (options.env, options.r_f_steps, options.steps, compressed)
        with leaving_by_exception():
            ((process_mb, payload_mb),) = answers(grown_mb, [arguments], limit_s)
        result |= {f"{name}_process_mb": round(process_mb), f"{name}_payload_mb": round(payload_mb)}
    print(json_text(result))


if __name__ == "__main__":
    main()
