"""A lock is one holder's, and no death leaves it behind."""

import errno
import os
import subprocess
import sys

import pytest

from ritornello.core import file_lock
from ritornello.core.errors import ConfigError
from ritornello.core.file_lock import FileLock
from tests.deadlines import HANGS_S


def test_a_lock_has_one_holder_until_it_is_released(tmp_path):
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert first.acquire()
    assert first.acquire(), "it is ours already"
    assert not second.acquire()
    assert second.holder().startswith(f"process {os.getpid()}, since ")
    assert second.descriptor == -1
    first.release()
    first.release()
    assert second.acquire()


@pytest.mark.process
def test_a_killed_process_leaves_no_lock_and_its_child_keeps_it(tmp_path):
    lock = FileLock(tmp_path / "lock")
    assert lock.acquire()
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        pass_fds=(lock.descriptor,),
    )
    try:
        lock.release()  # as if this process were gone
        assert not FileLock(tmp_path / "lock").acquire()
        child.kill()
        child.communicate(timeout=HANGS_S)
        assert FileLock(tmp_path / "lock").wait(20.0)
    finally:
        child.kill()
        child.communicate(timeout=HANGS_S)


def test_waiting_ends_at_its_deadline_or_when_nobody_wants_it_any_more(tmp_path):
    holder, other = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert holder.acquire()
    looks: list[int] = []
    assert not other.wait(0.3, lambda: looks.append(1) is None)
    assert looks
    assert not other.wait(1000.0, lambda: False)


def test_a_link_is_not_followed_and_a_folder_or_pipe_is_no_lock(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    (tmp_path / "folder").mkdir()
    for name in ("link", "folder", "absent/lock"):
        with pytest.raises(ConfigError, match="cannot open"):
            FileLock(tmp_path / name).acquire()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="pipe is not a regular file"):
        FileLock(tmp_path / "pipe").acquire()
    assert (tmp_path / "victim").read_text() == "precious"


def test_where_the_file_system_has_no_locks_every_one_is_granted(tmp_path, monkeypatch):
    def refuse(file, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(file_lock.fcntl, "flock", refuse)
    assert FileLock(tmp_path / "lock").acquire()


@pytest.mark.parametrize("pid", ["1e999", "[]"])
def test_a_holder_that_makes_no_sense_is_another_process(tmp_path, pid):
    path = tmp_path / "lock"
    path.write_text(f'{{"pid": {pid}, "host": "a", "since": "b"}}')
    assert FileLock(path).holder() == "another process"
