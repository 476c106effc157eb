"""A store without room for a checkpoint: the queue ends, and no run has failed."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest

from research.queue import __main__ as program
from research.queue import queue_loop
from research.queue.trainer_process import Ending
from research.tests.conftest import Bench, entry, options

REFUSED = (
    "the run failed: the disk is full: a checkpoint needs 1.9 MB, 1.1 MB are free in /s. Nothing "
    "has changed there, and the next save tries again: free some space."
)


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that are free on every disk, as its only member."""
    kept = [10**12]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=kept[0]))
    return kept


def test_a_run_whose_save_was_refused_ends_the_queue_and_has_not_failed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.write(entry(seeds=[1, 2]))
    endings = [Ending(1, False, REFUSED)]
    monkeypatch.setattr(queue_loop, "run_trainer", lambda *_, **__: endings.pop())
    assert program.main(["run", *options(bench)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    for part in ("a checkpoint needs 1.9 MB, 1.1 MB are free", "Make room", "--store="):
        assert part in said
    state = bench.store.state(bench.runs()[0])
    assert state is not None
    assert (state.failures, endings) == (0, [])
