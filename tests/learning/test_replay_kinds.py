"""Agents that learn by each kind of replay, and by each algorithm, solve CartPole."""

import json

import pytest

from tests.integration.commands import only_run, run
from tests.learning.training import ALL_KINDS, replay

SOLVED = 475.0  # mean return over 100 games, CartPole-v1's own limit; at random it is 22
LIMIT_S = 1700


def solve(tmp_path, *flags):
    """In turn, in one process: the same run on every machine, however busy it is."""
    status, output = run(
        tmp_path, "--env=CartPole-v1", "--reproducible=True", "--worker_count=1",
        "--envs_per_worker=8", f"--stop_at_mean_return={SOLVED}", "--environment_max_steps=300000",
        *flags, timeout=LIMIT_S,
    )  # fmt: skip
    assert status == 0, output
    summary = json.loads((only_run(tmp_path) / "summary.json").read_text("utf-8"))
    assert summary["reason"] == "return", summary


@pytest.mark.learning
@pytest.mark.process
@pytest.mark.timeout(LIMIT_S + 100)
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_with_this_kind_of_replay_cartpole_is_solved(tmp_path, kind):
    replays = json.dumps(replay(kind, capacity=200))
    solve(tmp_path, "--seed=1", f"--replay_parameters={replays}")


@pytest.mark.learning
@pytest.mark.process
@pytest.mark.timeout(LIMIT_S + 100)
@pytest.mark.parametrize("algorithm", ["impact", "q_lambda"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_other_algorithms_solve_cartpole(tmp_path, seed, algorithm):
    solve(tmp_path, f"--preset=cartpole,{algorithm}", f"--seed={seed}")
