"""What tests that run sequences share."""

import pytest

from ritornello.sequences import runner


@pytest.fixture
def use_main(tmp_path, monkeypatch):
    """Run a program of this text in the place of main.py, and look at it often."""

    def use(text):
        path = tmp_path / "fake_main.py"
        path.write_text(text)
        monkeypatch.setattr("ritornello.core.project.MAIN_PROGRAM", path)
        monkeypatch.setattr(runner, "POLL_S", 0.02)

    return use
