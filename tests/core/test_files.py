import errno
import json
import os

import pytest

from ritornello.core import atomic_file, faults, files
from tests.faulty import Fault, Plan


class Watched(files.Disk):
    """Notes what is asked of it."""

    def __init__(self):
        self.asked: list[str] = []

    def sync(self, path):
        self.asked.append(f"sync {path.name.rsplit('.', 2)[0]}")
        super().sync(path)

    def sync_folder(self, path):
        self.asked.append("sync_folder")
        super().sync_folder(path)

    def replace(self, source, target):
        self.asked.append(f"replace {target.name}")
        super().replace(source, target)


def test_content_is_synced_before_the_name_changes_and_the_name_afterwards(tmp_path):
    watched = Watched()
    with files.using(watched):
        atomic_file.write_text(tmp_path / "a.txt", "näh\n")
    assert watched.asked == ["sync .a.txt", "replace a.txt", "sync_folder"]
    assert (tmp_path / "a.txt").read_bytes() == "näh\n".encode()
    assert type(files.disk()) is files.Disk


def failing(point, nth=1, *, for_ever=False):
    return Plan([Fault((point,), "enospc", nth=nth, for_ever=for_ever)])


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_syncs_no_folders_holds_files_all_the_same(
    tmp_path, monkeypatch, number
):
    real = files._sync

    def sync(path):
        if path.is_dir():
            raise OSError(number, os.strerror(number))
        real(path)

    monkeypatch.setattr(files, "_sync", sync)
    atomic_file.write_text(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "new"


OPERATIONS = ("file.open", "file.write", "file.sync", "file.replace")


@pytest.mark.parametrize("point", OPERATIONS)
@pytest.mark.parametrize("for_ever", [False, True])
def test_whatever_fails_the_old_file_stays_and_nothing_is_left(tmp_path, point, for_ever):
    path = tmp_path / "a.txt"
    atomic_file.write_text(path, "old")
    plan = failing(point, for_ever=for_ever)
    with faults.loaded(plan), pytest.raises(OSError, match="No space left") as caught:
        atomic_file.write_text(path, "new")
    assert caught.value.errno == errno.ENOSPC
    assert plan.fired
    assert path.read_text("utf-8") == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_file_that_cannot_be_removed_does_not_hide_what_went_wrong_first(tmp_path):
    plan = Plan([Fault(("file.sync",), "enospc"), Fault(("file.unlink",), "eio")])
    with faults.loaded(plan), pytest.raises(OSError, match="No space left"):
        atomic_file.write_text(tmp_path / "a.txt", "new")
    assert [path.name for path in tmp_path.iterdir()] == [f".a.txt.{os.getpid()}.tmp"]


def test_a_second_name_is_a_copy_where_the_file_system_knows_no_links(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("content", encoding="utf-8")

    def refuse(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    files.disk().link(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_text("utf-8") == "content"


def test_temporary_files_of_others_and_folders_of_such_names_are_left_alone(tmp_path):
    with atomic_file.atomic_path(tmp_path / "y") as ours:
        ours.write_text("half")
    ours.write_text("half")  # as a killed process leaves it
    (tmp_path / f".x.{os.getpid()}.tmp").mkdir()
    (tmp_path / ".theirs.tmp").write_text("theirs")
    assert atomic_file.remove_temporaries(tmp_path) == [ours]
    assert (tmp_path / f".x.{os.getpid()}.tmp").is_dir()
    assert (tmp_path / ".theirs.tmp").read_text("utf-8") == "theirs"


def test_a_text_that_names_a_path_of_other_bytes_is_written(tmp_path):
    atomic_file.write_json(tmp_path / "a.json", {"path": os.fsdecode(b"nu\xff")})
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == {"path": "nu\udcff"}
