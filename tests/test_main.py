"""What main.py itself does around a command."""

import errno
import os
import re
import signal
import subprocess
import sys
import threading

import pytest

from ritornello import main
from ritornello.core.errors import CheckpointError, PlatformError
from tests.deadlines import HANGS_S
from tests.house import ROOT


def test_the_program_starts_itself_anew_with_the_whole_command_line(monkeypatch):
    """Or `python -m cProfile main.py` would profile nothing, and pdb would be gone."""
    started = []
    line = ["/usr/bin/python3", "-X", "importtime", "-m", "cProfile", "main.py", "--env=X"]
    monkeypatch.setattr(sys, "orig_argv", line)
    monkeypatch.setattr(sys, "argv", ["main.py", "--env=X"])
    monkeypatch.setattr(os, "execve", lambda *arguments: started.append(arguments))
    monkeypatch.setattr(
        "ritornello.core.process_settings.environment_to_restart_with", lambda: {"A": "1"}
    )
    main.restart_with_settings()
    assert started == [(sys.executable, [sys.executable, *line[1:]], {"A": "1"})]
    monkeypatch.setattr(
        "ritornello.core.process_settings.environment_to_restart_with", lambda: None
    )
    main.restart_with_settings()
    assert len(started) == 1


@pytest.mark.parametrize(
    ("error", "said", "advice"),
    [
        (OSError(errno.EMFILE, "Too many"), "Too many", "ulimit -n"),
        (OSError(errno.ENOSPC, "No space"), "No space", "make room"),
        (RuntimeError("can't start new thread"), "no more threads", "ulimit -u"),
    ],
)
def test_what_the_system_refuses_at_the_start_is_one_line_with_what_to_do(
    monkeypatch, capsys, error, said, advice
):
    def refuse(argv, place):
        raise error

    monkeypatch.setattr("ritornello.agent.session.prepare", refuse)
    assert main.main(["--env=CartPole-v1"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: the run could not be started: ")
    assert said in line
    assert advice in line


def test_a_crash_in_c_says_where_it_was():
    code = "import main; main.show_where_it_crashes(); import ctypes; ctypes.string_at(0)"
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, timeout=HANGS_S, check=False)
    assert done.returncode == -signal.SIGSEGV
    assert "Segmentation fault" in done.stderr
    assert "string_at" in done.stderr


def test_an_environment_that_raises_keyboard_interrupt_ends_without_a_traceback(
    monkeypatch, capsys
):
    def interrupt(argv, place):
        raise KeyboardInterrupt

    monkeypatch.setattr("ritornello.agent.session.prepare", interrupt)
    assert main.main(["--env=CartPole-v1"]) == 130
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("interrupted: ")


@pytest.mark.parametrize(("kind", "status"), [(CheckpointError, 2), (PlatformError, 1)])
def test_what_a_strangers_file_names_is_shown_as_text(monkeypatch, capsys, kind, status):
    def refuse(argv, place):
        raise kind(
            "é\x1b[2J │ of another network:\n  \x1b]0;owned\x07: expected nothing\nLeave it."
        )

    monkeypatch.setattr("ritornello.agent.session.prepare", refuse)
    assert main.main(["--env=CartPole-v1"]) == status
    first, second, last = capsys.readouterr().err.splitlines()
    assert first.endswith("é\\x1b[2J │ of another network:")
    assert second == "  \\x1b]0;owned\\x07: expected nothing"
    assert last.endswith("Leave it.")


def test_a_frozen_terminal_is_not_waited_for(monkeypatch):
    import termios

    ours, theirs = os.openpty()
    monkeypatch.setattr(sys, "stdout", os.fdopen(theirs, "w"))
    termios.tcflow(theirs, termios.TCOOFF)
    thread = threading.Thread(target=main.announce, args=("loading",), daemon=True)
    thread.start()
    thread.join(HANGS_S)
    hangs = thread.is_alive()
    termios.tcflow(theirs, termios.TCOON)
    sys.stdout.close()
    os.close(ours)
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
