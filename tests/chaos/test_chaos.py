"""One scenario of each fault: the short form of `make chaos`."""

import os
import random
import sys

import pytest

from tests.chaos.__main__ import NAMES, scenario_of
from tests.deadlines import HANGS_S


@pytest.mark.chaos
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(3 * HANGS_S)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it looks into /proc")
@pytest.mark.parametrize("name", NAMES)
def test_a_fault_costs_nothing(name, tmp_path):
    rng = random.Random(f"{os.environ.get('CHAOS_SEED', '1')} {name}")
    assert scenario_of(name, tmp_path / name, rng).play() == []
