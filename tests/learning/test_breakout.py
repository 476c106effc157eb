"""The beginning of the curve of the default command on Breakout: the way of the pixels."""

import pytest

from tests.integration.commands import only_run, records, run

STEPS = 150_000
PASSES = 4.0  # mean return over 100 games after so many steps; at random it is 1.2


@pytest.mark.learning
@pytest.mark.process
@pytest.mark.timeout(7200)
def test_the_default_command_gets_better_at_breakout(tmp_path):
    """By several processes: no two runs are alike, but all pass this mark."""
    status, output = run(
        tmp_path, "--env=BreakoutNoFrameskip-v4", "--seed=1", f"--environment_max_steps={STEPS}",
        timeout=7000,
    )  # fmt: skip
    assert status == 0, output
    means = [
        record["values"].get("episode/return_mean", 0.0) for record in records(only_run(tmp_path))
    ]
    assert max(means) >= PASSES
    assert max(means[: len(means) // 10]) < PASSES, "it cannot have been good from the start"
