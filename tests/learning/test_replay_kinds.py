"""Agents that learn by each kind of replay solve CartPole."""

import json

import pytest

from tests.integration.commands import only_run, run
from tests.learning.training import ALL_KINDS, replay

SOLVED = 475.0  # mean return over 100 games, CartPole-v1's own limit; at random it is 22


@pytest.mark.learning
@pytest.mark.process
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_with_this_kind_of_replay_cartpole_is_solved(tmp_path, kind):
    """In turn, in one process: the same run on every machine, however busy it is."""
    status, output = run(
        tmp_path, "--env=CartPole-v1", "--seed=1", "--reproducible=True", "--worker_count=1",
        "--envs_per_worker=8", f"--replay_parameters={json.dumps(replay(kind, capacity=200))}",
        f"--stop_at_mean_return={SOLVED}", "--environment_max_steps=300000", timeout=1700,
    )  # fmt: skip
    assert status == 0, output
    summary = json.loads((only_run(tmp_path) / "summary.json").read_text("utf-8"))
    assert summary["reason"] == "return", summary
