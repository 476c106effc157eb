"""What counts as a sign of life, on a clock that is turned by hand."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from experiments import watch
from experiments.plan import PlannedRun
from experiments.store import Store
from experiments.watch import SequenceWatch, Watch
from ritornello.core.process_death import start_of
from ritornello.sequences.folder import RunState, SequenceFolder
from ritornello.sequences.plan import TEST_FLAGS

GONE = 2**22 + 1  # beyond the largest number that Linux gives to a process


NO_PROCESS = (0, -1, 2**31, 2**62, True, 1.5, "1", None, [1])


class Clock:
    """Gives the time to the watch, and to the files that are written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(watch.time, "monotonic", lambda: self.now_s)

    def write(self, path: Path, text: str = "") -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (self.now_s, self.now_s))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def begun_sequence(store: Path) -> tuple[Path, Path]:
    """Return the folders of a training and of its test in a sequence that was begun."""
    folder = store / "claim_20240101-000000"
    folder.mkdir(parents=True)
    tests: dict[str, Any] = {**TEST_FLAGS, "load_model_url": {"run": "a"}}
    runs = [
        RunState("001_a_seed1", "a", 1, {}),
        RunState("002_test-a_seed1", "test a", 1, tests),
    ]
    SequenceFolder(folder, "claim", runs, []).save()
    return folder / runs[0].name, folder / runs[1].name


@pytest.mark.parametrize("place", ["scores.csv", "output.log"])
def test_a_test_of_a_sequence_lives_while_it_writes_scores_or_how_far_it_is(
    tmp_path: Path, clock: Clock, place: str
) -> None:
    looks = SequenceWatch(tmp_path)  # before multi_train.py has made anything
    assert looks.silence_s() == 0.0
    training, test = begun_sequence(tmp_path)
    path = test / place if place == "output.log" else training / "Pong-v5_1" / place
    for _ in range(3):
        clock.now_s += 600.0
        clock.write(path)
        assert looks.silence_s() == 0.0
    clock.now_s += 600.0
    assert looks.silence_s() == 600.0


def test_a_training_of_a_sequence_lives_by_its_records_and_not_by_what_it_complains_of(
    tmp_path: Path, clock: Clock
) -> None:
    training, _ = begun_sequence(tmp_path)
    looks = SequenceWatch(tmp_path)
    clock.now_s += 600.0
    clock.write(training / "output.log", "no batch for 60 s")
    assert looks.silence_s() == 600.0
    clock.write(training / "Pong-v5_1" / "metrics.jsonl")
    assert looks.silence_s() == 0.0


def test_a_file_from_the_future_hides_no_other_that_grows(tmp_path: Path, clock: Clock) -> None:
    training, _ = begun_sequence(tmp_path)
    ahead = training / "Pong-v5_1" / "metrics.jsonl"
    clock.write(ahead)
    os.utime(ahead, (1e10, 1e10))  # as by a clock that was set back
    looks = SequenceWatch(tmp_path)
    for _ in range(3):
        clock.now_s += 600.0
        clock.write(training / "Pong-v5_2" / "metrics.jsonl")
        assert looks.silence_s() == 0.0
    with ahead.open("a") as file:
        file.write("a record")
    os.utime(ahead, (1e10, 1e10))
    clock.now_s += 600.0
    assert looks.silence_s() == 0.0
    clock.now_s += 600.0
    assert looks.silence_s() == 600.0


def watched(kind: str, store: Path) -> tuple[Watch | SequenceWatch, Path]:
    """Return a watch, and the run folder that it looks at."""
    if kind == "sequence":
        training, _ = begun_sequence(store)
        run_folder = training / "Pong-v5_1"
        (run_folder / "checkpoints").mkdir(parents=True)
        return SequenceWatch(store), run_folder
    run = PlannedRun("claim", "default", "Pong-v5", 1, 1000, {})
    run_folder = store / run.name / "Pong-v5_1"
    (run_folder / "checkpoints").mkdir(parents=True)
    return Watch(run, Store(store)), run_folder


@pytest.mark.parametrize("kind", ["run", "sequence"])
def test_a_run_that_somebody_has_paused_does_not_hang(
    tmp_path: Path, clock: Clock, kind: str
) -> None:
    looks, run_folder = watched(kind, tmp_path)
    state = run_folder / "control" / "state.json"
    for _ in range(2):
        clock.write(state, json.dumps({"format": 1, "paused": True, "pid": os.getpid()}))
        clock.now_s += 6000.0
        assert looks.silence_s() == 0.0
    clock.write(state, json.dumps({"format": 1, "paused": False, "pid": os.getpid()}))
    clock.now_s += 600.0
    assert looks.silence_s() == 600.0


@pytest.mark.parametrize("kind", ["run", "sequence"])
@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", '{"paused": 1}', '{"paused": true}'),
        *(json.dumps({"paused": True, "pid": pid}) for pid in (GONE, *NO_PROCESS)),
    ],
)
def test_a_pause_of_which_nobody_is_left_to_know_is_none(
    tmp_path: Path, clock: Clock, kind: str, text: str
) -> None:
    looks, run_folder = watched(kind, tmp_path)
    clock.write(run_folder / "control" / "state.json", text)
    clock.now_s += 600.0
    assert looks.silence_s() == 600.0


@pytest.mark.skipif(start_of(os.getpid()) is None, reason="this system tells no such start")
@pytest.mark.parametrize("kind", ["run", "sequence"])
def test_a_process_that_was_given_the_number_of_a_paused_run_is_not_taken_for_it(
    tmp_path: Path, clock: Clock, kind: str
) -> None:
    looks, run_folder = watched(kind, tmp_path)
    said = {"paused": True, "pid": os.getpid()}
    for start, silence_s in ((start_of(os.getpid()), 0.0), ("another", 600.0)):
        text = json.dumps({**said, "pid_start": start})
        clock.write(run_folder / "control" / "state.json", text)
        clock.now_s += 600.0
        assert looks.silence_s() == silence_s
