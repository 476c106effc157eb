"""Seeds of the simulation hold every promise.

`SIMULATED_FIRST=5000 python -m pytest -m slow tests/simulated` plays 2,000 others. A seed that has
broken a promise goes to seeds.txt, which are always among them.
"""

import os
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

FIRST = int(os.environ.get("SIMULATED_FIRST", "1000"))
MANY = [range(first, first + 100) for first in range(FIRST, FIRST + 2000, 100)]


# Seed 1001 dies after a record, so that the next session has to go back.
@pytest.mark.parametrize(
    "seed", [1001, *(pytest.param(seed, marks=pytest.mark.slow) for seed in known_seeds())]
)
def test_a_seed_holds_every_promise(seed):
    result = simulate(Plan.draw(seed))
    assert result.broken == [], "\n".join(result.trace)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seeds", MANY, ids=str)
def test_many_seeds_hold_every_promise(seeds):
    broken = {seed: found for seed in seeds if (found := simulate(Plan.draw(seed)).broken)}
    assert broken == {}


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
def test_every_mix_comes_to_updates_and_to_its_end(mix):
    result = simulate(replace(healthy(), mix=mix))
    assert result.broken == []
    assert result.updates >= 5
    assert result.endings == {"steps": 1}


def healthy():
    """A plan in which nothing is hurt."""
    weights = {**dict.fromkeys(("learner", "ingest", "cache", "worker", "files"), 1.0)}
    return replace(
        Plan.draw(1), mix="queue and standard", workers=2, envs=2, slots=2, batch_size=4, queue=4,
        strategy="block", period=3, keep=2, steps=300, cache_depth=2, cache_threads=2,
        max_restarts=1000, reproducible=True, save_replay=True, interruptions=0.1,
        weights={**weights, **dict.fromkeys(RARE, 0.0)}, deaths=[],
    )  # fmt: skip
