from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ritornello.agent.cluster.ray_folder import LOCK, RayFolder
from tests.deadlines import HANGS_S
from tests.house import ROOT

MAKE = """
import sys
from pathlib import Path
from ritornello.agent.cluster.ray_folder import RayFolder
folder = RayFolder()
Path(folder.path, "session").mkdir(parents=True)
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def start():
    """Start gateways with a folder each, as far as that matters here."""
    started = []

    def start():
        process = subprocess.Popen(
            [sys.executable, "-c", MAKE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": tempfile.gettempdir()},
            text=True,
        )
        started.append(process)
        return process, Path(process.stdout.readline().strip()).parent

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=HANGS_S)


@pytest.fixture
def abandoned(start):
    process, folder = start()
    process.send_signal(signal.SIGKILL)
    process.wait(HANGS_S)
    assert folder.is_dir()
    return folder


def test_it_is_for_this_user_alone_and_leaves_nothing(place):
    folder = RayFolder()
    (outer,) = place.iterdir()
    assert Path(folder.path).parent == outer
    assert outer.name.startswith("vtray-")
    assert stat.S_IMODE(outer.stat().st_mode) == 0o700
    Path(folder.path, "session").mkdir(parents=True)
    folder.remove()
    folder.remove()
    assert not list(place.iterdir())


@pytest.mark.process
def test_the_folder_of_a_gateway_that_was_killed_is_removed_by_the_next(place, abandoned):
    folder = RayFolder()
    assert [path.name for path in place.iterdir()] == [Path(folder.path).parent.name]
    folder.remove()


@pytest.mark.process
def test_the_folders_of_gateways_that_live_are_left_alone(start, place):
    own = RayFolder()
    _, other = start()
    RayFolder().remove()
    assert set(place.iterdir()) == {other, Path(own.path).parent}
    assert (other / "ray" / "session").is_dir()
    own.remove()


@pytest.mark.process
def test_what_may_be_of_somebody_else_is_left_alone(place, abandoned, monkeypatch):
    def is_left():
        RayFolder().remove()
        return (abandoned / "ray" / "session").is_dir()

    abandoned.chmod(0o777)
    assert is_left()
    abandoned.chmod(0o700)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert is_left()
    (abandoned / LOCK).rename(place / "kept")
    assert is_left()  # an earlier version of this program had no lock
    (abandoned / LOCK).symlink_to(place / "kept")
    assert is_left()
    (abandoned / LOCK).unlink()
    (place / "kept").rename(abandoned / LOCK)
    elsewhere = abandoned.rename(place / "elsewhere")
    abandoned.symlink_to(elsewhere)
    assert is_left()
    abandoned.unlink()
    elsewhere.rename(abandoned)
    assert not is_left()
