from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ritornello.agent.acting.dealing import deal_tasks
from ritornello.core.errors import ConfigError


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=7), st.integers(1, 5), st.integers(1, 9))
def test_every_game_is_played_and_none_is_more_than_one_off(shares, workers, envs):
    total = workers * envs
    if total < len(shares):
        return
    dealt = deal_tasks(shares, workers, envs)
    assert [len(tasks) for tasks in dealt] == [envs] * workers
    counts = Counter(task for tasks in dealt for task in tasks)
    assert set(counts) == set(range(len(shares)))
    wanted = [total * share / sum(shares) for share in shares]
    if min(wanted) >= 1:
        assert all(abs(counts[task] - number) < 1 for task, number in enumerate(wanted))
    for task in counts:
        of_worker = [tasks.count(task) for tasks in dealt]
        assert max(of_worker) - min(of_worker) <= 1
    assert all(tuple(sorted(tasks)) == tasks for tasks in dealt)


def test_too_few_environments_are_refused_with_the_number_that_is_enough():
    with pytest.raises(ConfigError, match=r"6 games and 4 environments.*--envs_per_worker to 3"):
        deal_tasks([1.0] * 6, 2, 2)
    assert len(deal_tasks([1.0] * 6, 2, 3)) == 2


def test_a_game_of_share_0_gets_no_environment():
    assert deal_tasks([0.0, 1.0, 0.0], 2, 2) == [(1, 1), (1, 1)]
    assert deal_tasks([1.0, 0.0, 3.0], 1, 4) == [(0, 2, 2, 2)]
    assert deal_tasks([1.0, 0.0, 1000.0], 1, 3) == [(0, 2, 2)]
    assert deal_tasks([1.0, 0.0], 1, 1) == [(0,)]  # as many as are played are enough
