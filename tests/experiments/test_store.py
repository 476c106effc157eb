from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from core.process_death import start_of
from experiments.store import Store, _kill
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
    ) as trainer, (tmp_path / "lock").open("w+") as lock:  # fmt: skip
        try:
            assert trainer.stdout is not None
            assert trainer.stdout.readline() == b"here\n"
            store.trainer_lock = lock
            store.book_trainer(trainer.pid)
            booked = Path(lock.name).read_text()
            _kill(booked[:-1] + str((int(booked[-1]) + 1) % 10), said.append)
            assert not said, "another process had this number"
            began_s = psutil.Process.create_time
            monkeypatch.setattr(psutil.Process, "create_time", lambda me: began_s(me) + 3600.0)
            _kill(booked, said.append)
            assert trainer.wait(HANGS_S) == -9
        finally:
            trainer.kill()
    assert len(said) == 1


@pytest.mark.parametrize("booked", ["", "unknown", "412", "412 1700000000.25", "99999999 boot 1"])
def test_who_is_not_known_is_not_killed(booked: str) -> None:
    said: list[str] = []
    _kill(booked, said.append)
    assert said == []
