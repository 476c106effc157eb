"""How a session ends once all is trained and saved (agent/run/training.py)."""

import json

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


@pytest.mark.parametrize(
    ("draw", "status"), [(list, 0), (interrupted, INTERRUPTED), (impossible, 0)]
)
def test_charts_come_after_the_summary_and_end_no_run(folder, monkeypatch, draw, status):
    assert finish(folder, monkeypatch, draw) == (status, [Answer.RAISE])
    assert folder.summary_file.exists()
