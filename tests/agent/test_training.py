"""How a session ends once all is trained and saved (agent/run/training.py)."""

import json
from dataclasses import replace

import pytest

from agent.run import training
from agent.run.trainer import Summary
from agent.stored.run_folder import RunFolder
from core.stop_signals import INTERRUPTED, Answer, StopSignals
from tests.agent.runs import make_blueprint

SUMMARY = Summary("steps", 100, 100, 5, 2, 3.0, 1.0, 1.0, 2.0, 30.0, ())


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path, "Test-v0")


def finish(folder, monkeypatch, draw):
    """Return (exit status, what a signal would do while charts are drawn)."""
    stop, answers = StopSignals(), []

    def drawn(path):
        answers.append(stop.answer)
        assert json.loads(folder.summary_file.read_text())["reason"] == "steps"
        return draw(path)

    monkeypatch.setattr(training, "draw_run", drawn)
    flags = make_blueprint(charts=True).flags
    with stop.answered_by(Answer.NOTE):
        status = training._finish(SUMMARY, folder, flags, stop)
        assert stop.answer is Answer.NOTE
    return status, answers


def interrupted(path):
    raise KeyboardInterrupt


def impossible(path):
    raise RuntimeError("no font")


@pytest.mark.parametrize(("reason", "steps"), [("steps", 200), ("interrupted", None)])
def test_the_command_that_resumes_a_run_is_one_that_is_honoured(folder, caplog, reason, steps):
    caplog.set_level("INFO")
    (folder.checkpoints / "update_000000005.pt").touch()
    flags = make_blueprint(environment_max_steps=100).flags
    training._log_end(replace(SUMMARY, reason=reason), folder, flags)
    (resume,) = [line for line in caplog.messages if line.startswith("resume: ")]
    more = f" \\\n  --environment_max_steps={steps}" if steps else ""
    assert resume.endswith(f"--load_model_url={folder.path}{more}")


def test_one_of_a_thing_is_one(caplog):
    caplog.set_level("INFO")
    assert training._counted(1, "worker") == "1 worker"
    assert training._counted(2, "worker") == "2 workers"


@pytest.mark.parametrize(
    ("draw", "status"), [(list, 0), (interrupted, INTERRUPTED), (impossible, 0)]
)
def test_charts_come_after_the_summary_and_end_no_run(folder, monkeypatch, draw, status):
    assert finish(folder, monkeypatch, draw) == (status, [Answer.RAISE])
    assert folder.summary_file.exists()
