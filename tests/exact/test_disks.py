import os

import pytest

from ritornello.core import files
from tests.exact.disks import ForgetfulDisk


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
