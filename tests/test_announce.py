from __future__ import annotations

import os
import re
import subprocess
import sys
import threading

import pytest

from ritornello import main
from tests.deadlines import HANGS_S
from tests.house import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="terminals of Unix")


@pytest.fixture
def terminal():
    """Yield (reading end, stdout) of a terminal."""
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as stdout:
        yield ours, stdout
    os.close(ours)


def test_a_frozen_terminal_is_not_waited_for(terminal, monkeypatch):
    import termios

    monkeypatch.setattr(sys, "stdout", terminal[1])
    termios.tcflow(terminal[1].fileno(), termios.TCOOFF)
    thread = threading.Thread(target=main.announce, args=("loading",), daemon=True)
    thread.start()
    thread.join(HANGS_S)
    hangs = thread.is_alive()
    termios.tcflow(terminal[1].fileno(), termios.TCOON)
    assert not hangs


def test_a_file_a_closed_output_and_none_are_told_nothing(monkeypatch, tmp_path):
    with (tmp_path / "out").open("w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        main.announce("loading")
    main.announce("loading")  # closed by now
    monkeypatch.setattr(sys, "stdout", None)
    main.announce("loading")
    assert (tmp_path / "out").read_text() == ""


def test_a_mistake_in_a_name_is_told_before_pytorch_is_loaded():
    command = [sys.executable, "-X", "importtime", "main.py", "--batchsize=4"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S)
    assert done.returncode == 2
    assert "did you mean --batch_size" in done.stderr
    loaded = re.findall(r"\| +([\w.]+)$", done.stderr, re.MULTILINE)
    assert "pydantic" in loaded
    assert "torch" not in loaded
