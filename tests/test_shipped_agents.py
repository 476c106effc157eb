"""The agents in models/: each is whole, was tested, and is named where a reader looks."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from ritornello import load_agent
from ritornello.agent.stored.model_file import FACTS, WEIGHTS, load_model
from ritornello.core.plain_data import parse_json, read_text
from tests.house import ROOT

FOLDERS = sorted(path.parent for path in (ROOT / "models").glob(f"*/{FACTS}"))


def facts_of(folder: Path) -> dict:
    facts = parse_json(read_text(folder / FACTS, "the facts"), "the facts")
    assert isinstance(facts, dict)
    return facts


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_shipped_agent_is_whole_and_small(folder: Path) -> None:
    model = load_model(folder)  # checks the sum of the weights
    assert model.state["env_spec"]["env_id"].lower().startswith(folder.name)
    assert (folder / WEIGHTS).stat().st_size < 8e6  # a clone stays small
    text = (folder / FACTS).read_text("utf-8")
    assert not re.search(r"/(root|home|Users)/", text), "a path of the machine"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_shipped_agent_was_tested_in_many_games(folder: Path) -> None:
    test = facts_of(folder)["test"]
    assert test["policy"] == "sampled"
    assert test["episodes"] >= 100
    assert test["distinct_games"] == test["episodes"]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_shipped_agent_is_found_by_a_reader(folder: Path) -> None:
    row = f"| [{folder.name}]({folder.name}) |"
    assert row in (ROOT / "models" / "README.md").read_text("utf-8")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_shipped_agent_acts(folder: Path) -> None:
    agent = load_agent(str(folder))
    spec = facts_of(folder)["env_spec"]
    agent.reset()
    for seed in range(3):
        frame = np.random.default_rng(seed).integers(0, 256, spec["frame_shape"], np.uint8)
        assert 0 <= agent.act(frame) < len(spec["action_meanings"])
