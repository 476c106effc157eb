import json
import logging
import os
import uuid
from dataclasses import dataclass
from types import SimpleNamespace
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ritornello.agent.learners.place import ALONE_HERE
from ritornello.agent.run.control import Control
from ritornello.agent.run.control_file import (
    COMMANDS,
    MAX_BYTES,
    SETTINGS,
    read_command,
    write_command,
)
from ritornello.core.errors import CheckpointError, ConfigError


@dataclass(frozen=True)
class Costs:
    entropy_cost: float = 0.01


ID = str(uuid.UUID(int=7))
SETTING_VALUES = (
    "{}", "[2]", "null", "3", '{"lr": 1}', '{"lr_factor": "2"}', '{"lr_factor": 0}',
    '{"lr_factor": -1}',
    '{"lr_factor": 1e9}', '{"lr_factor": NaN}', '{"lr_factor": Infinity}', '{"lr_factor": true}',
    '{"lr_factor": 2, "seed": 3}', '{"lr_factor": [1]}',
    '{"replay_share": 0}', '{"replay_share": 1}', '{"replay_share": 0.96}',
)  # fmt: skip
HOSTILE = (
    b"", b"{", b"[]", b"null", b'"pause"', b"\xff\xfe\0", b"{" * 3000, b"x" * (MAX_BYTES + 1),
    b'{"command": "pause"', b'{"command": ["pause"]}', b'{"command": "Pause"}', b'{"command": 1}',
    b'{"command": "pause", "values": {"lr_factor": 2}}', b'{"command": "pause", "more": 1}',
    b'{"command": "set"}', b'{"command": "__init__"}', b'{"command": "save; ls"}',
    *(f'{{"command": "set", "values": {values}}}'.encode() for values in SETTING_VALUES),
)  # fmt: skip
OTHER_NAMES = (
    "pause.json", f"{ID}", f"{ID}.json.tmp", f".{ID}.json.1.tmp", f"{ID}X.json", "state.json",
    "..json", f"{ID}.JSON", f"{ID}\n.json", f"x{ID}.json", f"{ID}xjson",
)  # fmt: skip


class Steered:
    """A control with everything it steers, written down."""

    def __init__(
        self, folder, *, reproducible=False, share=0.5, save=None, evaluate=None, saved=None
    ):
        self.folder = folder
        self.set = {}
        self.notes = []
        self.shown = []
        self.saves = 0
        (folder / "control").mkdir(exist_ok=True)
        self.costs = SimpleNamespace(config=Costs())

        def noted(name):
            return lambda value: self.set.update({name: float(value)})

        replay = SimpleNamespace(own_share=share, set_replay_share=noted("replay_share"))
        run = SimpleNamespace(
            folder=SimpleNamespace(path=folder, note=self.notes.append),
            flags=SimpleNamespace(reproducible=reproducible),
            blueprint=SimpleNamespace(place=ALONE_HERE),
            learner=SimpleNamespace(scale_lr=noted("lr_factor"), algorithm=self.costs),
            tally=SimpleNamespace(agent_steps=7, updates=3),
            experience=SimpleNamespace(replay=replay),
            saved={"control": saved}.get,
            more_state={},
            status=SimpleNamespace(show=self.shown.append),
        )
        self.control = Control(run, save or self.save, evaluate)
        self.control.tell()

    def save(self):
        self.saves += 1
        return "done: saved"

    def look(self):
        self.control._looked_at_s = -100.0
        self.control.look()

    def tell(self, name, values=None):
        write_command(self.folder, name, values)
        self.look()
        return str(self.notes[-1]["result"]).partition(":")[0]

    def put(self, content, name=f"{ID}.json"):
        (self.folder / "control" / name).write_bytes(content)

    def state(self):
        """What status.json says of it."""
        return self.shown[-1]["control"]

    def untouched(self):
        control = self.control
        is_still = not (control.is_paused or control.stop_asked or self.saves or self.set)
        return is_still and not self.notes


@pytest.fixture
def steered(tmp_path):
    return Steered(tmp_path)


def test_each_command_does_what_it_says_and_is_answered_once(steered):
    control = steered.control
    assert steered.tell("pause") == "done"
    assert control.is_paused
    assert steered.tell("continue") == "done"
    assert not control.is_paused
    assert steered.tell("save") == "done"
    assert steered.saves == 1
    assert steered.tell("set", {"lr_factor": 0.5}) == "done"
    assert steered.set == {"lr_factor": 0.5}
    assert steered.tell("evaluate") == "refused"
    assert set(steered.state()["commands"]) == set(COMMANDS) - {"evaluate"}
    assert steered.tell("stop") == "done"
    assert control.stop_asked
    steered.look()
    names = ["pause", "continue", "save", "set", "evaluate", "stop"]
    assert [note["command"] for note in steered.notes] == names
    assert [each["command"] for each in steered.state()["acknowledged"]] == names
    assert not list((steered.folder / "control").iterdir())
    control.close()
    assert steered.shown[-1] == {"control": None}
    able = Steered(steered.folder, evaluate=lambda: "done: soon")
    assert set(able.state()["commands"]) == set(COMMANDS)
    assert able.tell("evaluate") == "done"


def test_commands_of_one_moment_are_obeyed_in_the_order_in_which_they_were_written(steered):
    factors = [0.5, 1.0, 2.0, 4.0, 0.25, 3.0]
    for second, factor in enumerate(factors):
        name = write_command(steered.folder, "set", {"lr_factor": factor})
        os.utime(steered.folder / "control" / f"{name}.json", (second, second))
    steered.look()
    assert [note["values"]["lr_factor"] for note in steered.notes] == factors
    assert steered.set == {"lr_factor": factors[-1]}


