"""The program `python -m ritornello.analysis`: results that cannot be written, and Ctrl-C."""

import pytest

from ritornello.agent.testing.player import Player
from ritornello.analysis import compare
from ritornello.analysis.__main__ import main as analysis
from tests.analysis.agents import write_agent
from tests.analysis.builders import write_run
from tests.house import ROOT


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Two agents and a run."""
    folder = tmp_path_factory.mktemp("places")
    agent, run = write_agent(folder / "agent"), write_run(folder / "run", seed=1)
    return {"agent": agent, "run": run, "pong": ROOT / "models" / "pong"}


COMMANDS = [
    "compare --runs={run}",
    "actions --load_model_url={agent}",
    "saliency --load_model_url={pong}",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_place_is_tried_before_the_work_and_ctrl_c_is_one_line(
    command, places, tmp_path, monkeypatch, capsys
):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Player, "step", interrupted)
    monkeypatch.setattr(compare, "find_runs", interrupted)
    words = command.format(**places).split()
    file = tmp_path / "file"
    file.write_text("mine")
    for output in (file, file / "below"):
        assert analysis([*words, f"--output={output}"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"cannot be written to {output} " in line
    assert analysis([*words, f"--output={tmp_path / 'out'}"]) == 130
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("python -m ritornello.analysis: interrupted: ")


@pytest.mark.parametrize(
    "command",
    [
        "attention --load_model_url={agent}",
        "features --of=replay --load_model_url={agent}",
        "compare --runs={agent}",
    ],
)
def test_a_command_that_refuses_leaves_no_empty_folder(command, places, tmp_path):
    words = command.format(**places).split()
    (tmp_path / "mine").mkdir()
    assert analysis([*words, f"--output={tmp_path}/new/below"]) == 2
    assert analysis([*words, f"--output={tmp_path}/mine"]) == 2
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"]
