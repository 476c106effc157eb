"""That several learners learn what one learner learns from all of their batches."""

import copy
import multiprocessing
from functools import cache

import pytest
import torch

from ritornello.agent.process_group import LearnerLost
from tests.agent.learners import fail_to_step, same, with_bad_reward
from tests.agent.several import (
    CASES,
    RANKS,
    ROBOT,
    WHATS,
    Case,
    Forgetful,
    batch_of_rank,
    distance,
    in_threads,
    learn_all,
    learner_of,
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
    "vectors": ROBOT,
    "vector_squares": ROBOT,
}
# Each value of each choice with each value of each other at least once.
QUICK = (
    Case("sum", "none", 0, "vector"),
    Case("sum", "rms", 1, "vector"),
    Case("sum", "none", 3, "vector"),
    Case("mean", "rms", 0, "vector"),
    Case("mean", "none", 1, "vector"),
    NEEDS["pixels"],
    ROBOT,
)


@cache
def alone(case):
    (learned,) = in_threads(lambda _: train_alone(case), ranks=1)
    return learned


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
    (alone_of_three,) = in_threads(lambda _: train_alone(case, ranks=3), ranks=1)
    assert distance(first, alone_of_three) < CLOSE


@pytest.mark.slow
@pytest.mark.process
def test_two_processes_learn_what_one_learner_learns_from_both_batches(tmp_path):
    """Over gloo, with every combination; and each sum is needed there, too."""
    jobs = [(case, "") for case in CASES] + [(case, what) for what, case in NEEDS.items()]
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=learn_all, args=(tmp_path, rank, jobs)) for rank in range(RANKS)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(HANGS_S)
    assert [process.exitcode for process in processes] == [0] * RANKS
    learned = [torch.load(tmp_path / f"learned-{rank}.pt") for rank in range(RANKS)]
    for (case, forgotten), (first, one), second in zip(jobs, *learned, strict=True):
        apart = max(distance(first, one), distance(second, one))
        if forgotten:
            assert apart > 100 * CLOSE, (str(case), forgotten)
        else:
            assert same(first, second), str(case)
            assert apart < CLOSE, str(case)


class Breaking:
    """Its learner is lost in the middle of an update: at the sum of this name."""

    rank, world_size = 0, 2

    def __init__(self, what):
        self.what = what

    def sum_(self, tensor, what):
        if what == self.what:
            raise LearnerLost("learner 1 ended without a word", [1])
        return tensor.mul_(2)

    def sum_numbers(self, numbers):
        return [2 * number for number in numbers]


@pytest.mark.parametrize("what", WHATS)
def test_a_learner_that_is_lost_in_the_middle_of_an_update_leaves_the_state_before_it(what):
    case = NEEDS[what] if what.startswith("vector") else Case("mean", "rms", 3, "pixels")
    group = Breaking("")
    learner = learner_of(case, group)
    for update in range(2):
        learner.step(batch_of_rank(case, update, 0), 0.1)
    before = copy.deepcopy(learner.state_dict())
    group.what = what
    with pytest.raises(LearnerLost):
        learner.step(batch_of_rank(case, 2, 0), 0.2)
    assert same(before, learner.state_dict())


@pytest.mark.parametrize("bad", [0, 1])
def test_a_batch_that_is_not_finite_is_left_out_by_all_and_named(bad):
    case = Case("mean", "rms", 3, "pixels")

    def work(seat):
        learner = learner_of(case, seat)
        learner.step(batch_of_rank(case, 0, seat.rank), 0.1)
        batch = batch_of_rank(case, 1, seat.rank)
        error = fail_to_step(learner, with_bad_reward(batch) if seat.rank == bad else batch)
        learner.step(batch_of_rank(case, 2, seat.rank), 0.2)
        return error, learner.state_dict()

    found = in_threads(work)
    assert same(found[0][1], found[1][1])
    culprits = [error.culprit for error, _ in found]
    assert culprits[bad].name == "reward"
    assert culprits[1 - bad].name == "learner"
    assert f"the batch of learner {bad} is not finite" in str(found[1 - bad][0])
