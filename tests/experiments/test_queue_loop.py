from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest

from experiments import __main__ as program
from experiments import index, queue_loop, trainer_process
from experiments.overview import queue_lines
from experiments.plan import TRAINER_LOCK, load_queue
from experiments.queue_loop import StopRequests, failed
from experiments.store import RunState, Store, default_store
from experiments.trainer_process import Ending, run_trainer
from ritornello.analysis.runs import find_runs
from ritornello.core import leaving
from ritornello.core.errors import ConfigError
from ritornello.core.file_lock import FileLock
from ritornello.metrics.record import Record
from tests.deadlines import HANGS_S
from tests.experiments.conftest import Bench, entry, lives, options, wait_for

pytestmark = pytest.mark.process


def test_all_runs_are_trained_booked_and_exported(bench: Bench) -> None:
    bench.write(entry("second", priority=2), entry("first", seeds=[1, 2], arms={"a": {}, "b": {}}))
    assert bench.work().failed == 0
    rows = bench.rows()
    assert [(row.experiment, row.arm, row.seed, row.status) for row in rows] == [
        ("first", "a", "1", "done"),
        ("first", "b", "1", "done"),
        ("first", "a", "2", "done"),
        ("first", "b", "2", "done"),
        ("second", "default", "1", "done"),
    ]
    row = rows[0]
    assert (row.steps_asked, row.steps_done, row.sessions) == ("1000", "1000", "1")
    assert (row.commit, row.processor) == ("aaaaaaa", "abacus, 2 cores")
    assert row.undisturbed == "0.20"  # the fake says that others came after 250 of 1000 steps
    assert (bench.places.store / row.folder / "metrics.jsonl").exists()
    runs, _ = find_runs([str(bench.places.results / "first")])
    assert {(run.about.label, run.about.seed) for run in runs} == {
        (arm, seed) for arm in "ab" for seed in (1, 2)
    }
    assert all(run.about.finished and run.curve.agent_steps[-1] == 1000 for run in runs)
    assert "--background=True" in runs[0].about.command
    # Once more: nothing is left, and nothing changes.
    before = bench.rows()
    bench.work()
    assert bench.rows() == before


def test_a_run_that_fails_twice_is_passed_over_and_the_queue_goes_on(bench: Bench) -> None:
    bench.write(entry("bad", flags={"gamma": 0.5}), entry("good", priority=2))
    assert bench.work().failed == 2
    bad, good = bench.runs()
    state = bench.store.state(bad)
    assert state is not None
    assert (state.failures, state.message) == (2, "the environment cannot be made")
    assert bench.statuses() == {good.name: "done"}  # it never made a run folder
    assert bench.output(bad).count("$ ") == 2
    assert bench.work().failed == 0
    assert bench.output(bad).count("$ ") == 2


def test_a_run_that_failed_once_is_resumed_and_lists_both_commits(bench: Bench) -> None:
    bench.write(entry(flags={"gamma": 0.8}))
    assert bench.work().failed == 1
    (row,) = bench.rows()
    assert (row.status, row.steps_done, row.sessions, row.message) == ("done", "1000", "2", "")
    assert row.commit == "aaaaaaa, then bbbbbbb"


def test_a_failed_run_with_a_folder_says_why_in_the_index(bench: Bench) -> None:
    bench.write(entry(flags={"gamma": 0.8}))
    (run,) = bench.runs()
    bench.work(seconds=None)
    folder = bench.store.present_folder(run)
    assert folder is not None
    state = bench.store.state(run)
    assert state is not None
    bench.store.write_state(run, replace(state, failures=2))
    (folder.checkpoints / "update_000000100.pt").unlink()  # so it is not done
    index.write_index(bench.places.results / "index.csv", [])
    bench.work()
    (row,) = bench.rows()
    assert (row.status, row.message) == ("failed", "something broke")


def test_a_trainer_that_is_killed_loses_nothing_but_time(bench: Bench) -> None:
    bench.write(entry(flags={"gamma": 0.7}))
    assert bench.work().failed == 0  # it had saved: somebody killed it
    (row,) = bench.rows()
    assert (row.status, row.sessions) == ("done", "2")
    (run,) = bench.runs()
    assert "train_w_load" in bench.output(run).split("$ ")[2]


