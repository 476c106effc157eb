"""Seeds of the simulation hold every promise."""

from dataclasses import replace

import pytest

from tests.exact.runs import one_process
from tests.simulated.plan import MIXES, RARE, Plan, known_seeds
from tests.simulated.run import simulate

pytestmark = [
    pytest.mark.usefixtures("one_process"),
    # Files that a played death left open complain when they are thrown away.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
__all__ = ["one_process"]

FEW = range(1, 3)
MANY = [range(first, first + 100) for first in range(1000, 3000, 100)]


def broken(plan):
    result = simulate(plan)
    return [f"--plan='{plan.to_json()}': {line}" for line in result.broken]


@pytest.mark.parametrize("seed", sorted({*FEW, *known_seeds()}))
def test_a_seed_holds_every_promise(seed):
    assert broken(Plan.draw(seed)) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seeds", MANY, ids=str)
def test_many_seeds_hold_every_promise(seeds):
    assert [line for seed in seeds for line in broken(Plan.draw(seed))] == []


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
def test_every_mix_comes_to_updates_and_to_its_end(mix):
    result = simulate(replace(healthy(), mix=mix))
    assert result.broken == []
    assert result.updates >= 5
    assert result.endings == {"steps": 1}


def test_a_plan_read_back_is_the_same_run():
    plan = Plan.draw(2)
    again = Plan.from_json(plan.to_json())
    assert again == plan
    one, other = simulate(plan), simulate(again)
    assert one.history == other.history
    assert (one.moves, one.updates, one.endings) == (other.moves, other.updates, other.endings)
    assert simulate(replace(plan, seed=3)).history != one.history


def healthy():
    """A plan in which nothing is hurt."""
    weights = {**dict.fromkeys(("learner", "ingest", "cache", "worker", "files"), 1.0)}
    return replace(
        Plan.draw(1), mix="queue and standard", workers=2, envs=2, slots=2, batch_size=4, queue=4,
        strategy="block", period=3, keep=2, steps=300, cache_depth=2, cache_threads=2,
        max_restarts=1000, reproducible=True, save_replay=True, interruptions=0.1,
        weights={**weights, **dict.fromkeys(RARE, 0.0)}, deaths=[],
    )  # fmt: skip
