"""The interpreter: whether it fits, and how it is named in commands that are printed."""

import os
import subprocess
import sys

import pytest

from ritornello.core import project
from ritornello.core.this_python import check_python


def test_a_python_without_the_packages_gets_a_sentence():
    command = [sys.executable, "-S", "-E", str(project.PROJECT_ROOT / "main.py"), "--help"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert "has no numpy" in ended.stderr
    assert ".venv/bin/python" in ended.stderr


def test_a_python_that_is_too_old_gets_a_sentence(capsys, monkeypatch):
    check_python()
    monkeypatch.setattr(sys, "version_info", (3, 8, 1))
    with pytest.raises(SystemExit) as left:
        check_python()
    monkeypatch.undo()
    assert left.value.code == 2
    assert "is 3.8, expected 3.10 or newer" in capsys.readouterr().err


def test_printed_commands_name_the_interpreter_of_the_shell(tmp_path, monkeypatch):
    monkeypatch.setattr(project, "IS_CLONE", True)
    own = os.path.dirname(sys.executable)
    monkeypatch.setenv("PATH", f"{own}:/usr/bin:/bin")
    monkeypatch.chdir(project.PROJECT_ROOT)
    assert project.main_command() == "python main.py"
    assert project.sequence_command() == "python multi_train.py"
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # not activated: `python` is another one, or none
    assert project.main_command() == f"{project.as_typed(project.Path(sys.executable))} main.py"
    monkeypatch.chdir(tmp_path)
    assert project.main_command() == f"{sys.executable} {project.MAIN_PROGRAM}"
    assert project.sequence_command().endswith(str(project.PROJECT_ROOT / "multi_train.py"))
    monkeypatch.setattr(project, "IS_CLONE", False)
    assert project.main_command() == f"{sys.executable} -m ritornello"
    assert project.sequence_command() == f"{sys.executable} -m ritornello sequence"
