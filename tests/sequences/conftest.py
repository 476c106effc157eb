"""What tests that run sequences share."""

from pathlib import Path

import pytest

from ritornello.sequences import runner


@pytest.fixture
def use_main(tmp_path, monkeypatch):
    """Run a program of this text in the place of main.py, and look at it often; return its file."""

    def use(text):
        path = tmp_path / "fake_main.py"
        path.write_text(text)
        monkeypatch.setattr("ritornello.core.project.MAIN_PROGRAM", path)
        monkeypatch.setattr(runner, "POLL_S", 0.02)
        return path

    return use


@pytest.fixture
def false_trainer(use_main):
    """Run false_trainer.py in the place of main.py; the file may be changed."""
    return use_main(Path(__file__).with_name("false_trainer.py").read_text())
