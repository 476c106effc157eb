"""The agents in models/: each is whole, was tested, and is named where a reader looks."""

import re

import numpy as np
import pytest

from ritornello import load_agent
from ritornello.agent.stored.model_file import FACTS, WEIGHTS, load_model
from ritornello.core.plain_data import parse_json, read_text
from tests.house import ROOT

FOLDERS = sorted(path.parent for path in (ROOT / "models").glob(f"*/{FACTS}"))


def facts_of(folder):
    facts = parse_json(read_text(folder / FACTS, "the facts"), "the facts")
    assert isinstance(facts, dict)
    return facts


def test_the_shipped_agents_are_whole_small_well_tested_and_found_by_a_reader():
    assert FOLDERS
    readme = (ROOT / "models" / "README.md").read_text("utf-8")
    for folder in FOLDERS:
        model = load_model(folder)  # checks the sum of the weights
        assert model.state["env_spec"]["env_id"].lower().startswith(folder.name)
        assert (folder / WEIGHTS).stat().st_size < 8e6  # a clone stays small
        text = (folder / FACTS).read_text("utf-8")
        assert not re.search(r"/(root|home|Users)/", text), f"{folder}: a path of the machine"
        test = facts_of(folder)["test"]
        assert test["policy"] == "sampled", folder
        assert test["distinct_games"] == test["episodes"] >= 100, folder
        assert f"| [{folder.name}]({folder.name}) |" in readme


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_shipped_agent_acts(folder):
    agent = load_agent(str(folder))
    spec = facts_of(folder)["env_spec"]
    agent.reset()
    for seed in range(3):
        frame = np.random.default_rng(seed).integers(0, 256, spec["frame_shape"], np.uint8)
        assert 0 <= agent.act(frame) < len(spec["action_meanings"])