@pytest.mark.parametrize("content", HOSTILE)
def test_what_is_no_command_changes_nothing_and_is_removed(steered, content, caplog):
    steered.put(content)
    with caplog.at_level(logging.WARNING):
        steered.look()
        steered.look()
    assert steered.untouched()
    assert len(caplog.messages) == 1
    assert caplog.messages[0].isprintable()
    assert len(caplog.messages[0]) < 500
    assert not (steered.folder / "control" / f"{ID}.json").exists()
    with pytest.raises(ConfigError):
        read_command(ID, content.decode("utf-8", "replace"))


keys = st.sampled_from(["command", "values", "time", *SETTINGS]) | st.text(max_size=4)
json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8)
    | st.sampled_from([*COMMANDS, *SETTINGS]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


@given(st.text(max_size=300) | json_values.map(json.dumps))
def test_any_content_is_a_command_within_bounds_or_refused(content):
    try:
        command = read_command(ID, content)
    except ConfigError:
        return
    assert command.name in COMMANDS
    assert bool(command.values) == (command.name == "set")
    for name, value in command.values.items():
        assert SETTINGS[name].low <= value <= SETTINGS[name].high


def test_a_file_of_another_name_is_nobodys_business(steered):
    before = steered.state()
    for name in OTHER_NAMES:
        steered.put(b'{"command": "stop"}', name)
    steered.look()
    assert steered.untouched()
    assert steered.state() == before


def test_links_pipes_and_folders_are_refused(steered, tmp_path):
    control = steered.folder / "control"
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text('{"command": "stop"}', encoding="utf-8")
    names = [f"{uuid.UUID(int=n)}.json" for n in range(3)]
    (control / names[0]).symlink_to(elsewhere)
    os.mkfifo(control / names[1])
    (control / names[2]).mkdir()
    steered.look()
    assert steered.untouched()
    assert [path.name for path in control.iterdir()] == [names[2]]
    assert elsewhere.read_text(encoding="utf-8") == '{"command": "stop"}'


def test_a_control_folder_that_is_a_link_is_left_alone(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/control").symlink_to(tmp_path / "elsewhere")
    steered = Steered(tmp_path / "run")
    (tmp_path / "elsewhere" / f"{ID}.json").write_text('{"command": "stop"}', encoding="utf-8")
    steered.look()
    assert steered.untouched()
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == [f"{ID}.json"]
    with pytest.raises(ConfigError, match="is a link"):
        write_command(tmp_path / "run", "stop")


def test_what_was_meant_for_an_earlier_session_is_refused(tmp_path):
    write_command(tmp_path, "stop")
    steered = Steered(tmp_path)
    steered.look()
    assert steered.untouched()
    assert not list((tmp_path / "control").iterdir())


def test_a_run_refuses_what_it_cannot_do(tmp_path):
    steered = Steered(tmp_path, reproducible=True)
    assert steered.state()["commands"] == []
    for name in COMMANDS:
        assert steered.tell(name, {"lr_factor": 2.0} if name == "set" else None) == "refused"
    assert (steered.saves, steered.set) == (0, {})
    assert (steered.control.is_paused, steered.control.stop_asked) == (False, False)
    assert steered.control.state_dict() == {}

    def full():
        raise CheckpointError("the disk is full")

    other = Steered(tmp_path, save=full, share=None)
    assert other.tell("save") == "failed", "which is an answer and no end"
    assert other.tell("set", {"replay_share": 0.5}) == "refused", "it cannot be changed in this run"


def test_changed_settings_go_on_after_a_resume_and_are_taken_back_by_their_own_value(tmp_path):
    before = Steered(tmp_path)
    assert before.control.state_dict() == {}
    assert before.state()["settings"] == dict(zip(SETTINGS, (1.0, 1.0, 0.5), strict=True))
    before.tell("set", {"lr_factor": 0.5, "entropy_factor": 3.0, "replay_share": 0.75})
    assert before.costs.config.entropy_cost == pytest.approx(0.03)
    before.tell("set", {"entropy_factor": 1.0})
    state = before.control.state_dict()
    assert state == {"settings": {"lr_factor": 0.5, "replay_share": 0.75}}
    after = Steered(tmp_path, saved=state)
    assert after.set == state["settings"]
    assert after.control.state_dict() == state
    after.tell("set", {"replay_share": 0.5, "lr_factor": 1.0})
    assert after.control.state_dict() == {}
    assert Steered(tmp_path, saved={"settings": {"replay_share": 0.5}}).set == {}, "as by the flags"


@given(json_values)
def test_no_saved_settings_of_any_kind_do_harm(tmp_path_factory, saved):
    for state in (saved, {"settings": saved}, {"settings": {"lr_factor": saved}}):
        steered = Steered(tmp_path_factory.mktemp("run"), saved=state)
        for name, value in steered.set.items():
            assert SETTINGS[name].low <= value <= SETTINGS[name].high


def test_a_file_that_cannot_be_taken_away_is_answered_once(steered, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("ritornello.core.files.Disk.unlink", refuse)
    write_command(steered.folder, "save")
    steered.put(b"no command")
    for _ in range(3):
        steered.look()
    assert steered.saves == 1


def test_a_folder_that_a_disk_refuses_for_a_while_ends_no_run(steered, monkeypatch):
    """Such as the network disk of a user whose ticket has expired: not even links can be told."""
    write_command(steered.folder, "save")
    with monkeypatch.context() as refused:
        for name in ("lstat", "stat", "scandir"):
            refused.setattr(os, name, mock.Mock(side_effect=PermissionError(13, "refused")))
        steered.look()
    assert not steered.saves
    steered.look()
    assert steered.saves == 1
