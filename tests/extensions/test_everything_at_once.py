"""Parts of one's own in a run as users start it: worker processes find them by their names."""

import json

import pytest

from tests.extensions import own_algorithm, own_environment, own_outputs
from tests.integration.commands import HANGS_S, only_run, records, run

REPLAY = [
    {"type": "queue", "capacity": 4, "sample_ratio": 0.5},
    {"type": "tests.extensions.replay_kind:recent", "capacity": 50, "sample_ratio": 0.5},
]
PARTS = (
    f"--env={own_environment.__name__}:Own/Light-v0",
    '--env_kwargs={"height": 24, "width": 26}',
    "--model=tests.extensions.own_network:squeezed",
    f"--algorithm={own_algorithm.__name__}:ppo",
    '--algorithm_kwargs={"dropped": 0.25}',
    f"--sink={own_outputs.__name__}:short",
    f"--replay_parameters={json.dumps(REPLAY)}",
)
SMALL = (
    "--seed=3", "--worker_count=2", "--envs_per_worker=2", "--r_f_steps=5", "--batch_size=4",
    "--training_fill_in_factor=0.01", "--learner_thread_count=1", "--save_replay=True",
)  # fmt: skip


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(3 * HANGS_S)
def test_a_run_of_ones_own_parts_alone_is_trained_resumed_and_tested(tmp_path):
    evaluated = ("--evaluate_every_steps=500", "--evaluation_games=1")
    status, output = run(tmp_path, *PARTS, *SMALL, *evaluated, "--environment_max_steps=1500")
    assert status == 0, output
    assert "evaluated at" in output
    assert "images of 24x26 pixels and 2 channels" in output
    folder = only_run(tmp_path)
    assert "game of 1 steps\n" in (folder / "short.txt").read_text("utf-8")
    drawn = records(folder)[-1]["values"]["replay/recent/draws"]
    assert drawn > 10

    resume = ("--op_mode=train_w_load", f"--load_model_url={folder}")
    status, output = run(tmp_path, *resume, "--environment_max_steps=2500")
    assert status == 2
    assert "which runs its code" in output, "nobody typed the names in this command"
    status, output = run(
        tmp_path, *resume, "--environment_max_steps=2500", "--trust_env_module=True"
    )
    assert status == 0, output
    last = records(folder)[-1]
    assert last["agent_steps"] >= 2500
    assert last["values"]["replay/recent/draws"] > drawn

    test = ("--op_mode=test", f"--load_model_url={folder}", "--test_episode_count=3")
    status, output = run(tmp_path, *test, PARTS[0], PARTS[2])  # no algorithm: nothing is learned
    assert status == 0, output
    assert "game 3/3" in output
