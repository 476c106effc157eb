import json
import multiprocessing
import os

import psutil
import pytest

from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core.errors import ConfigError
from ritornello.core.run_layout import LOCK
from tests.agent import programs
from tests.deadlines import HANGS_S


@pytest.mark.process
def test_a_second_session_is_told_whose_folder_it_is_and_gets_it_when_that_one_dies(tmp_path):
    """Even if a worker outlives it that has not noticed."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    learner = spawn.Process(target=programs.hold_the_lock, args=(tmp_path, theirs))
    learner.start()
    theirs.close()
    try:
        assert ours.poll(HANGS_S), "no answer in time"
        worker = psutil.Process(ours.recv())
        try:
            worker.suspend()
            owner = f"belongs to process {learner.pid}.*--new_run_folder=True"
            with pytest.raises(ConfigError, match=owner):
                RunFolder(tmp_path).lock()
            learner.kill()
            learner.join(HANGS_S)
            assert worker.is_running()
            assert json.loads((tmp_path / LOCK).read_text())["pid"] == learner.pid
            with RunFolder(tmp_path).lock():
                assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
        finally:
            worker.kill()
    finally:
        learner.kill()
        learner.join(HANGS_S)
