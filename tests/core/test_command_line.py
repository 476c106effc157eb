from __future__ import annotations

import argparse

import pytest

from core.command_line import add_switch


@pytest.mark.parametrize(
    ("arguments", "value"),
    [([], False), (["--on"], True), (["--on=true"], True), (["--on", "False"], False)],
)
def test_a_switch_is_named_or_given_a_value(arguments: list[str], value: bool) -> None:
    parser = argparse.ArgumentParser()
    add_switch(parser, "--on", "does it")
    assert parser.parse_args(arguments).on is value


def test_what_is_neither_true_nor_false_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_switch(parser, "--on", "does it", default=True)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--on=maybe"])
    assert ended.value.code == 2
    assert "'maybe' is neither True nor False" in capsys.readouterr().err
