from __future__ import annotations

import re

import pytest

from ritornello import main
from ritornello.core.errors import ConfigError
from ritornello.flags.help import FAMILIES, MAIN_FLAGS, flag_groups, help_text, topic_of
from ritornello.flags.options import EFFECTS, GROUPS, Flags
from ritornello.flags.presets import PRESETS, describe

TOPICS = ("", "all", "presets", *GROUPS)


def in_one_line(text: str) -> str:
    return " ".join(text.split())


def flags_in(text: str) -> list[str]:
    return re.findall(r"^  --(\w+)=<", text, re.MULTILINE)


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("topic", TOPICS)
def test_every_help_is_wrapped(topic, width):
    lines = help_text(topic, width).splitlines()
    # What cannot be broken is a value without a blank.
    assert not [line for line in lines if len(line) > width and " " in line.strip()]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("replay_parameters", "JSON list"),
        ("frame_scale_resolution", "height,width"),
        ("env_shares", "number,number,..."),
        ("debug", "True | False"),
        ("use_last_action", "auto | True | False"),
        ("cache_output_buffer_size", "auto | int"),
        ("inference", "auto | worker | server"),
        ("precision", "bf16 | fp32 | auto"),
        ("lr", "float"),
        ("batch_size", "int"),
        ("seed", "int"),
        ("env", "text"),
    ],
)
def test_help_shows_what_a_flag_takes_as_its_type_says(name, kind):
    shown = {flag: taken for flags in flag_groups().values() for flag, taken, *_ in flags}
    assert shown[name] == kind


def test_short_help_shows_the_fifteen_flags_that_matter_and_how_to_get_at_the_rest():
    text = help_text()
    assert flags_in(text) == list(MAIN_FLAGS)
    assert len(MAIN_FLAGS) == 15
    for word in ("--help=all", "--help=<group>", "--help=presets", "--version", *GROUPS, *PRESETS):
        assert word in in_one_line(text)
    assert len(text.splitlines()) < 125


@pytest.mark.parametrize("topic", ["", "all"])
def test_help_says_whose_defaults_it_shows_before_it_shows_any(topic):
    before, _, _ = in_one_line(help_text(topic)).partition("--env=<")
    for word in ("defaults are those of Atari", *FAMILIES, "flags.json"):
        assert word in before


@pytest.mark.parametrize("group", GROUPS)
def test_help_on_a_group_shows_its_flags_and_no_others(group):
    text = help_text(group)
    hidden = {"debug_faults"}
    assert flags_in(text) == [name for name in GROUPS[group].model_fields if name not in hidden]


def test_help_on_all_names_every_flag_with_its_text_and_every_preset_with_its_flags():
    text = in_one_line(help_text("all"))
    for name, field in Flags.model_fields.items():
        assert f"--{name}=" in text
        assert in_one_line(str(field.description)) in text
    for name, preset in PRESETS.items():
        assert name in text
        assert in_one_line(describe(preset)) in text


def test_what_only_developers_use_is_not_shown_to_users():
    assert "debug_faults" in help_text("all")
    assert not [topic for topic in TOPICS if topic != "all" and "debug_faults" in help_text(topic)]


def test_an_unknown_group_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean --help=replay"):
        help_text("reply")
    with pytest.raises(ConfigError, match="expected run, environment"):
        help_text("xyz")


@pytest.mark.parametrize(
    ("argv", "topic"),
    [
        (["--help"], ""),
        (["-h"], ""),
        (["--lr=1", "--help=replay"], "replay"),
        (["--help", "replay"], "replay"),
        (["--help", "--lr=1"], ""),
        (["--lr=1"], None),
    ],
)
def test_help_is_asked_for_in_several_ways(argv, topic):
    assert topic_of(argv) == topic


def test_the_program_prints_help_at_the_width_of_the_terminal(capsys, monkeypatch):
    for columns, width in (("200", 100), ("100", 100), ("99", 80), ("40", 80)):
        monkeypatch.setenv("COLUMNS", columns)
        assert main.main(["--help=replay"]) == 0
        assert capsys.readouterr().out == help_text("replay", width)


def test_help_on_nothing_is_a_mistake_of_one_line(capsys):
    assert main.main(["--help=reply"]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)


def test_every_flag_says_what_it_changes():
    """A new flag outside of the groups that are all of one kind has to say it (flags/group.py)."""
    assert [name for name in Flags.model_fields if EFFECTS.get(name) is None] == []
