from fnmatch import fnmatchcase

import pytest

from ritornello.metrics.record import METRICS
from tests.deadlines import HANGS_S
from tests.integration.commands import SMALL, only_run, records, run

# What each kind of run must write, all together. A metric that none of them writes is a promise of
# the documents that nobody keeps: measure it, take it out, or say here what it needs.
RUNS = {
    "everything that may be switched on": (
        *SMALL, "--gradient_metrics=True", "--use_kl_mask=True", "--use_policy_cloning_loss=True",
        "--use_value_cloning_loss=True", "--clip_rewards=True", "--reproducible=True",
        "--env=tests.fakes:tests/Counting-v0,tests.fakes:tests/Owing-v0",
        "--evaluate_every_steps=500", "--evaluation_games=1", "--environment_max_steps=2000",
    ),
    "values of actions": (*SMALL, "--preset=q_lambda", "--environment_max_steps=500"),
    "one game by impact, evaluated beside the training": (
        *SMALL, "--algorithm=impact", "--evaluate_every_steps=200", "--evaluation_games=1",
        "--environment_max_steps=6000",
        '--replay_parameters=[{"type": "circular", "capacity": 8, "sample_ratio": 1}]',
    ),
}  # fmt: skip
NEEDS_A_GPU = {name for name in METRICS if name.startswith("system/gpu_")}
# tests/metrics/test_hardware.py has a machine with all of it.
NEEDS_COUNTERS = {"system/cpu_power_w", "system/energy_j", "system/joules_per_million_steps"}
NEEDS_A_SENSOR = {"system/cpu_temperature_c"}
# Of a process that computes only where nobody else does: on a busy machine it may not be done.
NEEDS_IDLENESS = {"evaluation/time_s"}
NEEDS_RAY = {name for name in METRICS if name.startswith("cluster/")}


@pytest.mark.slow
@pytest.mark.process
def test_each_declared_metric_is_written_by_some_run(tmp_path):
    written = set()
    for name, flags in RUNS.items():
        results = tmp_path / name
        status, output = run(results, *flags, timeout=HANGS_S)
        assert status == 0, output
        written |= {metric for record in records(only_run(results)) for metric in record["values"]}
    never = {pattern for pattern in METRICS if not any(fnmatchcase(n, pattern) for n in written)}
    allowed = NEEDS_COUNTERS | NEEDS_A_SENSOR | NEEDS_IDLENESS | NEEDS_RAY
    assert never - allowed == NEEDS_A_GPU
