"""Small runs in this process, for the tests of the library."""

import json

from ritornello.core.faults import loaded
from tests.faulty import Plan, parse_plan

COUNTING = "tests.fakes:tests/Counting-v0"
TINY = {
    "env": COUNTING,
    "reproducible": True,
    "seed": 3,
    "r_f_steps": 5,
    "batch_size": 4,
    "envs_per_worker": 2,
    "feature_out_layer_size": 8,
    "environment_max_steps": 120,
    "replay_parameters": [
        {"type": "queue", "capacity": 4, "sample_ratio": 0.5},
        {"type": "standard", "capacity": 40, "sample_ratio": 0.5},
    ],
    "tensorboard": False,
    "charts": False,
    "console": False,
}


def fault(**line):
    """Let something go wrong at a point of core/faults.py within the block."""
    return loaded(Plan(parse_plan(json.dumps(line))))
