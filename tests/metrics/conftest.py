import time
from types import SimpleNamespace

import pytest


@pytest.fixture
def clock(monkeypatch):
    """The monotonic clock; it stands until the test moves `now_s`."""
    moved = SimpleNamespace(now_s=100.0)
    monkeypatch.setattr(time, "monotonic", lambda: moved.now_s)
    return moved
