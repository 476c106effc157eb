import re

import pytest

import multi_train
from ritornello.core import project
from ritornello.flags.group import marks_of
from ritornello.flags.help import MAIN_FLAGS, help_text
from ritornello.flags.names import topic_of
from ritornello.flags.options import GROUPS, Flags
from ritornello.flags.presets import PRESETS


def shown_name(name):
    return f"--{marks_of(Flags.model_fields[name]).also or name}=<"


def test_each_help_shows_its_flags_and_no_others():
    expected = {
        "": list(MAIN_FLAGS),
        "all": list(Flags.model_fields),
        **{group: list(flags.model_fields) for group, flags in GROUPS.items()},
    }
    for topic, names in expected.items():
        text = help_text(topic)
        assert [name for name in Flags.model_fields if shown_name(name) in text] == names, topic
    assert all(
        word in help_text() for word in ("--resume=", "--test=", "--unroll_length=", *PRESETS)
    )
    assert len(help_text().splitlines()) < 125


def test_the_default_replay_is_shown_as_it_can_be_typed():
    shown = re.search(r"--replay=<list> +\(default: (\S+);", help_text(width=200)).group(1)
    assert Flags(replay_parameters=shown).replay_parameters == Flags().replay_parameters


def test_an_installed_program_shows_examples_that_exist_there(monkeypatch, capsys):
    monkeypatch.setattr(project, "IS_CLONE", False)
    assert f"  {project.main_command()} --env=CartPole-v1 " in help_text()
    assert multi_train.main([]) == 2
    for text in (help_text(), capsys.readouterr().out):
        assert "python main.py" not in text
        assert "multi_train.py" not in text


@pytest.mark.parametrize(
    ("argv", "topic"),
    [
        (["--help"], ""),
        (["--lr=1", "--help=replay"], "replay"),
        (["--help", "replay"], "replay"),
        (["--lr=1"], None),
    ],
)
def test_help_is_asked_for_in_several_ways(argv, topic):
    assert topic_of(argv) == topic
