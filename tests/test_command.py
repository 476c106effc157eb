"""The command `ritornello` of an installed package."""

import os
import sys

import pytest

from ritornello.__main__ import command_of, main


@pytest.mark.parametrize(
    ("typed", "program"),
    [
        (["train", "--seed=1"], ["ritornello.main", "--op_mode=train", "--seed=1"]),
        (["resume", "r", "--lr=1"], ["ritornello.main", "--resume=r", "--lr=1"]),
        # main.py then says that --resume needs a value
        (["resume"], ["ritornello.main", "--resume="]),
        (["test", ""], ["ritornello.main", "--test="]),
        (
            ["test", "--load_model_url=r"],
            ["ritornello.main", "--op_mode=test", "--load_model_url=r"],
        ),
        (["sequence", "smoke"], ["ritornello.multi_train", "--sequence=smoke"]),
        (["multi_train", "--sequence=a"], ["ritornello.multi_train", "--sequence=a"]),
        (["compare", "--runs=a"], ["ritornello.analysis", "compare", "--runs=a"]),
        (["--seed=1"], ["ritornello.main", "--seed=1"]),
    ],
)
def test_a_word_means_a_program_and_its_arguments(typed, program):
    assert command_of(typed) == program


@pytest.mark.parametrize(
    ("word", "hint"), [("trian", "did you mean train?"), ("xyz", "expected train, resume, test,")]
)
def test_a_word_that_is_none_is_refused(word, hint, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["ritornello", word])
    monkeypatch.setattr(os, "execv", lambda *line: pytest.fail(f"{line} was started"))
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith(f"error: there is no command '{word}'; {hint}")
