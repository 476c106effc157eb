import pytest
import torch

from ritornello.agent.stored.checkpoint import load
from tests.integration.commands import SMALL, comparable, only_run, run

ELITE = (
    '[{"type":"queue","capacity":1,"sample_ratio":0.5},'
    '{"type":"elite","capacity":50,"sample_ratio":0.25},'
    '{"type":"attentive","capacity":50,"sample_ratio":0.25}]'
)


def trained(results, steps, *flags):
    env = [flag for flag in flags if flag.startswith("--env=")]
    small = [flag for flag in SMALL if not (env and flag.startswith("--env="))]
    status, output = run(
        results, *small, "--reproducible=True", f"--environment_max_steps={steps}", *flags
    )
    assert status == 0, output
    return only_run(results)


def assert_same_weights(one, other):
    ours, theirs = (load(folder).state["learner"] for folder in (one, other))
    assert ours["model"].keys() == theirs["model"].keys()
    for name, tensor in ours["model"].items():
        assert torch.equal(tensor, theirs["model"][name]), name


def evaluations(folder):
    """The rows of evaluations.csv but for their times."""
    lines = (folder / "evaluations.csv").read_text("utf-8").splitlines()
    return [line.partition(",")[2] for line in lines]


def without_evaluation(folder):
    return [
        {name: value for name, value in record.items() if not name.startswith("evaluation/")}
        for record in comparable(folder)
    ]


@pytest.mark.slow
@pytest.mark.process
def test_evaluation_changes_nothing_in_the_training_and_is_itself_repeated_to_the_bit(tmp_path):
    flags = ("--save_model_period=20",)
    wanted = (*flags, "--evaluate_every_steps=250", "--evaluation_games=2")
    plain = trained(tmp_path / "plain", 1200, *flags)
    straight = trained(tmp_path / "straight", 1200, *wanted)
    assert without_evaluation(straight) == comparable(plain)
    assert_same_weights(straight, plain)
    assert len(evaluations(straight)) == 1 + 2 * (1200 // 250)

    halfway = trained(tmp_path / "halfway", 600, *wanted)
    assert len(evaluations(halfway)) == 1 + 2 * 2
    status, output = run(
        tmp_path / "halfway", "--op_mode=train_w_load", f"--load_model_url={halfway}",
        "--environment_max_steps=1200", "--trust_env_module=True",
    )  # fmt: skip
    assert status == 0, output
    assert evaluations(halfway) == evaluations(straight)
    assert comparable(halfway) == comparable(straight)
    best = [
        (folder / "best_evaluated" / "model.safetensors").read_bytes()
        for folder in (straight, halfway)
    ]
    assert best[0] == best[1]
