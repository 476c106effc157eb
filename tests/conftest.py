"""What every test needs: one thread per process, no hypothesis deadlines, GPU tests skipped."""

import gc
import os
import signal
import threading
import time

# Before torch is imported: tests run in parallel processes, and threads would fight for the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

from ritornello.wrappers import trusted_modules
from tests.deadlines import HANGS_S

AFTER_FAILURE_S = 1.0
# The monitor of tqdm, with which other packages show progress, waits until the process ends.
OF_OTHERS = ("tqdm_monitor",)
HAS_FAILED = pytest.StashKey[bool]()

# A shell lets its background programs ignore these, `nohup` the last, and what they start inherits
# it: without this, tests that send signals would wait for ever in a suite in the background.
for _name in ("SIGINT", "SIGQUIT", "SIGHUP"):
    _number = getattr(signal, _name, None)
    if _number is not None and signal.getsignal(_number) == signal.SIG_IGN:
        is_interrupt = _name == "SIGINT"
        signal.signal(_number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Two per core: half of the time tests wait for processes that they started."""
    return min(2 * (os.cpu_count() or 1), 16)


@pytest.fixture(autouse=True)
def _typed_environments(monkeypatch):
    """The environments of the tests may be imported in each test, as if they had been typed."""
    monkeypatch.setattr(
        trusted_modules,
        "_trusted",
        {"tests.fakes", "tests.locked", "tests.troubled", "tests.worlds"},
    )


@pytest.fixture(autouse=True)
def _no_thread_outlives_its_test(request, monkeypatch):
    """Wait for the threads of a test, lest they meet what is replaced in the next one.

    It asks for `monkeypatch` to come before that puts everything back. The traceback of a failed
    test holds what it was about, such as a model with its threads: there is no use in waiting long.
    """
    before = set(threading.enumerate())
    yield
    has_failed = request.node.stash.get(HAS_FAILED, False)
    deadline = time.monotonic() + (AFTER_FAILURE_S if has_failed else HANGS_S)
    # Not by `join`: that refuses a thread that another thread is just about to start.
    while left := {
        thread for thread in set(threading.enumerate()) - before if thread.name not in OF_OTHERS
    }:
        if time.monotonic() > deadline:
            names = ", ".join(sorted(thread.name for thread in left))
            assert has_failed, f"outlives the test that started it: thread {names}"
            break
        time.sleep(0.001)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if report.when == "call":
        item.stash[HAS_FAILED] = report.failed
    return report


def pytest_collection_finish():
    """Let no later collection of garbage go through what was imported: that takes seconds."""
    gc.collect()
    gc.freeze()


# A shared machine may stall for a second; pytest-timeout guards against hangs instead.
settings.register_profile("default", deadline=None, print_blob=True)
settings.load_profile("default")


def pytest_collection_modifyitems(items):
    if not any(item.get_closest_marker("gpu") for item in items):
        return
    import torch

    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no CUDA device here"))
