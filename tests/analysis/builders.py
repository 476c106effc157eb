"""Run folders and sequences as the program leaves them, with returns that a test can foretell."""

import json
from dataclasses import replace

import numpy as np

from ritornello.metrics.curve import Curve
from ritornello.metrics.record import Record
from ritornello.metrics.run_files import read_records
from tests.live.builders import write_records

QUEUE = [{"type": "queue", "capacity": 4, "sample_ratio": 1.0}]
MIXED = [
    {"type": "queue", "capacity": 4, "sample_ratio": 0.5},
    {"type": "standard", "capacity": 1000, "sample_ratio": 0.5},
]


def curve_of(points):
    """Return the curve with these agent steps and mean returns; a second is ten steps."""
    steps, returns = (np.array(column, np.float64) for column in zip(*points, strict=True))
    return Curve(steps, steps / 10, returns, None)


def write_run(
    folder,
    *,
    seed,
    slope=1.0,
    env="PongNoFrameskip-v4",
    end=1000,
    records=10,
    steps_per_s=10.0,
    finished=True,
    **flags,
):
    """Write a run whose mean return is `slope * agent_steps + seed`."""
    (folder / "checkpoints").mkdir(parents=True)
    defaults = {"env": env, "seed": seed, "batch_size": 8, "replay_parameters": QUEUE}
    (folder / "flags.json").write_text(json.dumps({**defaults, **flags}))
    info = {
        "command_line": ["main.py", f"--env={env}", f"--seed={seed}", "--results_dir=/home/me"],
        "source": {"commit": "0123456789abcdef", "dirty": False},
        "machine": {"cpu": "Abacus", "cores_usable": 2, "gpus": []},
    }
    (folder / "run.json").write_text(json.dumps(info))
    made = [Record(agent_steps=1)]  # before the first game
    for steps in range(end // records, end + 1, end // records):
        values = {
            "episode/return_mean": slope * steps + seed,
            "episode/return_best": slope * steps + 10,
        }
        made.append(Record(agent_steps=steps, wall_s=steps / steps_per_s, values=values))
    write_records(folder, made)
    if finished:
        (folder / "summary.json").write_text("{}")
    return folder


def write_run_of_games(folder, *, seed, shares=(), **flags):
    """Write a run of Pong and Breakout whose returns are 0.1 and 2 per step of the whole run."""
    env = "PongNoFrameskip-v4,BreakoutNoFrameskip-v4"
    write_run(folder, seed=seed, env=env, env_shares=list(shares), **flags)
    before, *others = read_records(folder)
    names = ("episode/return_mean_0", "episode/return_mean_1", "episode/return_best_1")
    for number, record in enumerate(others):
        values = [slope * record.agent_steps for slope in (0.1, 2.0, 3.0)]
        others[number] = replace(record, values=dict(zip(names, values, strict=True)))
    write_records(folder, [before, *others])
    return folder


def write_sequence(folder, groups):
    """Write a sequence of groups (name, env, slope), each with seeds 1 and 2, all done."""
    runs = []
    for seed in (1, 2):
        for group, env, slope in groups:
            name = f"{len(runs) + 1:03d}_run_seed{seed}"
            write_run(folder / name / "made", seed=seed, slope=slope, env=env, finished=False)
            runs.append({"name": name, "group": group, "seed": seed, "flags": {}, "status": "done"})
    state = {"format_version": 1, "name": "mine", "arguments": ["--lr=0.1"], "runs": runs}
    (folder / "sequence.json").write_text(json.dumps(state))
    return folder