def test_at_the_end_of_its_time_a_run_is_told_to_save_and_goes_on_next_time(bench: Bench) -> None:
    bench.write(entry(flags={"gamma": 0.6}), entry("later", priority=2))
    first, later = bench.runs()
    requests = StopRequests()

    class AtHalfTime(StopRequests):
        @property
        def count(self) -> int:
            return int(bench.waiting_pid() is not None)

        @count.setter
        def count(self, value: int) -> None: ...

    bench.work(AtHalfTime())
    (row,) = bench.rows()
    assert (row.run, row.status, row.steps_done) == (first.name, "stopped", "500")
    (run,), _ = find_runs([str(bench.places.results / "first")])
    assert not run.about.finished
    assert run.curve.agent_steps[-1] == 500
    bench.work(requests)
    assert bench.statuses() == {first.name: "done", later.name: "done"}
    assert bench.rows()[0].sessions == "2"


def test_no_run_is_started_after_the_end_of_the_time(bench: Bench) -> None:
    bench.work(seconds=0.0)
    assert bench.rows() == []
    assert not bench.store.folder(bench.runs()[0]).exists()


def test_a_killed_queue_takes_its_trainer_along_and_the_next_resumes(bench: Bench) -> None:
    bench.write(entry(flags={"gamma": 0.6}))
    queue = bench.queue_process()
    wait_for(bench.waiting_pid, "half-time")
    trainer = bench.waiting_pid()
    assert trainer is not None
    wait_for(bench.rows, "the row of the run that is under way")
    queue.kill()
    queue.communicate(timeout=HANGS_S)
    (row,) = bench.rows()
    assert (row.status, row.commit) == ("running", "aaaaaaa")  # nobody was there to correct it
    if sys.platform.startswith("linux"):
        wait_for(lambda: not lives(trainer), "the end of the trainer")
    second = bench.queue_process()
    output, _ = second.communicate(timeout=HANGS_S)
    assert second.returncode == 0, output
    assert not lives(trainer)
    assert "did not end in time" not in output
    (row,) = bench.rows()
    assert (row.status, row.steps_done, row.sessions) == ("done", "1000", "2")


def test_a_trainer_that_does_not_end_with_its_queue_is_killed_by_the_next(bench: Bench) -> None:
    bench.write(entry(flags={"gamma": 0.9}))
    queue = bench.queue_process()
    wait_for(bench.waiting_pid, "half-time")
    trainer = bench.waiting_pid()
    assert trainer is not None
    queue.kill()
    queue.communicate(timeout=HANGS_S)
    assert lives(trainer)  # it ignores what it is told
    second = bench.queue_process(grace_s=0.5)
    output, _ = second.communicate(timeout=HANGS_S)
    assert second.returncode == 0, output
    assert f"process {trainer} did not end in time" in output
    assert bench.rows()[0].status == "done"


