import contextlib
import json
import multiprocessing
import os
import signal

import psutil
import pytest

from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core.errors import ConfigError
from ritornello.core.run_layout import LOCK
from tests.agent import programs
from tests.deadlines import HANGS_S

SPAWN = multiprocessing.get_context("spawn")


@contextlib.contextmanager
def process(folder, **options):
    """A process of its own, and the pipe to it; it is gone afterwards."""
    ours, theirs = SPAWN.Pipe()
    started = SPAWN.Process(target=programs.hold_the_lock, args=(folder, theirs), kwargs=options)
    started.start()
    theirs.close()
    try:
        yield started, ours
    finally:
        started.kill()
        started.join(HANGS_S)


def answer(pipe):
    assert pipe.poll(HANGS_S), "no answer in time"
    return pipe.recv()


@pytest.mark.process
def test_a_second_session_is_told_whose_folder_it_is_and_gets_it_when_that_one_dies(tmp_path):
    with process(tmp_path) as (first, pipe):
        assert answer(pipe) == "mine"
        with pytest.raises(ConfigError, match=f"belongs to process {first.pid}") as told:
            RunFolder(tmp_path).lock()
        assert "--new_run_folder=True" in str(told.value)
        os.kill(first.pid, signal.SIGKILL)
        first.join(HANGS_S)
        assert json.loads((tmp_path / LOCK).read_text())["pid"] == first.pid  # it could not tidy up
        with RunFolder(tmp_path).lock():
            assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()


@pytest.mark.process
def test_a_worker_that_outlives_its_learner_does_not_keep_the_lock(tmp_path):
    with process(tmp_path, has_worker=True) as (learner, pipe):
        worker = psutil.Process(answer(pipe))
        try:
            worker.suspend()  # it will not notice that its learner is gone
            with pytest.raises(ConfigError, match=f"belongs to process {learner.pid}"):
                RunFolder(tmp_path).lock()
            os.kill(learner.pid, signal.SIGKILL)
            learner.join(HANGS_S)
            assert worker.is_running()
            with RunFolder(tmp_path).lock():
                pass
        finally:
            worker.kill()
