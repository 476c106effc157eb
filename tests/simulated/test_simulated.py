"""Seeds of the simulation hold every promise.

`SIMULATED_FIRST=5000 python -m pytest -m slow tests/simulated` plays 2,000 others. A seed that has
broken a promise goes to seeds.txt, and is always among them.
"""

import os

import pytest

from tests.exact.runs import one_process
from tests.simulated.plan import Plan, known_seeds
from tests.simulated.run import Simulation

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
    result = Simulation(Plan(seed)).play()
    assert result.broken == [], "\n".join(result.trace)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seeds", MANY, ids=str)
def test_many_seeds_hold_every_promise(seeds):
    broken = {seed: found for seed in seeds if (found := Simulation(Plan(seed)).play().broken)}
    assert broken == {}
