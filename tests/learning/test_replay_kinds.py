"""Agents that learn from half a batch of each kind of replay solve CartPole."""

import json

import pytest

from tests.integration.commands import only_run, run

SOLVED = 195.0  # mean return over 100 games, CartPole-v0's own limit; at random it is 22


@pytest.mark.learning
@pytest.mark.process
@pytest.mark.parametrize("kind", ["prioritised", "least_drawn"])
def test_with_half_of_each_batch_from_this_kind_cartpole_is_solved(tmp_path, kind):
    """In turn, in one process: the same run on every machine, however busy it is."""
    replay = [
        {"type": "queue", "capacity": 4, "sample_ratio": 0.5},
        {"type": kind, "capacity": 200, "sample_ratio": 0.5},
    ]
    status, output = run(
        tmp_path, "--env=CartPole-v1", "--seed=1", "--reproducible=True", "--worker_count=1",
        "--envs_per_worker=8", f"--replay_parameters={json.dumps(replay)}",
        f"--stop_at_mean_return={SOLVED}", "--environment_max_steps=150000",
    )  # fmt: skip
    assert status == 0, output
    summary = json.loads((only_run(tmp_path) / "summary.json").read_text("utf-8"))
    assert summary["reason"] == "return", summary
