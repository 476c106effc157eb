from __future__ import annotations

import json
import os
import shlex
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from research.queue import __main__ as program
from research.queue import index, queue_loop
from research.queue.curve_file import export_curve
from research.queue.overview import queue_lines
from research.queue.plan import PlannedRun, load_queue
from research.queue.queue_loop import StopRequests, failed
from research.queue.store import Store
from research.queue.trainer_process import Ending
from research.tests.conftest import Bench, entry, lives, options, wait_for
from ritornello.analysis.runs import find_runs
from ritornello.core.errors import ConfigError
from tests.analysis.builders import write_run, write_run_of_games
from tests.deadlines import HANGS_S

pytestmark = pytest.mark.process

PONG, BREAKOUT = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"
RUN = PlannedRun("first", "lr", PONG, 1, 1000, {})

REFUSED = (
    "the run failed: the disk is full: a checkpoint needs 1.9 MB, 1.1 MB are free in /s. Nothing "
    "has changed there, and the next save tries again: free some space."
)


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
    kept = (bench.places.results / "first" / "metrics").glob("*.csv")
    (one, *others) = [path.read_text().splitlines() for path in kept]
    assert len(others) == 3
    assert one[0].startswith("agent_steps,episode/return_mean")
    assert one[-1].startswith("1000,100,")
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


def test_a_trainer_that_is_killed_loses_nothing_but_time(bench: Bench) -> None:
    bench.write(entry(flags={"gamma": 0.7}))
    assert bench.work().failed == 0  # it had saved: somebody killed it
    (row,) = bench.rows()
    assert (row.status, row.sessions) == ("done", "2")
    (run,) = bench.runs()
    assert "train_w_load" in bench.output(run).split("$ ")[2]


def test_the_command_of_a_run_can_be_pasted_from_its_output(bench: Bench) -> None:
    replay = [{"type": "queue", "capacity": 4, "sample_ratio": 1.0}]
    bench.write(entry(flags={"replay_parameters": replay}))
    bench.work()
    first, *_ = bench.output(bench.runs()[0]).splitlines()
    assert f"--replay_parameters={json.dumps(replay)}" in shlex.split(first)


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


def test_a_run_that_always_hangs_before_its_first_checkpoint_fails(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write(entry(flags={"gamma": 0.4}))
    monkeypatch.setattr(queue_loop, "SILENCE_S", 0.5)
    assert bench.work().failed == 2
    state = bench.store.state(bench.runs()[0])
    assert state is not None
    assert state.message == "no record for 0 s"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
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


def test_a_run_that_the_index_knows_as_done_is_not_trained_in_a_new_store(
    bench: Bench, tmp_path: Path
) -> None:
    bench.work()
    (tmp_path / "store").rename(tmp_path / "gone")
    bench.work()
    assert [row.status for row in bench.rows()] == ["done"]
    assert not list(bench.places.store.glob("*/*"))


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


def test_a_run_is_done_only_when_its_last_state_is_saved(bench: Bench) -> None:
    bench.work()
    (run,) = bench.runs()
    folder = bench.store.present_folder(run)
    assert folder is not None
    assert bench.store.is_done(run)
    (folder.checkpoints / "update_000000100.pt").unlink()
    assert not bench.store.is_done(run)


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


def test_a_game_of_a_run_of_several_is_not_taken_for_a_run_of_it_alone(tmp_path: Path) -> None:
    store, results = Store(tmp_path / "store"), tmp_path / "results"
    both = replace(RUN, env=f"{PONG},{BREAKOUT}")
    write_run(store.folder(RUN) / "Pong_1", seed=1)
    write_run_of_games(store.folder(both) / "2games_1", seed=1)
    (alone,) = export_curve(RUN, store, results)
    written = alone.read_bytes()
    pong, breakout = export_curve(both, store, results)
    assert pong == results / "first" / f"lr-2-games_{PONG}_seed1.csv"
    assert breakout == results / "first" / f"lr-2-games_{BREAKOUT}_seed1.csv"
    assert alone.read_bytes() == written
    runs, _ = find_runs([str(results)])
    assert {(run.about.label, run.about.env, run.curve.agent_steps[-1]) for run in runs} == {
        ("lr", PONG, 1000),
        ("lr, 2 games", PONG, 500),
        ("lr, 2 games", BREAKOUT, 500),
    }
