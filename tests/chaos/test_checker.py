"""The checker finds nothing in a healthy history, and each planted violation by its name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.builders import record, session, write_checkpoint, write_run
from tests.chaos.checker import check_history
from tests.chaos.folder import take_snapshot
from tests.chaos.history import Expected, Session


def two_sessions(path: Path) -> list[Session]:
    """A run of 25 updates, and its resume to 45."""
    write_run(path, 25, checkpoints=(10, 20, 25))
    first = session(path)
    before = take_snapshot(path)
    write_run(path, 45, checkpoints=(30, 40, 45))
    second = session(path, 2, resumed=True, before=before)
    return [first, second]


def promises(sessions: list[Session]) -> set[str]:
    return {violation.promise for violation in check_history(sessions)}


def test_a_healthy_history_breaks_no_promise(tmp_path: Path) -> None:
    assert check_history(two_sessions(tmp_path)) == []


def test_a_killed_session_may_lose_a_period_and_the_resume_writes_it_again(tmp_path: Path) -> None:
    write_run(tmp_path, 27, checkpoints=(10, 20), summary=False)
    killed = Expected(statuses=(-9,), saved=False, leaves_temporaries=True)
    first = session(tmp_path, status=-9, expected=killed, output="")
    before = take_snapshot(tmp_path)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "metrics.jsonl").write_text("".join(lines[:20]))
    write_run(tmp_path, 35, checkpoints=(30, 35))
    assert check_history([first, session(tmp_path, 2, resumed=True, before=before)]) == []


def test_the_record_of_a_session_that_only_waited_is_set_aside_by_the_next(tmp_path: Path) -> None:
    write_run(tmp_path, 25, checkpoints=(10, 20, 25))
    lines = (tmp_path / "metrics.jsonl").read_text()
    waited = record(25) | {"wall_s": 9.5}
    (tmp_path / "metrics.jsonl").write_text(lines + json.dumps(waited) + "\n")
    before = take_snapshot(tmp_path)
    (tmp_path / "metrics.jsonl").write_text(lines)
    write_run(tmp_path, 45, checkpoints=(30, 40, 45))
    assert check_history([session(tmp_path, 2, resumed=True, before=before)]) == []


def rewrite_records(path: Path, change: Callable[[list[str]], list[str]]) -> None:
    file = path / "metrics.jsonl"
    lines = change(file.read_text().splitlines(keepends=True))
    file.write_text("".join(lines))


def edit_summary(path: Path, **changes: object) -> None:
    file = path / "summary.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


# What is done to the files after the second session, and the promise that it breaks.
PLANTED = {
    "a record is missing": ("continuous", lambda p: rewrite_records(p, lambda x: x[:33] + x[34:])),
    "a record of the first session is missing": (
        "continuous",
        lambda p: rewrite_records(p, lambda x: x[:7] + x[8:]),
    ),
    "a record is there twice": (
        "continuous",
        lambda p: rewrite_records(p, lambda x: [*x[:40], x[39], *x[40:]]),
    ),
    "a lost future stays": (
        "continuous",
        lambda p: rewrite_records(
            p, lambda x: [*x[:25], *(json.dumps(record(n)) + "\n" for n in (26, 27)), *x[25:]]
        ),
    ),
    "a checkpoint is not finite": ("finite", lambda p: write_checkpoint(p, 40, float("nan"))),
    "a checkpoint is infinite": ("finite", lambda p: write_checkpoint(p, 45, float("inf"))),
    "a checkpoint that was written is damaged": (
        "kept",
        lambda p: os.truncate(p / "checkpoints" / "update_000000040.pt", 300),
    ),
    "the last checkpoints are missing": (
        "kept",
        lambda p: [(p / "checkpoints" / f"update_{n:09d}.pt").unlink() for n in (30, 40, 45)],
    ),
    "the last save is missing": (
        "kept",
        lambda p: (p / "checkpoints" / "update_000000045.pt").unlink(),
    ),
    "the summary is of an earlier session": ("kept", lambda p: edit_summary(p, updates=25)),
    "a checkpoint that was read is overwritten": (
        "untouched",
        lambda p: write_checkpoint(p, 25, 0.7),
    ),
    "a game is missing in Scores.txt": (
        "scores",
        lambda p: (p / "Scores.txt").write_text("20,0,0,1.0\n"),
    ),
    "a game is there twice": (
        "scores",
        lambda p: (p / "Scores.txt").write_text("20,0,0,1.0\n" * 4),
    ),
    "a temporary file is left": (
        "clean",
        lambda p: (p / "checkpoints" / ".update_000000045.pt.99.tmp").touch(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_each_violation_that_is_planted_in_files_is_found(tmp_path: Path, name: str) -> None:
    first, second = two_sessions(tmp_path)
    promise, plant = PLANTED[name]
    plant(tmp_path)
    assert promise in promises([first, replace(second, after=take_snapshot(tmp_path))])


TRACEBACK = 'Traceback (most recent call last):\n  File "main.py"\nKeyError: 3\n'
CAUSE = "the run failed: worker 0 died\n"
ENDINGS: dict[str, tuple[str, dict[str, object]]] = {
    "another status": ("status", {"status": 1, "output": CAUSE}),
    "a signal": ("status", {"status": -2}),
    "no end": ("alive", {"status": None}),
    "a traceback": ("said", {"output": TRACEBACK}),
    "a traceback of the log": ("said", {"output": "--- Logging error ---\n"}),
    "no cause": ("said", {"status": 1, "expected": Expected(statuses=(1,)), "output": "oh\n"}),
    "two causes": (
        "said",
        {"status": 1, "expected": Expected(statuses=(1,)), "output": CAUSE + CAUSE},
    ),
    "refused without a word": (
        "said",
        {"status": 2, "expected": Expected(statuses=(2,)), "output": "no\n"},
    ),
    "refused with a novel": (
        "said",
        {"status": 2, "expected": Expected(statuses=(2,)), "output": "error: a\n" * 20},
    ),
    "interrupted without a word": (
        "said",
        {"status": 130, "expected": Expected(statuses=(130,)), "output": "\n"},
    ),
    "the fault is not mentioned": ("said", {"expected": Expected(says=r"worker \d was killed")}),
    "an orphan": ("clean", {"left_processes": ["4711 python sleep"]}),
    "shared memory": ("clean", {"left_memory": ["psm_1"]}),
    "a lock": ("clean", {"left_locks": ["lock"]}),
    "a file in the temporary folder": ("clean", {"left_files": ["pymp-1"]}),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_each_way_to_end_badly_is_found(tmp_path: Path, name: str) -> None:
    first, second = two_sessions(tmp_path)
    promise, changes = ENDINGS[name]
    assert promise in promises([first, replace(second, **changes)])


def test_what_was_announced_is_no_violation(tmp_path: Path) -> None:
    first, second = two_sessions(tmp_path)
    own = Expected(statuses=(1,), saved=False, traceback=True)
    output = TRACEBACK + CAUSE
    assert promises([first, replace(second, status=1, expected=own, output=output)]) == set()


REFUSED = {
    "resumed": True,
    "status": 2,
    "expected": Expected(statuses=(2,), saved=False),
    "output": "error: no\n",
}


@pytest.mark.parametrize("name", ["best.pt", "latest", "update_000000020.pt", "nothing"])
def test_a_session_without_an_update_may_change_nothing(tmp_path: Path, name: str) -> None:
    write_run(tmp_path, 25, checkpoints=(10, 20, 25))
    write_checkpoint(tmp_path, 15).rename(tmp_path / "checkpoints" / "best.pt")
    before = take_snapshot(tmp_path)
    if name != "nothing":
        write_checkpoint(tmp_path, 99, 0.6).rename(tmp_path / "checkpoints" / name)
    found = promises([session(tmp_path, before=before, **REFUSED)])
    assert found == (set() if name == "nothing" else {"untouched"})


def test_counters_of_a_fast_run_may_jump_but_not_go_back(tmp_path: Path) -> None:
    write_run(tmp_path, 40, checkpoints=(30, 40))
    rewrite_records(tmp_path, lambda lines: lines[4::5])
    assert check_history([session(tmp_path, reproducible=False)]) == []
    rewrite_records(tmp_path, lambda lines: [lines[1], lines[0], *lines[2:]])
    assert promises([session(tmp_path, reproducible=False)]) == {"continuous"}


def test_a_damaged_journal_is_not_held_against_the_next_session(tmp_path: Path) -> None:
    sessions = two_sessions(tmp_path)
    rewrite_records(tmp_path, lambda lines: ["null\n", *lines[20:], "\xff{{{\n"])
    after = take_snapshot(tmp_path)
    damaged = replace(sessions[1], after=after, expected=Expected(journals=False))
    assert check_history([sessions[0], damaged]) == []
