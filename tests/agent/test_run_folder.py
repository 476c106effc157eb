import errno
import json
import subprocess
from datetime import datetime

import pytest

from ritornello.agent.stored import run_folder
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core.errors import ConfigError

NOON = datetime(2024, 2, 3, 12, 0, 1)


def test_a_run_has_its_own_name_or_game_and_time_and_never_anothers_folder(tmp_path):
    folder = RunFolder.create(tmp_path / "results", "ALE/Pong-v5", now=NOON)
    assert folder.path == tmp_path / "results" / "ALE-Pong-v5_20240203-120001"
    assert folder.checkpoints.is_dir()
    assert len(RunFolder.create(tmp_path, "A" * 200 + ",Pong").path.name) <= 80
    made = [RunFolder.create(tmp_path, "Pong", name="mine").path.name for _ in range(3)]
    assert made == ["mine", "mine_2", "mine_3"]


def test_a_results_folder_that_cannot_be_made_is_a_config_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--results_dir"):
        RunFolder.create(tmp_path / "file" / "results", "Pong")
    with pytest.raises(ConfigError, match="--results_dir"):
        RunFolder.create("a\0b", "Pong")


def test_a_full_disk_is_told_before_there_is_a_run_folder(tmp_path, monkeypatch):
    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ConfigError, match="No space left on device.* make room"):
        RunFolder.create(tmp_path, "Pong")
    assert not list(tmp_path.iterdir())


def test_run_json_says_what_produced_the_numbers_but_no_environment_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "s3cret-value")
    folder = RunFolder.create(tmp_path, "Pong")
    folder.write_run_info(["main.py", "--env=Pong"])
    text = folder.run_file.read_text()
    info = json.loads(text)
    assert info["command_line"] == ["main.py", "--env=Pong"]
    assert info["versions"]["torch"]
    assert info["machine"]["cores_usable"] >= 1
    assert set(info["source"]) == {"commit", "dirty"}
    assert "s3cret-value" not in text
    assert "SOME_TOKEN" not in text


def test_run_json_keeps_what_began_the_run_when_it_is_resumed(tmp_path):
    folder = RunFolder.create(tmp_path, "Pong")
    assert folder.sessions() == []
    lines = [["main.py", "--env=Pong"], ["main.py", "--op_mode=train_w_load"], ["main.py", "--x"]]
    for line in lines:
        folder.write_run_info(line)
    assert json.loads(folder.run_file.read_text())["command_line"] == lines[0]
    sessions = folder.sessions()
    assert [session["command_line"] for session in sessions] == lines
    assert all(session.keys() == sessions[0].keys() for session in sessions)


@pytest.mark.parametrize(
    "damaged",
    [
        b"", b"{", b"[]", b'"text"', b"\xff\xfe", b"[" * 100_000, b'{"resumed": 5}', b"\x00" * 99,
        b'{"resumed": [5]}', b'{"command_line": "main.py"}',
        b'{"machine": 1}',
        b'{"started": ' + b"9" * 5000 + b"}",
    ],
)  # fmt: skip
def test_a_damaged_run_json_keeps_nobody_from_going_on_and_is_kept(tmp_path, damaged, caplog):
    folder = RunFolder.create(tmp_path, "Pong")
    folder.run_file.write_bytes(damaged)
    with pytest.raises(ValueError, match="run.json"):
        folder.sessions()
    folder.write_run_info(["main.py"])
    assert [session["command_line"] for session in folder.sessions()] == [["main.py"]]
    (aside,) = folder.path.glob("run.json.*.cut")
    assert aside.read_bytes() == damaged
    assert f"It is {aside.name} now" in caplog.text


def test_a_checkout_reports_its_commit_and_whether_it_was_changed(tmp_path, monkeypatch):
    def git(*arguments):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", "-C", tmp_path, *identity, *arguments], check=True, text=True)

    try:
        git("init", "--quiet")
    except FileNotFoundError:
        pytest.skip("git is not installed")
    (tmp_path / "code.py").write_text("a = 1\n")
    git("add", "code.py")
    git("commit", "--quiet", "--no-verify", "-m", "first")
    monkeypatch.setattr(run_folder, "PROJECT_ROOT", tmp_path.resolve())
    clean = run_folder.describe_source()
    assert len(clean["commit"]) == 40
    assert clean["dirty"] is False
    (tmp_path / "code.py").write_text("a = 2\n")
    assert run_folder.describe_source() == {"commit": clean["commit"], "dirty": True}
    # A copy inside somebody else's repository must not borrow that repository's commit.
    (tmp_path / "copy").mkdir()
    monkeypatch.setattr(run_folder, "PROJECT_ROOT", (tmp_path / "copy").resolve())
    assert run_folder.describe_source() == {"commit": None, "dirty": None}
