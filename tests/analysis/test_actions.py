import json

import numpy as np
import pytest
import torch

from ritornello.analysis import actions
from ritornello.analysis.actions import main
from ritornello.core.errors import ConfigError
from tests.analysis.agents import draw_blueprint, write_agent, write_model


def write_decided(folder, logits):
    """Write an agent of CartPole whose policy is the same everywhere."""
    blueprint = draw_blueprint()
    model = blueprint.model()
    with torch.no_grad():
        model.policy_head.weight.zero_()
        model.policy_head.bias.copy_(torch.tensor(logits))
    return write_model(folder, blueprint, model)


def read(folder):
    data = json.loads((folder / "actions.json").read_text())
    return {one["agent"]: one for one in data["agents"]}


def test_shares_are_of_what_was_done_and_probabilities_of_what_was_meant(tmp_path):
    right = write_decided(tmp_path / "right", [-50.0, 50.0])
    mixed = write_decided(tmp_path / "mixed", [0.0, float(np.log(3))])
    places = f"always={right},{mixed}"
    output = tmp_path / "out"
    assert main([f"--load_model_url={places}", "--games=40", f"--output={output}"]) == 0
    agents = read(output)
    always, mixed_report = agents["always"], agents["mixed"]
    assert always["actions"]["1"]["share"] == {"mean": 1.0, "low": 1.0, "high": 1.0}
    assert always["entropy_nats"]["mean"] == pytest.approx(0.0, abs=1e-6)
    # Always to the right, the pole falls within 8 to 11 steps, and each pays 1.
    assert 8 <= always["return_mean"] <= 11
    assert always["steps"] == 40 * always["return_mean"]
    assert always["games_ended"] == always["games"] == 40
    share = mixed_report["actions"]["1"]["share"]
    assert share["low"] < share["mean"] < share["high"]
    assert share["mean"] == pytest.approx(0.75, abs=0.1)
    assert mixed_report["actions"]["1"]["probability"]["mean"] == pytest.approx(0.75)
    expected = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    assert mixed_report["entropy_nats"]["mean"] == pytest.approx(expected)
    total = sum(one["share"]["mean"] for one in mixed_report["actions"].values())
    assert total == pytest.approx(1.0)
    assert (output / "actions.png").stat().st_size > 5000


def test_long_games_are_cut(tmp_path, monkeypatch):
    agent = write_agent(tmp_path / "agent")
    arguments = [f"--load_model_url={agent}", "--games=2", f"--output={tmp_path / 'out'}"]
    monkeypatch.setattr(actions, "MAX_STEPS", 3)
    assert main(arguments) == 0
    agents = read(tmp_path / "out")
    assert agents["agent"]["steps"] == 6
    assert agents["agent"]["games_ended"] == 0
    assert agents["agent"]["return_mean"] is None


def test_actions_of_which_none_is_chosen_are_refused_in_words(tmp_path):
    agent, folder = write_agent(tmp_path / "agent", env="Pendulum-v1"), tmp_path / "out"
    with pytest.raises(ConfigError, match="expected one of so many actions"):
        main([f"--load_model_url={agent}", f"--output={folder}"])
    assert not folder.exists()
