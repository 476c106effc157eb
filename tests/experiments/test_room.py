"""A store without room for a checkpoint: the queue ends, and no run has failed."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments import __main__ as program
from experiments import queue_loop, room, sequence_runs
from experiments.plan import load_queue
from experiments.room import StoreFull
from experiments.sequence_runs import SequenceRuns
from experiments.trainer_process import Ending
from ritornello.agent.stored import checkpoint_file
from tests.experiments.conftest import Bench, entry, options
from tests.experiments.test_sequence_runs import FAKE_MULTI_TRAIN, sequence

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


@pytest.mark.process
def test_no_run_is_started_if_what_one_like_it_has_saved_would_not_fit(
    bench: Bench, free: list[int]
) -> None:
    bench.write(entry(seeds=[1, 2], arms={"a": {}, "b": {}}), entry("later", priority=2))
    first, other, second, *_ = bench.runs()
    bench.work()
    folder = bench.store.present_folder(first)
    assert folder is not None
    (folder.checkpoints / "update_000000100.pt").write_bytes(bytes(2_000_000))
    (folder.checkpoints / "update_000000100.replay").write_bytes(bytes(500_000))
    shutil.rmtree(bench.store.folder(second))
    (bench.places.results / "index.csv").unlink()
    free[0] = 3_499_999
    with pytest.raises(StoreFull, match=r"seed2: 3\.5 MB are free, 3\.5 MB are needed\. Make room"):
        bench.work()
    assert not bench.store.folder(second).exists()
    shutil.rmtree(bench.store.folder(other))
    with pytest.raises(StoreFull, match="a_CartPole-v1_seed2"):
        bench.work()  # of the other arm nothing is known, so it was run
    assert bench.statuses()[other.name] == "done"
    free[0] = 3_500_000
    bench.work()
    assert set(bench.statuses().values()) == {"done"}


@pytest.mark.process
def test_a_run_that_fails_where_there_is_no_room_is_not_counted_as_failed(
    bench: Bench, free: list[int]
) -> None:
    """Its last words may be about anything else, or be lost, as its output is on that disk, too."""
    bench.write(entry(flags={"gamma": 0.5}))
    free[0] = 50_000_000
    with pytest.raises(StoreFull, match=r"50\.0 MB are free, 101\.0 MB are needed"):
        bench.work()
    state = bench.store.state(bench.runs()[0])
    assert state is not None
    assert state.failures == 0
    free[0] = 200_000_000
    assert bench.work().failed == 2


def test_a_queue_that_ends_for_want_of_room_books_how_far_its_run_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = bench.runs()

    def train(*_: object, **__: object) -> Ending:
        (bench.store.folder(run) / "CartPole-v1_0" / "checkpoints").mkdir(parents=True)
        return Ending(1, False, REFUSED)

    monkeypatch.setattr(queue_loop, "run_trainer", train)
    with pytest.raises(StoreFull):
        bench.work()
    assert bench.statuses() == {run.name: "stopped"}


@pytest.mark.parametrize(
    ("free_bytes", "message", "ends"),
    [(10**10, REFUSED, True), (50_000_000, "x", True), (10**10, "x", False)],
)
def test_a_sequence_without_room_has_not_failed_either(
    bench: Bench,
    free: list[int],
    monkeypatch: pytest.MonkeyPatch,
    free_bytes: int,
    message: str,
    ends: bool,
) -> None:
    bench.write(sequence())
    (planned,) = load_queue(bench.places.queue_file).sequences
    free[0] = free_bytes
    monkeypatch.setattr(sequence_runs, "run_trainer", lambda *_, **__: Ending(1, False, message))
    bench.places.store.mkdir()
    store = bench.store
    runs = SequenceRuns([planned], store, bench.places.results, program=FAKE_MULTI_TRAIN)

    def train() -> bool:
        return runs.train(planned, wants_stop=lambda: False, wants_kill=lambda: False)

    if ends:
        with pytest.raises(StoreFull, match="population/CartPole-v1"):
            train()
    else:
        assert not train()
    state = store.state(planned)
    assert state is not None
    assert state.failures == (0 if ends else 1)


def test_what_a_save_wants_is_what_the_queue_looks_for(tmp_path: Path) -> None:
    assert room.BYTES_BESIDES == checkpoint_file.BYTES_BESIDES
    full = checkpoint_file._disk_full(tmp_path, "a checkpoint needs much")
    assert room.DISK_IS_FULL in str(full)
