"""`python -m ritornello.live` as a program: what it says, and how it ends."""

import os
import signal
import socket
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from ritornello.live.__main__ import main
from tests.deadlines import HANGS_S
from tests.house import ROOT


@pytest.mark.process
@pytest.mark.parametrize("host", ["127.0.0.1", "::"])
def test_it_tells_its_address_and_ends_at_a_signal_with_success(tmp_path, host):
    program = subprocess.Popen(
        [sys.executable, "-m", "ritornello.live", str(tmp_path), f"--host={host}"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert program.stdout is not None
        address = urlsplit(program.stdout.readline().removeprefix("live page: "))
        socket.create_connection((address.hostname, address.port), HANGS_S).close()
        if host != "127.0.0.1":
            assert program.stdout.readline().startswith("It listens on ::")
        program.send_signal(signal.SIGINT)
        output, errors = program.communicate(timeout=HANGS_S)
        assert (program.returncode, output, errors) == (0, "", "")
    finally:
        program.kill()  # of a test that has failed
        program.communicate()


@pytest.mark.parametrize("given", [["--host="], ["--allow="], [""]])
def test_an_empty_text_is_refused_for_it_would_mean_every_address_or_this_folder(given, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*given, "--port=0"])
    assert ended.value.code == 2
    assert "it is empty" in capsys.readouterr().err
