import csv
import json

import pytest

from ritornello.agent.assembly import Blueprint
from ritornello.agent.export import export
from ritornello.agent.stored.checkpoint import load
from ritornello.agent.stored.model_file import load_model
from ritornello.agent.testing.evaluator import evaluate
from ritornello.flags.options import Flags
from tests.integration.commands import comparable, only_run, records, run
from tests.integration.test_reproducible import ELITE, assert_same_weights, evaluations, trained
from tests.live.client import Browser

REACH, MIXED = "--env=tests.worlds:tests/Reach-v0", "--env=tests.worlds:tests/Mixed-v0"
FLAGS = (
    REACH, f"--replay_parameters={ELITE}", "--use_lstm=True", "--lstm_size=8",
    "--save_model_period=20", "--evaluate_every_steps=500", "--evaluation_games=2",
    "--policy_cloning_loss_weight=0.01",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.process
def test_a_run_of_real_numbers_is_resumed_to_the_bit_with_its_evaluations(tmp_path):
    straight = trained(tmp_path / "a", 1200, *FLAGS)
    halfway = trained(tmp_path / "b", 600, *FLAGS)
    assert len(comparable(halfway)) < len(comparable(straight))
    status, output = run(
        tmp_path / "b", "--op_mode=train_w_load", f"--load_model_url={halfway}",
        "--environment_max_steps=1200", "--trust_env_module=True",
    )  # fmt: skip
    assert status == 0, output
    assert comparable(halfway) == comparable(straight)
    assert evaluations(halfway) == evaluations(straight)
    assert len(evaluations(straight)) == 1 + 2 * 2
    assert_same_weights(straight, halfway)
    assert "policy/entropy_fraction" not in records(straight)[-1]["values"]
    check_that_it_is_tested_and_shipped(straight, tmp_path)
    check_that_the_page_shows_it(straight)


def check_that_it_is_tested_and_shipped(folder, tmp_path):
    """Test mode plays the same games with the checkpoint and with the model made of it."""
    checkpoint = load(folder)
    shipped = tmp_path / "model"
    facts = export(load(folder), shipped)
    assert list(facts["env_spec"]["action_parts"]) == [{"kind": "numbers", "count": 2}]
    played = []
    for name, agent in (("checkpoint", checkpoint), ("model", load_model(shipped))):
        flags = {**agent.state["flags"], "test_episode_count": 3, "load_model_url": None}
        blueprint = Blueprint.draw(Flags(**{**flags, "op_mode": "train"}))
        (report,) = evaluate(blueprint, agent, tmp_path / name, show=lambda line: None)
        assert report.episodes == 3
        (table,) = (tmp_path / name).glob("test_*.csv")
        with table.open() as file:
            played.append([row["fingerprint"] for row in csv.DictReader(file)])
    assert len(set(played[0])) == 3
    assert played[0] == played[1]


def check_that_the_page_shows_it(folder):
    """All its records, of which the entropy of numbers is one; and what was evaluated."""
    browser = Browser(folder.parent).enter()
    names = "policy/entropy,policy/entropy_fraction"
    shown = browser.get("/api/rows", params={"run": folder.name, "names": names}).json()
    wanted = [record["values"]["policy/entropy"] for record in records(folder)]
    assert shown["columns"]["policy/entropy"] == pytest.approx(wanted, rel=1e-5)
    assert list(shown["columns"]) == ["policy/entropy"]  # of numbers there is no highest entropy


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(("env", "inference"), [(REACH, "server"), (MIXED, "worker")])
def test_workers_and_servers_act_in_processes_of_their_own(tmp_path, env, inference):
    status, output = run(
        tmp_path, env, "--seed=3", "--worker_count=2", "--envs_per_worker=2", "--r_f_steps=5",
        "--batch_size=4", "--feature_out_layer_size=16", "--training_fill_in_factor=0.01",
        "--learner_thread_count=1", f"--inference={inference}", "--environment_max_steps=2000",
        "--debug=True",
    )  # fmt: skip
    assert status == 0, output
    summary = json.loads((only_run(tmp_path) / "summary.json").read_text("utf-8"))
    assert summary["agent_steps"] >= 2000