@pytest.mark.slow
def test_a_run_that_hangs_is_killed_and_goes_on_from_its_checkpoint(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench.write(entry(flags={"gamma": 0.9}))
    monkeypatch.setattr(queue_loop, "SILENCE_S", 10.0)
    monkeypatch.setattr(queue_loop, "GRACE_S", 0.5)
    assert bench.work().failed == 0
    assert "no record for 10 s: it is stopped" in caplog.text
    (row,) = bench.rows()
    assert (row.status, row.steps_done, row.sessions) == ("done", "1000", "2")


def test_a_run_that_always_hangs_before_its_first_checkpoint_fails(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write(entry(flags={"gamma": 0.4}))
    monkeypatch.setattr(queue_loop, "SILENCE_S", 0.5)
    assert bench.work().failed == 2
    state = bench.store.state(bench.runs()[0])
    assert state is not None
    assert state.message == "no record for 0 s"


def test_a_full_disk_is_one_message(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Store, "write_state", full)
    places = bench.places
    options = [f"--queue={places.queue_file}", f"--store={places.store}"]
    assert program.main(["run", *options, f"--results_dir={places.results}"]) == 1
    assert "the queue has ended: [Errno 28] No space left" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_books_and_ends_with_status_130(
    bench: Bench, number: signal.Signals
) -> None:
    bench.write(entry(flags={"gamma": 0.6}))
    queue = bench.queue_process()
    wait_for(bench.waiting_pid, "half-time")
    queue.send_signal(number)
    output, _ = queue.communicate(timeout=HANGS_S)
    assert queue.returncode == 130, output
    assert bench.rows()[0].status == "stopped"
    state = bench.store.state(bench.runs()[0])
    assert state is not None
    assert state.failures == 0


def test_a_second_signal_does_not_wait_for_a_trainer_that_hangs(bench: Bench) -> None:
    bench.write(entry(flags={"gamma": 0.9}))
    queue = bench.queue_process(grace_s=1000.0)
    wait_for(bench.waiting_pid, "half-time")
    trainer = bench.waiting_pid()
    assert trainer is not None
    queue.send_signal(signal.SIGINT)
    with pytest.raises(Exception, match="timed out"):
        queue.communicate(timeout=0.5)
    queue.send_signal(signal.SIGINT)
    output, _ = queue.communicate(timeout=HANGS_S)
    assert queue.returncode == 130, output
    assert not lives(trainer)
    assert bench.rows()[0].status == "stopped"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_for_an_earlier_trainer(
    bench: Bench, number: signal.Signals
) -> None:
    bench.places.store.mkdir()
    with held_lock(bench.places.store / TRAINER_LOCK):
        queue = bench.queue_process(grace_s=3.0)
        assert queue.stdout is not None
        assert "waiting for the trainer of an earlier queue" in queue.stdout.readline()
        queue.send_signal(number)
        output, _ = queue.communicate(timeout=HANGS_S)
    assert queue.returncode == 130, output
    assert len(output.splitlines()) == 1
    assert "nothing was started" in output
    assert bench.rows() == []


def test_there_are_never_two_queues_on_one_store(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    store = bench.store
    store.lock(1.0, print)
    try:
        second = bench.queue_process()
        output, _ = second.communicate(timeout=HANGS_S)
    finally:
        store.close()
    assert second.returncode == 2
    assert f"another queue works on {bench.places.store} (process {os.getpid()}, since " in output
    assert "--store=<path> --results_dir=<path>" in output
    assert bench.rows() == []


def test_there_are_never_two_queues_on_one_folder_of_results(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = bench.places
    first = Store(tmp_path / "first")
    first.lock(1.0, print)
    first.lock_results(places.results)
    options = ["run", f"--queue={places.queue_file}", f"--store={places.store}"]
    options.append(f"--results_dir={places.results}")
    assert program.main(options) == 2
    message = capsys.readouterr().err
    assert f"another queue writes to {places.results}" in message
    assert "--store=<path>" in message
    assert "--results_dir=<path>" in message
    assert list(places.results.iterdir()) == []  # git would show a file
    assert not list(places.store.glob("*/*"))
    first.close()
    queue = bench.queue_process()
    output, _ = queue.communicate(timeout=HANGS_S)
    assert queue.returncode == 0, output


def test_a_folder_of_results_that_cannot_be_made_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--results_dir="):
        Store(tmp_path / "store").lock_results(tmp_path / "file" / "results")


def test_results_on_a_file_system_that_locks_no_folder_are_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.EBADF, "as NFS says of what is open for reading")

    monkeypatch.setattr("fcntl.flock", refuse)
    store = Store(tmp_path / "store")
    store.lock_results(tmp_path / "results")
    store.close()


def test_a_run_begun_anew_leaves_an_abandoned_row(bench: Bench) -> None:
    (run,) = bench.runs()
    first = bench.store.folder(run) / "CartPole-v1_0"
    (first / "checkpoints").mkdir(parents=True)  # killed before its first checkpoint
    bench.work()
    rows = bench.rows()
    assert [(row.folder.rpartition("/")[2] == first.name, row.status) for row in rows] == [
        (True, "abandoned"),
        (False, "done"),
    ]


def test_what_left_the_queue_stays_in_the_index_as_abandoned(bench: Bench) -> None:
    bench.write(entry("done"), entry("left", flags={"gamma": 0.6}, priority=2))
    done, left = bench.runs()

    class AtHalfTime(StopRequests):
        @property
        def count(self) -> int:
            return int(bench.waiting_pid() is not None)

        @count.setter
        def count(self, value: int) -> None: ...

    bench.work(AtHalfTime())
    bench.write(entry("other"))
    bench.work()
    assert list(bench.statuses().values()) == ["done", "abandoned", "done"]
    assert [done.name, left.name] == list(bench.statuses())[:2]


def test_a_run_that_the_index_knows_as_done_is_not_trained_in_a_new_store(
    bench: Bench, tmp_path: Path
) -> None:
    bench.work()
    (tmp_path / "store").rename(tmp_path / "gone")
    bench.work()
    assert [row.status for row in bench.rows()] == ["done"]
    assert not list(bench.places.store.glob("*/*"))


def test_a_run_of_a_store_that_is_gone_is_abandoned_when_it_is_begun_anew(
    bench: Bench, tmp_path: Path
) -> None:
    bench.work()
    rows = [replace(row, status="stopped", steps_done="500") for row in bench.rows()]
    index.write_index(bench.places.results / "index.csv", rows)
    (tmp_path / "store").rename(tmp_path / "gone")
    bench.work()
    assert [row.status for row in bench.rows()] == ["abandoned", "done"]


def test_more_steps_are_done_by_resuming(bench: Bench) -> None:
    bench.work()
    bench.write(entry(steps=2000))
    bench.work()
    (row,) = bench.rows()
    assert (row.status, row.steps_asked, row.steps_done, row.sessions) == (
        "done",
        "2000",
        "2000",
        "2",
    )


def test_a_begun_run_does_not_go_on_with_other_flags(bench: Bench) -> None:
    bench.work()
    bench.write(entry(flags={"lr": 0.1}))
    with pytest.raises(ConfigError, match="begun with other flags"):
        bench.work()


def test_an_experiment_added_while_the_queue_runs_is_found_and_a_bad_one_is_not_fatal(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    texts = [[entry(), entry("added", priority=2)], [entry(), entry("added", steps=0)]]
    real = queue_loop.run_trainer

    def and_edit(*arguments: object, **more: object) -> Ending:
        if texts:
            bench.write(*texts.pop(0))
        return real(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(queue_loop, "run_trainer", and_edit)
    bench.work()
    assert list(bench.statuses().values()) == ["done", "done"]
    assert "going on with the queue as it was" in caplog.text


def test_an_index_that_cannot_be_written_stops_no_training(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(index, "write_index", full)
    monkeypatch.setattr(queue_loop, "export_curve", full)
    bench.work()
    assert bench.store.is_done(bench.runs()[0])
    assert "index.csv was not written" in caplog.text
    assert "curve of first/default_CartPole-v1_seed1 was not written" in caplog.text


@pytest.mark.parametrize("text", ["nonsense", "a,b\n1,2\n", "folder\n1,2,3\n", '"'])
def test_a_damaged_index_is_told_before_anything_starts(bench: Bench, text: str) -> None:
    bench.places.results.mkdir()
    (bench.places.results / "index.csv").write_text(text)
    with pytest.raises(ConfigError, match="index.csv cannot be read"):
        bench.work()
    assert not list(bench.places.store.glob("*/*"))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("steps_done", "many"),
        ("steps_asked", "-1000"),
        ("steps_asked", "1e6"),
        ("steps_asked", "1_000"),
        ("sessions", "9" * 5000),
        ("minutes", "nan"),
    ],
)
def test_a_count_that_is_none_is_told_with_its_row(tmp_path: Path, column: str, value: str) -> None:
    row = index.Row(*["1"] * len(fields(index.Row)))
    path = tmp_path / "index.csv"
    index.write_index(path, [row, replace(row, folder="a/b/c", **{column: value})])
    with pytest.raises(ConfigError, match=rf"line 3, {column} is .*expected .*number") as caught:
        index.read_index(path)
    assert len(str(caught.value)) < 1000


def test_a_count_that_is_not_known_is_taken_from_the_run_folder(bench: Bench) -> None:
    bench.work()
    before = bench.rows()
    unknown = [replace(row, steps_asked="", steps_done="", minutes="") for row in before]
    index.write_index(bench.places.results / "index.csv", unknown)
    bench.work()
    assert bench.rows() == before


@pytest.mark.parametrize(
    "text",
    [
        "level 50%\rlevel 100%",
        "two\nlines",
        "both\r\n",
        'a "quote, and a comma',
        "\x1b[31mred\x07",
        "\x00",
        "\x85\u2028\x0b",
        "\ud800",
        "x" * 200_000,
    ],
)
def test_an_index_that_was_written_can_be_read_whatever_its_texts_are(
    tmp_path: Path, text: str
) -> None:
    row = replace(index.Row(*["1"] * len(fields(index.Row))), message=text, started=text)
    path = tmp_path / "index.csv"
    index.write_index(path, [row])
    (found,) = index.read_index(path).values()
    assert found.message.isprintable()
    assert found.message == found.started
    if text.isprintable() and len(text) < 100_000:
        assert found == row
    before = path.read_bytes()
    index.write_index(path, [found])
    assert path.read_bytes() == before


MARKERS = "<<<<<<< HEAD\n=======\n>>>>>>> theirs\n"


@pytest.mark.parametrize("damage", [MARKERS, "nonsense", "one,row\n"])
def test_an_index_with_a_row_that_is_none_is_told_with_its_line(
    tmp_path: Path, damage: str
) -> None:
    row = index.Row(*["1"] * len(fields(index.Row)))
    path = tmp_path / "index.csv"
    index.write_index(path, [row])
    path.write_text(path.read_text() + damage)
    with pytest.raises(ConfigError, match="line 3"):
        index.read_index(path)


@pytest.mark.parametrize("damage", ["number", "markers"])
def test_an_index_that_is_damaged_while_the_queue_runs_ends_neither_the_run_nor_the_queue(
    bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    damage: str,
) -> None:
    bench.work()
    (tmp_path / "store").rename(tmp_path / "gone")  # so that only the index knows of `first`
    bench.write(entry(priority=9), entry("second"), entry("third", priority=2))
    path = bench.places.results / "index.csv"
    sound = path.read_text()
    damaged = sound + MARKERS if damage == "markers" else sound.replace(",1000,1000,", ",1000,x,")
    assert damaged != sound
    started = []
    real = queue_loop.run_trainer

    def and_damage(arguments: list[str], *others: object, **more: object) -> Ending:
        started.append(arguments)
        path.write_text(damaged)
        return real(arguments, *others, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(queue_loop, "run_trainer", and_damage)
    assert bench.work().failed == 0
    assert len(started) == 2
    first, *others = sorted(bench.runs(), key=lambda run: run.experiment)
    assert not bench.store.run_folders(first)
    assert all(bench.store.is_done(run) for run in others)
    assert "index.csv was not written" in caplog.text
    assert "going on with the index as it was" in caplog.text
    assert path.read_text() == damaged  # it is left to the person who edits it
    path.write_text(sound)
    bench.work()
    assert len(started) == 2
    assert bench.statuses() == {run.name: "done" for run in bench.runs()}


@pytest.mark.parametrize("folder", ["", "first/default_CartPole-v1_seed1/CartPole-v1_1"])
def test_rows_of_the_index_never_hide_one_another(tmp_path: Path, folder: str) -> None:
    row = index.Row(*["1"] * len(fields(index.Row)))
    path = tmp_path / "index.csv"
    index.write_index(path, [replace(row, folder=folder), replace(row, folder=folder, seed="2")])
    with pytest.raises(ConfigError, match="2 rows have the folder"):
        index.read_index(path)


@pytest.mark.parametrize("command", ["list", "run"])
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"flags": ', "not valid JSON"),
        ('{"flags": {}, "failures": 1e999, "message": ""}', "failures is inf"),
        ('{"flags": {}, "failures": true, "message": ""}', "failures is True"),
        ('{"flags": {}, "failures": -1, "message": ""}', "failures is -1"),
        ('{"flags": {}, "failures": ' + "9" * 5000 + ', "message": ""}', "too long"),
        ('{"flags": "x", "failures": 0, "message": ""}', "flags is 'x'"),
        ('{"flags": {}, "failures": 0, "message": 7}', "message is 7"),
        ('{"flags": {}, "failures": 0}', "message is None"),
        ("[]", "expected an object"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_damaged_state_is_told_in_one_line_before_anything_starts(
    bench: Bench, capsys: pytest.CaptureFixture[str], command: str, text: str, complaint: str
) -> None:
    (run,) = bench.runs()
    bench.store.folder(run).mkdir(parents=True)
    (bench.store.folder(run) / "state.json").write_text(text)
    assert program.main([command, *options(bench)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "state.json cannot be read" in said
    assert complaint in said
    assert "Delete this file" in said


def test_a_state_that_is_a_pipe_keeps_nobody_waiting(bench: Bench) -> None:
    (run,) = bench.runs()
    bench.store.folder(run).mkdir(parents=True)
    os.mkfifo(bench.store.folder(run) / "state.json")
    with pytest.raises(ConfigError, match="not a regular file"):
        bench.store.state(run)


@pytest.mark.parametrize(
    ("ending", "progressed", "counts"),
    [
        (Ending(1, False, "x"), True, True),
        (Ending(2, False, "x"), True, True),
        (Ending(0, False, ""), True, True),  # it ended well, but far from its steps
        (Ending(-9, False, ""), True, False),
        (Ending(-9, False, ""), False, True),
        (Ending(130, False, ""), True, False),
        (Ending(130, False, ""), False, True),
        (Ending(130, True, ""), False, False),
        (Ending(-9, True, ""), False, False),
        (Ending(1, True, ""), False, False),
    ],
)
def test_which_endings_are_failures(ending: Ending, progressed: bool, counts: bool) -> None:
    assert failed(ending, is_done=False, progressed=progressed) is counts
    assert not failed(ending, is_done=True, progressed=progressed)


@pytest.mark.parametrize(
    ("sessions", "failures"),
    [
        # Of each session that is killed: the updates of the checkpoint that it saves, and of its
        # last record.
        ([(100, 120), (None, 121), (None, 122)], 2),  # it goes on from the same one each time
        ([(100, 140), (130, 132), (150, 151)], 0),  # a resume cuts what came after the checkpoint
    ],
)
def test_a_run_that_is_killed_has_failed_unless_it_saved_a_newer_checkpoint(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    sessions: list[tuple[int | None, int]],
    failures: int,
) -> None:
    (run,) = bench.runs()
    made = bench.store.folder(run) / "CartPole-v1_0"
    requests = StopRequests()
    left = list(sessions)

    def train(*arguments: object, **more: object) -> Ending:
        if not left:
            requests.note(signal.SIGINT)
            return Ending(130, True, "")
        saved, recorded = left.pop(0)
        (made / "checkpoints").mkdir(parents=True, exist_ok=True)
        if saved is not None:
            (made / "checkpoints" / f"update_{saved:09d}.pt").touch()
        record = Record(agent_steps=recorded, updates=recorded, wall_s=float(recorded))
        (made / "metrics.jsonl").write_text(record.to_json() + "\n")
        return Ending(-signal.SIGKILL, False, "")

    monkeypatch.setattr(queue_loop, "run_trainer", train)
    assert bench.work(requests).failed == failures
    assert not left


def test_a_run_is_done_only_when_its_last_state_is_saved(bench: Bench) -> None:
    bench.work()
    (run,) = bench.runs()
    folder = bench.store.present_folder(run)
    assert folder is not None
    assert bench.store.is_done(run)
    (folder.checkpoints / "update_000000100.pt").unlink()
    assert not bench.store.is_done(run)


def test_a_run_that_has_done_its_steps_is_done_without_its_last_record(bench: Bench) -> None:
    """What its summary says counts, if the state it speaks of is saved."""
    bench.work()
    (run,) = bench.runs()
    folder = bench.store.present_folder(run)
    assert folder is not None
    lines = folder.metrics_file.read_text().splitlines(keepends=True)
    folder.metrics_file.write_text("".join(lines[:-1]))
    index.write_index(bench.places.results / "index.csv", [])
    assert not bench.store.is_done(run)
    for damaged in ("{", "[]", '{"agent_steps": "many", "updates": 100}', '{"agent_steps": 1e999}'):
        folder.summary_file.write_text(damaged)
        assert not bench.store.is_done(run)
    folder.write_summary({"agent_steps": 999, "updates": 100})
    assert not bench.store.is_done(run)
    folder.write_summary({"agent_steps": 1000, "updates": 101})  # that state is not there
    assert not bench.store.is_done(run)
    folder.write_summary({"agent_steps": 1010, "updates": 100})
    assert bench.store.is_done(run)
    assert bench.work().failed == 0
    assert bench.output(run).count("$ ") == 1
    (row,) = bench.rows()
    assert (row.status, row.steps_done) == ("done", "1010")


def test_the_list_says_why_a_run_failed_that_never_made_its_folder(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.write(entry(flags={"gamma": 0.5}), entry("later", priority=2))
    bad, later = bench.runs()
    state = RunState(dict(bad.flags), 1, "it \x1b[31mended")
    bench.store.write_state(bad, state)
    assert program.main(["list", *options(bench)]) == 0
    line, other = capsys.readouterr().out.splitlines()[1:3]
    assert line.split()[:3] == [bad.name, "waiting,", "next"]
    assert line.endswith("  it \\x1b[31mended")
    assert other.split()[1] == "waiting"
    bench.store.write_state(bad, replace(state, failures=2))
    assert program.main(["list", *options(bench)]) == 0
    line, other = capsys.readouterr().out.splitlines()[1:3]
    assert line.split() == f"{bad.name} failed 0 of 1,000 0 it \\x1b[31mended".split()
    assert other.split()[:3] == [later.name, "waiting,", "next"]


def test_the_list_shows_states_and_what_is_left(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.work()
    bench.write(entry(), entry("next", priority=2, seeds=[1, 2], steps=600_000))
    places = bench.places
    options = [f"--queue={places.queue_file}", f"--store={places.store}"]
    assert program.main(["list", *options, f"--results_dir={places.results}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:5] == [bench.runs()[0].name, "done", "1,000", "of", "1,000"]
    assert lines[2].split()[1:6] == ["waiting,", "next", "0", "of", "600,000"]
    # 1000 steps took the fake one second (0.0 minutes when rounded): nothing is known.
    rows = [replace(row, minutes="0.5") for row in bench.rows()]
    text = queue_lines(
        load_queue(places.queue_file).experiments, bench.store, {row.folder: row for row in rows}
    )
    assert text[-2].startswith("about 600 minutes left")
    assert text[-1].startswith("1,000 agent steps played in all")


def test_a_run_whose_folder_was_copied_to_go_on_elsewhere_is_counted_once(bench: Bench) -> None:
    bench.work()
    (row,) = bench.rows()
    copied = replace(row, experiment="longer", folder=f"longer/{row.folder}", steps_done="2500")
    other = replace(row, arm="other", folder=f"other/{row.folder}")
    assert index.steps_played([row, copied, other]) == 3500


def test_wrong_arguments_are_one_message_and_status_2(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.write(entry(steps=0))
    places = bench.places
    options = [f"--queue={places.queue_file}", f"--store={places.store}"]
    assert program.main(["run", *options, f"--results_dir={places.results}"]) == 2
    assert "first: steps" in capsys.readouterr().err
    assert not places.store.exists()  # nothing was made
    for wrong in ("0", "-1", "nan", "inf", "soon"):
        with pytest.raises(SystemExit) as ended:
            program.main(["run", f"--minutes={wrong}"])
        assert ended.value.code == 2


def test_a_store_that_cannot_be_made_is_one_message(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--store="):
        Store(tmp_path / "file" / "store").lock(0.0, print)


def test_retry_failed_forgets_failures(bench: Bench) -> None:
    bench.write(entry(flags={"gamma": 0.5}))
    bench.work()
    (run,) = bench.runs()
    queue = bench.queue_process("--retry_failed")
    output, _ = queue.communicate(timeout=HANGS_S)
    assert queue.returncode == 1, output
    assert bench.output(run).count("$ ") == 4


def test_the_store_is_named_by_a_variable_or_lies_in_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ACTOR_CRITIC_EXPERIMENTS", str(tmp_path))
    assert default_store() == tmp_path
    monkeypatch.delenv("ACTOR_CRITIC_EXPERIMENTS")
    assert default_store() == Path.home() / ".cache/actor-critic/experiments"


@pytest.mark.slow
def test_a_real_run_is_stopped_resumed_and_done(bench: Bench) -> None:
    flags = {"charts": False, "tensorboard": False, "save_model_period": 5, "log_interval_s": 0.5}
    # So many that the queue sees the first checkpoint long before the end: 4,000 take 0.7 s.
    bench.write(entry(steps=30_000, flags=flags))
    places = replace(bench.places, main_program=queue_loop.MAIN_PROGRAM, background=False)
    (run,) = bench.runs()

    class AtFirstCheckpoint(StopRequests):
        @property
        def count(self) -> int:
            folder = bench.store.present_folder(run)
            return int(folder is not None and folder.has_checkpoint())

        @count.setter
        def count(self, value: int) -> None: ...

    for requests in (AtFirstCheckpoint(), StopRequests()):
        store = bench.store
        store.lock(1.0, print)
        try:
            queue_loop.QueueLoop(places, store, None).run(requests)
        finally:
            store.close()
        if isinstance(requests, AtFirstCheckpoint):
            assert bench.rows()[0].status == "stopped", bench.output(run)
    (row,) = bench.rows()
    assert (row.status, row.sessions) == ("done", "2"), bench.output(run)
    assert int(row.steps_done) >= 30_000
    (exported,), _ = find_runs([str(places.results / "first")])
    assert exported.about.finished
    info = json.loads((places.store / row.folder / "run.json").read_text())
    assert info["machine"]["cores_usable"] >= 1


@contextlib.contextmanager
def held_lock(path: Path) -> Iterator[FileLock]:
    lock = FileLock(path)
    assert lock.acquire()
    try:
        yield lock
    finally:
        lock.release()


def test_nobody_waits_for_ever_for_a_trainer_that_cannot_be_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a device or a file system holds it in the kernel."""
    held = tmp_path / "held.py"
    pids: list[int] = []
    held.write_text("import signal; signal.sigwait([signal.SIGUSR1])")
    kill = os.killpg
    monkeypatch.setattr(os, "killpg", lambda group, number: None)
    monkeypatch.setattr(leaving, "KILL_WAIT_S", 0.1)
    monkeypatch.setattr("subprocess.Popen.send_signal", lambda child, number: None)
    # If it were waited for, this would let the test come to its end and fail.
    rescue = threading.Timer(60.0, lambda: kill(pids[0], signal.SIGKILL))
    rescue.start()
    try:
        with held_lock(tmp_path / "lock") as lock:
            ending = run_trainer(
                [], tmp_path / "output", lock=lock, started=pids.append, grace_s=0.1,
                wants_stop=lambda: True, wants_kill=lambda: True, main_program=held,
            )  # fmt: skip
        assert rescue.is_alive()
    finally:
        rescue.cancel()
        kill(pids[0], signal.SIGKILL)
        os.waitpid(pids[0], 0)
    assert (ending.status, ending.asked) == (-signal.SIGKILL, True)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("level 50%\rlevel 100%\r", "level 100%"),
        ("first\r\nlast\r\n", "last"),
        ("\x1b[31mthe end\x07\n", "\\x1b[31mthe end\\x07"),
        ("", ""),
    ],
)
def test_the_last_line_of_output_is_one_that_may_be_shown(
    tmp_path: Path, output: str, message: str
) -> None:
    program = tmp_path / "says.py"
    program.write_text(f"import sys; sys.stdout.write({output!r}); sys.exit(1)")
    with held_lock(tmp_path / "lock") as lock:
        ending = run_trainer(
            [], tmp_path / "output", lock=lock, started=lambda pid: None,
            wants_stop=lambda: False, wants_kill=lambda: False, main_program=program,
        )  # fmt: skip
    assert (ending.status, ending.message) == (1, message)


SAVING = """
import pathlib, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
here = pathlib.Path(sys.argv[1])
(here / "ready").touch()
signal.sigwait([signal.SIGINT])
(here / "told").touch()
time.sleep(float(sys.argv[2]))
(here / "saved").touch()
"""


@pytest.mark.parametrize(
    ("save_s", "grace_s", "saves"), [(0.2, HANGS_S, True), (300.0, 0.5, False)]
)
def test_an_error_of_the_queue_lets_the_trainer_save_and_then_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save_s: float, grace_s: float, saves: bool
) -> None:
    monkeypatch.setattr(trainer_process, "POLL_S", 0.02)
    program = tmp_path / "saving.py"
    program.write_text(SAVING)
    pids: list[int] = []
    asked = 0

    def breaks() -> bool:
        nonlocal asked
        if not (tmp_path / "ready").exists():
            return False
        asked += 1
        raise ValueError("a number that is none")

    with held_lock(tmp_path / "lock") as lock, pytest.raises(ValueError, match="that is none"):
        run_trainer(
            [str(tmp_path), str(save_s)], tmp_path / "output", lock=lock, started=pids.append,
            grace_s=grace_s, wants_stop=breaks, wants_kill=lambda: False, main_program=program,
        )  # fmt: skip
    assert asked == 1
    assert (tmp_path / "told").exists()
    assert (tmp_path / "saved").exists() is saves
    assert not lives(pids[0])
