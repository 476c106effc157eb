import importlib
import json
import shlex
from dataclasses import replace

import pytest

from ritornello.agent.run.messages import log_end
from ritornello.agent.run.trainer import Summary
from ritornello.agent.run.training import Session
from ritornello.agent.session import prepare
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core.project import main_command
from ritornello.core.stop_signals import INTERRUPTED, Answer, StopSignals
from ritornello.flags.options import Flags
from ritornello.flags.parsing import parse
from ritornello.replay.registry import KINDS
from ritornello.wrappers import trusted_modules
from ritornello.wrappers.trusted_modules import trust_forgotten
from tests.agent.runs import COUNTING, QUEUE_AND_STANDARD, make_blueprint

SUMMARY = Summary("steps", 100, 100, 5, 2, 3.0, 1.0, 1.0, 2.0, 30.0, ())


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path, "Test-v0")


def interrupted(path):
    raise KeyboardInterrupt


def impossible(path):
    raise RuntimeError("no font")


@pytest.mark.parametrize(
    ("reason", "done", "steps"),
    [
        ("steps", 100, 200),
        ("steps", 1224, 1225),  # to fill the buffers took more than was asked for
        ("interrupted", 50, None),
    ],
)
def test_the_command_that_resumes_a_run_is_one_that_is_honoured(
    folder, caplog, reason, done, steps
):
    caplog.set_level("INFO")
    (folder.checkpoints / "update_000000005.pt").touch()
    flags = make_blueprint(environment_max_steps=100).flags
    log_end(replace(SUMMARY, reason=reason, agent_steps=done), folder, flags)
    (resume,) = [line for line in caplog.messages if line.startswith("resume: ")]
    more = f" \\\n  --environment_max_steps={steps}" if steps else ""
    assert resume.endswith(f"--resume={folder.path} \\\n  --env={COUNTING}{more}")


def test_the_command_that_resumes_a_run_sends_its_records_where_they_went(folder, caplog):
    caplog.set_level("INFO")
    (folder.checkpoints / "update_000000005.pt").touch()
    flags = make_blueprint(sink="wandb,tests.extensions.own_outputs:short").flags
    log_end(replace(SUMMARY, reason="interrupted"), folder, flags)
    (resume,) = [line for line in caplog.messages if line.startswith("resume: ")]
    assert resume.endswith(" --sink=wandb,tests.extensions.own_outputs:short")


@pytest.fixture
def own_kind(monkeypatch):
    """The example's kind of replay, whatever other tests have taken from the registry."""
    module = importlib.import_module("tests.extensions.replay_kind")
    monkeypatch.setitem(KINDS, "recent", module.Recent)


OWN_REPLAY = [
    QUEUE_AND_STANDARD[0],
    {"type": "tests.extensions.replay_kind:recent", "capacity": 40, "sample_ratio": 0.5},
]
OF_MODULES = {
    "env": COUNTING,
    "model": "tests.extensions.own_network:wide",
    "algorithm": "tests.extensions.own_algorithm:ppo",
    "replay_parameters": OWN_REPLAY,
    "env_kwargs": '{"map_name": "it\'s 8x8"}',
}


@pytest.mark.usefixtures("own_kind")
def test_the_commands_type_again_what_no_file_may_ask_for(tmp_path, caplog):
    caplog.set_level("INFO")
    folder = RunFolder.create(tmp_path / "my results", "Test-v0")
    (folder.checkpoints / "update_000000005.pt").touch()
    with trust_forgotten():
        trusted_modules.trust_every_module()
        flags = Flags(**OF_MODULES)
        log_end(replace(SUMMARY, reason="interrupted"), folder, flags)
    commands = [
        line.partition(": ")[2] for line in caplog.messages if line.startswith(("resume:", "test:"))
    ]
    assert len(commands) == 2
    for command in commands:
        with trust_forgotten():
            trusted_modules._trusted.clear()
            argv = shlex.split(command.replace("\\\n", " "))
            assert argv[:2] == main_command().split()
            repeated = parse(argv[2:], lambda *_: flags.to_json())
        assert repeated.load_model_url == str(folder.path)
        for name in OF_MODULES if repeated.op_mode == "train_w_load" else ("env", "model"):
            assert getattr(repeated, name) == getattr(flags, name)


@pytest.mark.parametrize(
    ("draw", "status"), [(list, 0), (interrupted, INTERRUPTED), (impossible, 0)]
)
def test_charts_come_after_the_summary_and_end_no_run(folder, monkeypatch, draw, status):
    stop, answers = StopSignals(), []

    def drawn(path):
        answers.append(stop.answer)
        assert json.loads(folder.summary_file.read_text())["reason"] == "steps"
        return draw(path)

    monkeypatch.setattr("ritornello.metrics.charts.draw_run", drawn)
    with stop.answered_by(Answer.NOTE):
        session = Session(make_blueprint(charts=True), None, [])
        assert session._finish(SUMMARY, folder, stop) == status
        assert stop.answer is Answer.NOTE
    assert answers == [Answer.RAISE]


def test_a_run_that_learns_nothing_is_no_success(tmp_path, capfd):
    argv = [
        *("--env=CartPole-v1", "--reproducible=True", "--environment_max_steps=10", "--seed=1"),
        *(f"--results_dir={tmp_path}", "--charts=False", "--tensorboard=False"),
    ]
    assert prepare(argv).run() == 1
    said = capfd.readouterr().err
    assert "no update was made: " in said
    assert "--environment_max_steps" in said
    assert replace(SUMMARY, updates=0, reason="interrupted").status == 130
    assert replace(SUMMARY, updates=0).status == 1
    assert SUMMARY.status == 0


@pytest.mark.parametrize("more", [4, 100])
def test_a_resumed_session_that_learns_nothing_says_so(tmp_path, more):
    argv = [
        *("--env=CartPole-v1", "--reproducible=True", "--seed=1", "--replay=queue:4:1"),
        *("--envs_per_worker=1", "--batch_size=2", "--r_f_steps=5", "--charts=False"),
        *(f"--results_dir={tmp_path}", "--tensorboard=False"),
    ]
    assert prepare([*argv, "--environment_max_steps=40"]).run() == 0
    (run,) = tmp_path.iterdir()
    saved = json.loads((run / "summary.json").read_text())["agent_steps"]
    assert prepare([f"--resume={run}", f"--environment_max_steps={saved + more}"]).run() == 0
    said = (run / "train.log").read_text()
    assert ("this session made no update" in said) == (more == 4), said


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt(), INTERRUPTED), (OSError("disk full"), 1)]
)
def test_a_test_of_all_checkpoints_that_ends_early_says_how_it_goes_on(
    folder, monkeypatch, capsys, error, status
):
    def fail(*_):
        raise error

    monkeypatch.setattr(Session, "test", fail)
    monkeypatch.setattr(Session, "_test_folder", lambda self: folder.path)
    blueprint = make_blueprint(op_mode="test", load_model_url="some", test_all_checkpoints=True)
    assert Session(blueprint, None, []).run() == status
    said = capsys.readouterr().err
    assert f"what was finished is in {folder.path / 'scores.csv'}; the same command goes" in said
    assert status == INTERRUPTED or said.startswith("error: disk full\n")
