from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from experiments.plan import TRAINER_FILE, TRAINER_LOCK
from experiments.store import Store, _kill
from ritornello.core.errors import ConfigError
from ritornello.core.process_death import start_of
from tests.deadlines import HANGS_S

SLEEPER = "import time; print('here', flush=True); time.sleep(600)"


@pytest.mark.process
@pytest.mark.skipif(start_of(os.getpid()) is None, reason="this system tells no such start")
def test_a_trainer_is_known_although_the_clock_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, said = Store(tmp_path), []
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, start_new_session=True
    ) as trainer:
        try:
            assert trainer.stdout is not None
            assert trainer.stdout.readline() == b"here\n"
            store.book_trainer(trainer.pid)
            booked = store._booked_trainer()
            assert booked is not None
            pid, started = booked
            _kill(pid, started[:-1] + str((int(started[-1]) + 1) % 10), said.append)
            assert not said, "another process had this number"
            began_s = psutil.Process.create_time
            monkeypatch.setattr(psutil.Process, "create_time", lambda me: began_s(me) + 3600.0)
            _kill(pid, started, said.append)
            assert trainer.wait(HANGS_S) == -9
        finally:
            trainer.kill()
    assert len(said) == 1


@pytest.mark.parametrize(("pid", "started"), [(412, ""), (412, "1700000000.25"), (99999999, "1")])
def test_who_is_not_known_is_not_killed(pid: int, started: str) -> None:
    said: list[str] = []
    _kill(pid, started, said.append)
    assert said == []


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[1]", "412 1700000000.25", '{"pid": "x"}', "{", "[" * 100_000),
        *('{"pid": 1e999, "started": "1"}', '{"pid": true, "started": "1"}'),
    ],
)
def test_a_booking_that_cannot_be_read_is_of_nobody(tmp_path: Path, text: str) -> None:
    store = Store(tmp_path)
    (tmp_path / TRAINER_FILE).write_text(text)
    assert store._booked_trainer() is None


def test_no_trainer_is_booked_after_its_end(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.book_trainer(os.getpid())
    store.book_trainer(None)
    store.book_trainer(None)
    assert store._booked_trainer() is None


def test_locks_that_are_no_files_of_ours_are_refused(tmp_path: Path) -> None:
    """Through a link, a queue would lock and write to a file of somebody else."""
    (tmp_path / "other").write_text("important")
    (tmp_path / TRAINER_LOCK).symlink_to(tmp_path / "other")
    store = Store(tmp_path)
    with pytest.raises(ConfigError, match=TRAINER_LOCK):
        store.lock(0.1, print)
    store.close()
    assert (tmp_path / "other").read_text() == "important"
