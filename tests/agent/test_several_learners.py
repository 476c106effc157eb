"""That several learners learn what one learner learns from all of their batches."""

import multiprocessing
from functools import cache

import pytest
import torch

from tests.agent.learners import same
from tests.agent.several import (
    CASES,
    RANKS,
    WHATS,
    Case,
    Forgetful,
    distance,
    in_threads,
    learn_all,
    train,
    train_alone,
)
from tests.deadlines import HANGS_S

# Sums in another order round differently, and 20 updates carry it on.
CLOSE = 1e-5
# For each of the sums, a case in which it counts.
NEEDS = {
    "gradient": Case("sum", "none", 0, "vector"),
    "popart": Case("sum", "none", 3, "vector"),
    "advantages": Case("sum", "rms", 1, "vector"),
    "count": Case("mean", "none", 0, "vector"),
    "pixels": Case("mean", "rms", 3, "pixels"),
}
QUICK = tuple(case for case in CASES if case.sees == "vector" or case == NEEDS["pixels"])


@cache
def alone(case):
    return train_alone(case)


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_two_learners_learn_what_one_learns_from_both_batches(case):
    first, second = in_threads(lambda seat: train(case, seat))
    assert same(first, second)
    assert distance(first, alone(case)) < CLOSE


@pytest.mark.parametrize("what", WHATS)
def test_each_of_the_sums_is_needed(what):
    case = NEEDS[what]
    first, second = in_threads(lambda seat: train(case, Forgetful(seat, what)))
    assert max(distance(first, alone(case)), distance(second, alone(case))) > 100 * CLOSE


def test_three_learners_learn_what_one_learns_from_all_batches():
    case = Case("mean", "rms", 3, "vector")
    first, *others = in_threads(lambda seat: train(case, seat), ranks=3)
    assert all(same(first, other) for other in others)
    assert distance(first, train_alone(case, ranks=3)) < CLOSE


@pytest.fixture(scope="module")
def in_processes(tmp_path_factory):
    """Make a list of trainings in two processes over gloo; return what each has learned."""

    def learn(jobs):
        folder = tmp_path_factory.mktemp("group")
        context = multiprocessing.get_context("spawn")
        processes = [
            context.Process(target=learn_all, args=(folder, rank, jobs)) for rank in range(RANKS)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(HANGS_S)
        assert [process.exitcode for process in processes] == [0] * RANKS
        return list(
            zip(*(torch.load(folder / f"learned-{rank}.pt") for rank in range(RANKS)), strict=True)
        )

    return learn


@pytest.mark.process
def test_two_processes_learn_what_one_learner_learns_from_both_batches(in_processes):
    jobs = [(Case("mean", "rms", 3, "vector"), ""), (Case("mean", "rms", 3, "vector"), "count")]
    (first, second), (forgot, _) = in_processes(jobs)
    assert same(first, second)
    assert distance(first, alone(jobs[0][0])) < CLOSE
    assert distance(forgot, alone(jobs[0][0])) > 100 * CLOSE


@pytest.mark.slow
@pytest.mark.process
def test_the_whole_table_over_processes(in_processes):
    jobs = [(case, "") for case in CASES] + [(case, what) for what, case in NEEDS.items()]
    learned = in_processes(jobs)
    for (case, forgotten), (first, second) in zip(jobs, learned, strict=True):
        apart = max(distance(first, alone(case)), distance(second, alone(case)))
        if forgotten:
            assert apart > 100 * CLOSE, (str(case), forgotten)
        else:
            assert same(first, second), str(case)
            assert apart < CLOSE, str(case)
