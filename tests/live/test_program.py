"""`python -m ritornello.live` as a program: what it says, and how it ends."""

import os
import signal
import subprocess
import sys

import pytest

from tests.deadlines import HANGS_S
from tests.house import ROOT


@pytest.mark.process
def test_it_tells_its_address_and_ends_at_a_signal_with_success(tmp_path):
    program = subprocess.Popen(
        [sys.executable, "-m", "ritornello.live", str(tmp_path)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert program.stdout is not None
    assert program.stdout.readline().startswith("live page: http://127.0.0.1:")
    program.send_signal(signal.SIGINT)
    output, errors = program.communicate(timeout=HANGS_S)
    assert (program.returncode, output, errors) == (0, "", "")
