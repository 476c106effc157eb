import os
import random
from pathlib import Path

import pytest

from ritornello.core import atomic_file, files
from tests.exact.disks import SECTOR_BYTES, ForgetfulDisk, write_files


@pytest.fixture
def disk(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "old").write_bytes(b"old")
    (root / "folder").mkdir()
    with ForgetfulDisk(root) as disk, files.using(disk):
        yield disk


@pytest.fixture
def root(disk):
    return disk._root


def contents(files_left):
    return {str(path): content for path, content in files_left.items()}


def append(disk, path, content, *, sync=False):
    with disk.open(path, append=True) as file:
        file.write(content)
    if sync:
        disk.sync(path)


def test_what_was_there_at_the_start_survives(disk):
    assert contents(disk.after_power_cut()) == {"old": b"old"}


def test_bytes_survive_a_kill_once_they_are_given_to_the_system(disk, root):
    with disk.open(root / "new") as file:
        file.write(b"given")
        file.flush()
        file.write(b" not yet")
        assert contents(disk.after_kill()) == {"old": b"old", "new": b"given"}


def test_a_synced_file_without_its_name_is_gone_and_a_name_without_its_bytes_is_empty(disk, root):
    append(disk, root / "bytes", b"here", sync=True)
    assert contents(disk.after_power_cut()) == {"old": b"old"}
    append(disk, root / "name", b"here")
    disk.sync_folder(root)
    assert contents(disk.after_power_cut()) == {"old": b"old", "bytes": b"here", "name": b""}


def test_what_was_appended_after_the_last_sync_is_forgotten(disk, root):
    append(disk, root / "old", b" and new")
    assert contents(disk.after_power_cut()) == {"old": b"old"}
    disk.sync(root / "old")
    assert contents(disk.after_power_cut()) == {"old": b"old and new"}


def test_a_replaced_or_removed_file_is_back_until_its_folder_is_synced(disk, root):
    append(disk, root / "temporary", b"newer", sync=True)
    disk.replace(root / "temporary", root / "old")
    assert contents(disk.after_power_cut()) == {"old": b"old"}
    disk.sync_folder(root)
    assert contents(disk.after_power_cut()) == {"old": b"newer"}
    disk.unlink(root / "old")
    assert contents(disk.after_power_cut()) == {"old": b"newer"}
    disk.sync_folder(root)
    assert contents(disk.after_power_cut()) == {}


def test_a_replacement_without_sync_of_its_bytes_is_an_empty_file(disk, root):
    """The classic mistake: the name is on the disk before the content."""
    append(disk, root / "temporary", b"newer")
    os.replace(root / "temporary", root / "old")
    disk.sync_folder(root)
    assert contents(disk.after_power_cut()) == {"old": b""}


def test_a_folder_that_was_not_synced_takes_everything_in_it_along(disk, root):
    (root / "folder" / "deep").mkdir()
    atomic_file.write_text(root / "folder" / "deep" / "file", "text")
    assert contents(disk.after_power_cut()) == {"old": b"old"}
    disk.sync_folder(root / "folder")
    assert contents(disk.after_power_cut()) == {"old": b"old", "folder/deep/file": b"text"}


def test_files_that_are_replaced_atomically_have_the_old_content_or_the_new_at_any_luck(disk, root):
    append(disk, root / "journal", b"a line\n" * 400)
    atomic_file.write_text(root / "old", "new")
    for seed in range(200):
        assert contents(disk.after_power_cut(random.Random(seed)))["old"] == b"new"
    append(disk, root / "half", b"x" * 2000)
    os.replace(root / "half", root / "old")  # neither bytes nor name were synced
    seen = {contents(disk.after_power_cut(random.Random(seed))).get("old") for seed in range(300)}
    assert {b"new", b"", b"x" * 2000} <= seen
    assert any(0 < len(s) < 2000 and set(s) == {ord("x")} for s in seen), "truncated"
    torn = [s for s in seen if len(s) == 2000 and 0 in s]
    assert any(s[-SECTOR_BYTES // 2 :].count(0) == 0 for s in torn), "later bytes without earlier"


def test_the_same_luck_leaves_the_same(disk, root):
    append(disk, root / "old", bytes(5000))
    append(disk, root / "other", b"y" * 5000)
    one, again, other = (disk.after_power_cut(random.Random(seed)) for seed in (5, 5, 6))
    assert one == again
    assert one != other


def test_a_number_that_the_system_gives_to_another_file_is_not_taken_for_the_first(disk, root):
    for number in range(20):
        append(disk, root / "temporary", b"%d" % number, sync=True)
        disk.unlink(root / "temporary")
        append(disk, root / "temporary", b"not synced")
        disk.sync_folder(root)
        assert contents(disk.after_power_cut())["temporary"] == b""
        disk.unlink(root / "temporary")
        disk.sync_folder(root)


def test_what_is_left_can_be_written_elsewhere(disk, root, tmp_path):
    (root / "folder" / "file").write_bytes(b"1")
    write_files(tmp_path / "copy", disk.after_kill())
    assert (tmp_path / "copy" / "folder" / "file").read_bytes() == b"1"


def test_a_file_that_another_thread_renames_meanwhile_disturbs_nobody(disk, root, monkeypatch):
    (root / "renamed").write_bytes(b"new")
    read = Path.read_bytes

    def read_late(path):
        if path.name == "renamed":
            raise FileNotFoundError(path)
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", read_late)
    assert contents(disk.after_kill()) == {"old": b"old"}
    assert contents(disk.after_power_cut()) == {"old": b"old"}
