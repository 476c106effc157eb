"""Whole sequences in the queue: run, stopped, resumed and reported like runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from research.queue import index
from research.queue.plan import load_queue
from research.queue.queue_loop import QueueLoop, StopRequests
from research.queue.sequence_runs import (
    SequenceRuns,
    is_done,
    is_done_by_index,
    sequence_folder,
    sequence_lines,
    trainings,
)
from research.queue.store import Store
from research.tests.conftest import Bench, entry
from ritornello.agent.stored.run_folder import safe_name
from ritornello.core.errors import ConfigError
from ritornello.sequences.plan import load_plan

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
