"""What cannot be shared is refused in one sentence, before anything is made."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ritornello.agent.algorithms.impala import Impala
from ritornello.agent.run.sharing import check_sharing, make_exchange
from ritornello.agent.session import prepare
from ritornello.agent.sharing.exchange import Exchange
from ritornello.core.errors import ConfigError
from tests.agent.runs import make_blueprint
from tests.integration.commands import SMALL


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--agent_number=2"], "--agent_number=2 with --agent_count=2"),
        (["--agent_count=1", "--agent_number=0"], "leaves nobody to share with"),
        (["--reproducible=True"], "--reproducible=True"),
        (["--use_lstm=True"], "--burn_in_steps"),
        (["--use_policy_cloning_loss=True"], "leave out --use_policy_cloning_loss"),
        (['--replay_parameters=[{"type": "queue", "capacity": 4, "sample_ratio": 1}]'], "standard"),
        (
            [
                '--replay_parameters=[{"type": "queue", "capacity": 4, "sample_ratio": 0.5}, '
                '{"type": "elite", "capacity": 90, "sample_ratio": 0.5}]'
            ],
            "policy_kl",
        ),
    ],
)
def test_what_cannot_be_shared_is_refused_before_anything_is_made(
    tmp_path: Path, flags: list[str], sentence: str
) -> None:
    share = [f"--share_replay_in={tmp_path / 'exchange'}", "--agent_count=2"]
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        prepare([*SMALL, f"--results_dir={tmp_path / 'results'}", *share, *flags])
    assert not (tmp_path / "results").exists()
    assert not (tmp_path / "exchange").exists()


def test_a_share_without_anybody_to_share_with_is_refused() -> None:
    with pytest.raises(ConfigError, match="--foreign_share=0.5 needs --share_replay_in"):
        prepare([*SMALL, "--foreign_share=0.5"])


def test_an_agent_can_share_with_the_features_of_nobody_and_with_burn_in(tmp_path: Path) -> None:
    share = [f"--share_replay_in={tmp_path / 'exchange'}", "--agent_count=2"]
    prepare([*SMALL, *share, "--use_lstm=True", "--burn_in_steps=2"])
    buffers = (
        '[{"type": "queue", "capacity": 4, "sample_ratio": 0.5}, {"type": "elite", "capacity": 90, '
        '"sample_ratio": 0.5, "dist_function": "policy_kl"}]'
    )
    prepare([*SMALL, *share, f"--replay_parameters={buffers}"])


def test_an_agent_knows_the_others_by_number_and_divides_the_machine(tmp_path: Path) -> None:
    shared = {"share_replay_in": str(tmp_path / "exchange"), "agent_count": 3, "agent_number": 1}
    blueprint = make_blueprint(**shared)
    check_sharing(blueprint)
    assert isinstance(make_exchange(blueprint), Exchange)
    algorithm = blueprint.learner().algorithm
    assert isinstance(algorithm, Impala)
    assert algorithm.agents == {-1: "agent_1", 0: "agent_0", 2: "agent_2"}
    assert make_exchange(make_blueprint()) is None
    assert not make_blueprint().learner().algorithm.agents
