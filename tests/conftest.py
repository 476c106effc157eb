"""What every test needs: one thread per process, no hypothesis deadlines, GPU tests skipped."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

# Before torch is imported: tests run in parallel processes, and threads would fight for the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

from tests.deadlines import HANGS_S
from wrappers import trusted_modules

# A shell lets its background programs ignore these, `nohup` the last, and what they start inherits
# it: without this, tests that send signals would wait for ever in a suite in the background.
for _name in ("SIGINT", "SIGQUIT", "SIGHUP"):
    _number = getattr(signal, _name, None)
    if _number is not None and signal.getsignal(_number) == signal.SIG_IGN:
        is_interrupt = _name == "SIGINT"
        signal.signal(_number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _typed_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environments of the tests may be imported in each test, as if they had been typed."""
    monkeypatch.setattr(
        trusted_modules, "_trusted", {"tests.fakes", "tests.troubled", "tests.worlds"}
    )


@pytest.fixture(autouse=True)
def _no_thread_outlives_its_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Wait for the threads of a test, lest they meet what is replaced in the next one.

    It asks for `monkeypatch` to come before that puts everything back.
    """
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + HANGS_S
    # Not by `join`: that refuses a thread that another thread is just about to start.
    while left := set(threading.enumerate()) - before:
        names = ", ".join(sorted(thread.name for thread in left))
        assert time.monotonic() < deadline, f"outlives the test that started it: thread {names}"
        time.sleep(0.001)


# A shared machine may stall for a second; pytest-timeout guards against hangs instead.
settings.register_profile("default", deadline=None, print_blob=True)
settings.load_profile("default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not any(item.get_closest_marker("gpu") for item in items):
        return
    import torch

    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no CUDA device here"))
