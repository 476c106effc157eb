"""Whole sequences in the queue: run, stopped, resumed and reported like runs."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from experiments import index, queue_loop, sequence_runs
from experiments.plan import SHIPPED_QUEUE, load_queue
from experiments.queue_loop import QueueLoop, StopRequests
from experiments.sequence_runs import (
    SequenceRuns,
    command,
    is_done,
    is_done_by_index,
    sequence_folder,
    sequence_lines,
    trainings,
)
from experiments.store import Store
from ritornello.agent.stored.run_folder import safe_name
from ritornello.analysis.runs import find_runs
from ritornello.core.errors import ConfigError
from ritornello.sequences.plan import goes_on, is_test, load_plan
from tests.experiments.conftest import Bench, entry

FAKE_MULTI_TRAIN = Path(__file__).with_name("fake_multi_train.py")


def sequence(name: str = "population", **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "question": "Does it pay?",
        "what_counts": "The area.",
        "priority": 1,
        "sequence": "population_claim",
        "games": ["CartPole-v1"],
        **changes,
    }


def work(bench: Bench, requests: StopRequests | None = None) -> QueueLoop:
    store = bench.store
    store.lock(1.0, print)
    try:
        loop = QueueLoop(replace(bench.places, sequence_program=FAKE_MULTI_TRAIN), store, None)
        loop.run(requests or StopRequests())
    finally:
        store.close()
    return loop


def sessions(bench: Bench, number: int = 0) -> list[list[str]]:
    planned = load_queue(bench.places.queue_file).sequences[number]
    text = (bench.store.folder(planned) / "output.log").read_text()
    lines = [line for line in text.splitlines() if line.startswith("arguments: ")]
    return [json.loads(line.partition(": ")[2]) for line in lines]


@pytest.mark.process
def test_a_sequence_is_begun_resumed_until_it_is_done_and_reported(bench: Bench) -> None:
    bench.write(sequence(), entry(priority=2))
    assert work(bench).failed == 0
    (planned,) = load_queue(bench.places.queue_file).sequences
    assert is_done(planned, bench.store)
    first, second = sessions(bench)
    folder = sequence_folder(planned, bench.store)
    assert first[:3] == [
        "--sequence=population_claim",
        f"--results_dir={bench.store.folder(planned)}",
        "--env=CartPole-v1",
    ]
    assert second[0] == f"--resume={folder}"
    assert first[3:] == second[1:] == ["--", "--background=True"]
    report = bench.places.results / "population" / "CartPole-v1" / "population.md"
    assert report.read_text() == "2"
    trained = {f"{each.name}": "done" for each in trainings(planned, bench.store)}
    assert len(trained) == 2
    assert bench.statuses() == {run.name: "done" for run in bench.runs()} | trained
    assert sequence_lines([planned], bench.store, {}) == [
        "population/CartPole-v1  sequence population_claim: 2 of 2 runs done"
    ]
    work(bench)  # once more: nothing is left
    assert len(sessions(bench)) == 2


@pytest.mark.process
def test_the_trainings_of_a_sequence_have_rows_and_curves_like_other_runs(bench: Bench) -> None:
    bench.write(sequence())
    work(bench)
    rows = bench.rows()
    assert [(row.experiment, row.arm, row.env, row.seed) for row in rows] == [
        ("population", "r-1", "CartPole-v1", "1"),
        ("population", "r-2", "CartPole-v1", "1"),
    ]
    assert [(row.status, row.steps_done, row.steps_asked) for row in rows] == [
        ("done", "500", "500")
    ] * 2
    for arm in ("r-1", "r-2"):  # by the seed of the sequence, not by that of the agent
        path = bench.places.results / "population" / f"{arm}_CartPole-v1_seed1.csv"
        ((found,), _) = find_runs([str(path)])
        assert (found.about.label, found.about.seed, found.about.finished) == (arm, 1, True)
        assert found.curve.agent_steps[-1] == 500


@pytest.mark.process
def test_a_run_that_goes_on_from_another_has_its_own_steps_and_minutes_in_the_index(
    bench: Bench,
) -> None:
    bench.write(sequence())
    work(bench)
    (planned,) = load_queue(bench.places.queue_file).sequences
    folder = sequence_folder(planned, bench.store)
    assert folder is not None
    data = json.loads((folder / "sequence.json").read_text())
    first, then = data["runs"]
    first["flags"]["environment_max_steps"] = 300
    then["flags"] |= {"op_mode": "train_w_load", "load_model_url": {"run": first["group"]}}
    (folder / "sequence.json").write_text(json.dumps(data))
    before, after = trainings(planned, bench.store)
    assert (before.own_steps, after.own_steps) == (300, 200)
    (metrics,) = (folder / then["name"]).glob("*/metrics.jsonl")
    records = [json.loads(line) for line in metrics.read_text().splitlines()]
    for number, record in enumerate(records):
        record["wall_s"] = 6000.0 + 60 * number
    metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    _, row = index.refresh({}, [before, after], bench.store).values()
    assert (row.status, row.steps_done, row.steps_asked) == ("done", "200", "200")
    assert float(row.minutes) == len(records) - 1


@pytest.mark.process
def test_a_sequence_that_the_index_knows_as_done_is_not_run_in_another_store(
    bench: Bench, tmp_path: Path
) -> None:
    bench.write(sequence())
    (planned,) = load_queue(bench.places.queue_file).sequences
    work(bench)
    rows = index.read_index(bench.places.results / index.INDEX_FILE)
    assert not is_done_by_index(planned, rows)  # the fake trains two of eighteen, and not as long
    plan = load_plan(planned.sequence)
    one = next(iter(rows.values()))
    for number, run in enumerate(plan.runs):
        rows[str(number)] = replace(
            one,
            arm=safe_name(run.group),
            seed=str(run.seed),
            steps_done=str(run.flags["environment_max_steps"]),
            folder=f"population/elsewhere/{number}/x",
        )
    assert is_done_by_index(planned, rows)
    (line,) = sequence_lines([planned], Store(tmp_path / "fresh"), rows)
    assert line.endswith(": 18 of 18 runs done, by the index")
    fresh = SequenceRuns([planned], Store(tmp_path / "fresh"), bench.places.results)
    assert fresh.next({}) == planned
    assert fresh.next(rows) is None
    rows["0"] = replace(rows["0"], status=index.STOPPED)
    assert fresh.next(rows) == planned
    rows["0"] = replace(rows["0"], status=index.DONE, steps_done="299999")
    assert fresh.next(rows) == planned


@pytest.mark.process
def test_a_sequence_whose_runs_name_their_games_is_run_once_without_one(
    bench: Bench, tmp_path: Path
) -> None:
    queued = sequence("forgetting", sequence="forgetting_small")
    del queued["games"]
    bench.write(queued)
    (planned,) = load_queue(bench.places.queue_file).sequences
    assert planned.name == "forgetting/forgetting_small"
    where = f"--results_dir={bench.store.folder(planned)}"
    assert command(planned, bench.store) == ["--sequence=forgetting_small", where]
    work(bench)
    first, *_ = sessions(bench)
    assert not [argument for argument in first if argument.startswith("--env=")]
    rows = index.read_index(bench.places.results / index.INDEX_FILE)
    assert {row.env for row in rows.values()} == {"Own-v1", "Own-v2"}
    assert not is_done_by_index(planned, rows)
    one = next(iter(rows.values()))
    for number, run in enumerate(load_plan(planned.sequence).runs):
        if not is_test(run.flags):
            rows[str(number)] = replace(
                one,
                arm=safe_name(run.group),
                env=run.flags["env"],
                seed=str(run.seed),
                steps_done=str(run.flags["environment_max_steps"]),
                folder=f"forgetting/elsewhere/{number}/x",
            )
    assert is_done_by_index(planned, rows)


def test_a_sequence_of_runs_that_go_on_is_done_by_the_index_with_their_own_steps(
    bench: Bench,
) -> None:
    queued = sequence("forgetting", sequence="forgetting_replay")
    del queued["games"]
    bench.write(queued)
    (planned,) = load_queue(bench.places.queue_file).sequences
    empty = index.Row(**{each.name: "" for each in fields(index.Row)})
    rows = {}
    for number, run in enumerate(load_plan(planned.sequence).runs):
        if not is_test(run.flags):
            rows[str(number)] = replace(
                empty,
                status=index.DONE,
                experiment="forgetting",
                arm=safe_name(run.group),
                env=run.flags["env"],
                seed=str(run.seed),
                steps_done="300000" if goes_on(run.flags) else "600000",
            )
    assert is_done_by_index(planned, rows)
    rows["2"] = replace(rows["2"], steps_done="299999")
    assert not is_done_by_index(planned, rows)


def test_a_sequence_of_tests_alone_is_never_done_by_the_index(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write(sequence())
    (planned,) = load_queue(bench.places.queue_file).sequences
    plan = load_plan(planned.sequence)
    tests = replace(plan, runs=(replace(plan.runs[0], flags={"op_mode": "test"}),))
    monkeypatch.setattr(sequence_runs, "load_plan", lambda name: tests)
    assert not is_done_by_index(planned, {})


@pytest.mark.process
def test_the_queue_says_where_the_trainings_of_a_sequence_are_and_books_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(queue_loop, "LINE_INTERVAL_S", 0.0)
    caplog.set_level("INFO")
    bench.write(sequence(games=["Seen-v0"]))
    booked = []
    real = QueueLoop._book

    def book(self: QueueLoop, running: Any = ()) -> None:
        real(self, running)
        rows = bench.rows()
        booked.append([row.status for row in rows])
        # With a record to tell of, it may end now; before, it could be over unseen.
        if booked[-1] == ["running"] and rows[0].steps_done != "0":
            (state,) = bench.places.store.rglob("sequence.json")
            (state.parent / "seen").write_text("")

    monkeypatch.setattr(QueueLoop, "_book", book)
    work(bench)
    assert ["running"] in booked
    assert booked[-1] == ["done", "done"]
    assert re.search(r"population/Seen-v0: r-1, seed 1: \d+ of 500 agent steps", caplog.text)


@pytest.mark.process
@pytest.mark.parametrize(("first", "runs_before"), [(1, 0), (3, 1)])
def test_what_has_the_lower_number_comes_first(bench: Bench, first: int, runs_before: int) -> None:
    bench.write(sequence(priority=first, games=["Fail-v0"]), entry(priority=2))
    requests = StopRequests()  # noted when it is the sequence's turn
    store = bench.store
    store.lock(1.0, print)
    try:
        queue = QueueLoop(replace(bench.places, sequence_program=FAKE_MULTI_TRAIN), store, None)
        train = queue._sequences.train

        def train_and_stop(*arguments: Any, **more: Any) -> bool:
            requests.note(2)
            return train(*arguments, **more)

        queue._read_queue = lambda: None  # type: ignore[method-assign]
        queue._sequences.train = train_and_stop  # type: ignore[method-assign]
        queue.run(requests)
    finally:
        store.close()
    assert len(bench.statuses()) == runs_before


@pytest.mark.process
def test_a_sequence_that_fails_twice_is_passed_over(bench: Bench) -> None:
    bench.write(sequence(games=["Fail-v0", "CartPole-v1"]))
    assert work(bench).failed == 2
    bad, good = load_queue(bench.places.queue_file).sequences
    state = bench.store.state(bad)
    assert state is not None
    assert (state.failures, state.message) == (2, "no agent can be made")
    assert is_done(good, bench.store)
    assert "failed: no agent" in sequence_lines([bad], bench.store, {})[0]


@pytest.mark.process
def test_the_end_of_the_queue_lets_all_agents_save_and_is_no_failure(bench: Bench) -> None:
    bench.write(sequence(games=["Wait-v0"]))
    (planned,) = load_queue(bench.places.queue_file).sequences

    class Count:
        """Counts one request as soon as the sequence waits for its signal."""

        def __bool__(self) -> bool:
            return bool(list(bench.store.folder(planned).glob("*/ready")))

        def __gt__(self, other: int) -> bool:
            return False

    requests = StopRequests()
    requests.count = Count()  # type: ignore[assignment]
    assert work(bench, requests).failed == 0
    assert len(sessions(bench)) == 1
    assert not is_done(planned, bench.store)
    state = bench.store.state(planned)
    assert state is not None
    assert state.failures == 0
    work(bench)
    assert is_done(planned, bench.store)


@pytest.mark.process
def test_a_sequence_that_hangs_has_failed_though_it_writes_a_last_record_when_it_is_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sequence_runs, "SILENCE_S", 0.5)
    bench.write(sequence(games=["Hang-v0"]))
    (planned,) = load_queue(bench.places.queue_file).sequences
    store, places = bench.store, bench.places
    store.lock(1.0, print)
    try:
        runs = SequenceRuns([planned], store, places.results, program=FAKE_MULTI_TRAIN)
        for attempt in (1, 2):
            assert runs.next({}) == planned
            assert not runs.train(planned, wants_stop=lambda: False, wants_kill=lambda: False)
            state = store.state(planned)
            assert state is not None
            assert (state.failures, state.message) == (attempt, "no run wrote anything for 0.5 s")
        assert runs.next({}) is None
    finally:
        store.close()
    assert "no run wrote anything for 0.5 s: it is stopped" in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sequence": "populatoin"}, "there is no sequence populatoin; expected one of"),
        ({"games": ["A-v0", "A-v0"]}, "games names one twice"),
        (
            {"sequence": "forgetting"},
            "the runs of forgetting play different games.*leave games out",
        ),
        ({"seeds": [1]}, "seeds: Extra inputs"),
        ({"name": "trainer.lock"}, "trainer.lock is a file of the queue's own"),
        ({"what_counts": ""}, "what_counts"),
    ],
)
def test_a_wrong_entry_is_refused(bench: Bench, change: dict[str, Any], message: str) -> None:
    bench.write(sequence(**change))
    with pytest.raises(ConfigError, match=message):
        load_queue(bench.places.queue_file)


def test_a_sequence_and_a_run_cannot_have_the_same_name(bench: Bench) -> None:
    bench.write(sequence("first"), entry("first"))
    with pytest.raises(ConfigError, match="two experiments have this name"):
        load_queue(bench.places.queue_file)


def test_the_population_stands_in_the_queue_and_its_arms_differ_in_sharing_alone() -> None:
    (planned, _) = [p for p in load_queue(SHIPPED_QUEUE).sequences if p.experiment == "population"]
    plan = load_plan(planned.sequence)
    flags = {run.group: run.flags for run in plan.runs if run.seed == 1}
    shared = [run for run in plan.runs if run.agent is not None and run.seed == 1]
    assert len(shared) == 3
    for run in shared:
        alone = flags[run.group.replace("shared", "alone")]
        assert {**run.flags, "seed": 1} == alone
