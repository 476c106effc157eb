import argparse
import os
import subprocess
import sys

import pytest

from ritornello.core.command_line import add_switch, counted, tell, with_home
from tests.deadlines import HANGS_S
from tests.house import ROOT


@pytest.mark.parametrize(
    ("arguments", "value"),
    [([], False), (["--on"], True), (["--on=true"], True), (["--on", "False"], False)],
)
def test_a_switch_is_named_or_given_a_value(arguments, value):
    parser = argparse.ArgumentParser()
    add_switch(parser, "--on", "does it")
    assert parser.parse_args(arguments).on is value


def test_one_thing_has_no_s():
    assert [counted(n, "game") for n in (0, 1, 2)] == ["0 games", "1 game", "2 games"]


def test_what_is_neither_true_nor_false_is_refused(capsys):
    parser = argparse.ArgumentParser()
    add_switch(parser, "--on", "does it", default=True)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--on=maybe"])
    assert ended.value.code == 2
    assert "'maybe' is neither True nor False" in capsys.readouterr().err


@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_a_terminal_would_obey_is_told_as_text(is_terminal, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal, raising=False)
    tell("left out: \x1b]0;owned\x07\r é │ \x9b2J\n  a second line: \udcff" + "x" * 20_000)
    first, *others = capsys.readouterr().out.splitlines()
    assert first == "left out: \\x1b]0;owned\\x07\\r é │ \\x9b2J"
    assert others[0].startswith("  a second line:")
    assert "\\udcffxxx" in "".join(others)
    assert len("".join(others)) < 11_000


def test_a_reader_that_wants_no_more_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "main.py", "--help=all"],
            cwd=ROOT,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=HANGS_S,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("--output=~/a", "--output=/home/me/a"),
        ("--runs=a=~/b", "--runs=a=~/b"),
        ("~other/a", "~other/a"),
    ],
)
def test_a_tilde_is_expanded_where_a_path_begins(monkeypatch, given, expected):
    monkeypatch.setenv("HOME", "/home/me")
    assert with_home([given]) == [expected]


@pytest.mark.parametrize(
    ("environment", "shown"),
    [
        ({"PYTHONIOENCODING": "latin-1"}, "é ? ?".encode("latin-1")),
        ({"PYTHONUTF8": "0", "LC_ALL": "C"}, b"? ? ?"),
    ],
)
def test_a_character_that_the_output_lacks_is_a_question_mark_and_no_traceback(
    tmp_path, environment, shown
):
    file = tmp_path / "of two.yaml"
    file.write_text("runs: [{name: é – α, flags: {env: CartPole-v1}}]", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, ROOT / "multi_train.py", f"--sequence={file}", "--dry_run"],
        capture_output=True, timeout=HANGS_S, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"  1  " + shown + b", seed 1\n" in done.stdout
