"""Several learners in one process or in several, and one learner with all of their batches."""

import itertools
import threading
from dataclasses import replace
from typing import NamedTuple

import torch
import torch.distributed as dist

from ritornello.agent.algorithms.base import ImpalaConfig
from ritornello.agent.algorithms.batch import OF_COLUMNS, Batch
from ritornello.agent.learners.group import GlooGroup
from ritornello.agent.learning.optim import OptimiserConfig, make_optimiser
from ritornello.core.spec import NUMBERS, ActionPart, ActionSpec
from tests.agent.builders import make_batch, make_small_model, make_spec
from tests.agent.learners import make_learner
from tests.deadlines import HANGS_S

UPDATES = 20
RANKS = 2
WHATS = ("gradient", "popart", "advantages", "count", "pixels", "vectors", "vector_squares")


class Case(NamedTuple):
    """What is learned, and how."""

    reduction: str  # sum | mean
    normalisation: str  # none | rms
    games: int  # with PopArt; 0: one without
    sees: str  # vector | pixels | robot: normalised vectors, and actions of real numbers

    def __str__(self):
        return "-".join(map(str, self))


CASES = tuple(
    Case(*choice)
    for choice in itertools.product(
        ("sum", "mean"), ("none", "rms"), (0, 1, 3), ("vector", "pixels")
    )
)


class ThreadGroup:
    """Sums over threads: what `GlooGroup` does over processes."""

    def __init__(self, world_size):
        self.world_size = world_size
        self.given = [None] * world_size
        self.barrier = threading.Barrier(world_size, timeout=HANGS_S)

    def seat(self, rank):
        return Seat(self, rank)


class Seat:
    def __init__(self, threads, rank):
        self.rank = rank
        self.world_size = threads.world_size
        self._threads = threads

    def sum_(self, tensor, what):
        self._threads.given[self.rank] = (what, tensor.clone())
        self._threads.barrier.wait()
        names, tensors = zip(*self._threads.given, strict=True)
        assert set(names) == {what}
        total = sum(tensors)
        self._threads.barrier.wait()
        return tensor.copy_(total)

    def sum_numbers(self, numbers):
        return self.sum_(torch.tensor(numbers, dtype=torch.float64), "numbers").tolist()


class Forgetful:
    """Leaves one of the sums out, like a program in which somebody has forgotten it."""

    def __init__(self, group, what):
        self.rank, self.world_size = group.rank, group.world_size
        self._group, self._what = group, what

    def sum_(self, tensor, what):
        return tensor if what == self._what else self._group.sum_(tensor, what)

    def sum_numbers(self, numbers):
        return self._group.sum_numbers(numbers)


ROBOT = Case("mean", "rms", 1, "robot")


def spec_of(case):
    if case.sees == "robot":
        return make_spec(actions=ActionSpec((ActionPart(NUMBERS, 2),)))
    return make_spec((2, 44, 40)) if case.sees == "pixels" else make_spec()


def learner_of(case, group=None):
    spec = spec_of(case)
    model = {"name": "impala_shallow"} if case.sees == "pixels" else {}
    model |= {"normalise_vectors": case.sees == "robot"}
    config = ImpalaConfig(
        reward_transform="none",
        advantage_normalisation=case.normalisation,
        loss_reduction=case.reduction,
    )
    model = make_small_model(
        spec, popart=case.games > 0, tasks=max(1, case.games), popart_step_size=0.05, **model
    )
    # Adam divides by the size of the gradient: with its small epsilon a weight whose gradient is
    # nothing but rounding would make a whole step, in any direction.
    optimiser = make_optimiser(OptimiserConfig(lr=1e-3, lr_end=0.0, epsilon=1e-3), model)
    return make_learner(
        model,
        config=config,
        optimiser=optimiser,
        max_grad_norm=0.5,
        **({} if group is None else {"group": group}),
    )


def batch_of_rank(case, update, rank):
    """The batches of two learners differ in all that is summed: rewards, resets, games, pixels."""
    games = max(1, case.games)
    batch = make_batch(spec_of(case), size=4, tasks=games, seed=10 * update + rank)
    if rank:
        first = batch.first.clone()
        first[4:, :2] = True
        obs = batch.obs // 3 if case.sees == "pixels" else batch.obs * 2
        # The last game is played by the first learner only.
        games_here = torch.arange(4) % max(1, games - 1)
        batch = replace(
            batch, reward=batch.reward * 3 + 1, first=first, obs=obs, task_id=games_here
        )
    return batch


def joined(batches):
    """One batch of all columns."""
    return Batch(
        **{
            name: torch.cat([getattr(b, name) for b in batches], 0 if name in OF_COLUMNS else 1)
            for name in batches[0].tensors()
        }
    )


def train(case, group):
    """Return what a learner of several has learned."""
    learner = learner_of(case, group)
    for update in range(UPDATES):
        learner.step(batch_of_rank(case, update, group.rank), update / UPDATES)
    return learner.state_dict()


def train_alone(case, ranks=RANKS):
    """Return what one learner learns from all batches together."""
    learner = learner_of(case)
    for update in range(UPDATES):
        batch = joined([batch_of_rank(case, update, rank) for rank in range(ranks)])
        learner.step(batch, update / UPDATES)
    return learner.state_dict()


def in_threads(work, ranks=RANKS):
    """Return what `work(seat)` returns at each seat."""
    group, results = ThreadGroup(ranks), [None] * ranks

    def run(rank):
        torch.set_num_threads(1)  # it is each thread's own, and another number rounds differently
        try:
            results[rank] = work(group.seat(rank))
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANGS_S)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def group_of(folder, rank, ranks=RANKS, **options):
    """Join the group of learners that meet in a folder."""
    return GlooGroup(dist.FileStore(str(folder / "store"), ranks), rank, ranks, **options)


def learn_all(folder, rank, jobs):
    """A process: make every training of a list, and write down what was learned."""
    torch.set_num_threads(1)
    group = group_of(folder, rank)
    learned = [train(case, Forgetful(group, forgotten)) for case, forgotten in jobs]
    if rank == 0:
        group.leave()
        learned = [(own, train_alone(case)) for own, (case, _) in zip(learned, jobs, strict=True)]
    torch.save(learned, folder / f"learned-{rank}.pt")


def distance(one, two):
    """The largest difference between two states of a model; of large numbers relative to them."""
    pairs = ((one["model"][name].double(), two["model"][name].double()) for name in one["model"])
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1)) for a, b in pairs)
