import pytest
from hypothesis import given
from hypothesis import strategies as st

from ritornello.replay.pace import Pace


@given(
    st.floats(0.01, 50),
    st.integers(1, 64),
    st.lists(st.booleans(), max_size=60),
)
def test_one_side_can_always_go_on_and_the_balance_stays_within_the_slack(ratio, batch, turns):
    pace = Pace(ratio, batch)
    for learner_first in turns:
        assert pace.allows_batch() or pace.allows_unroll()
        if pace.allows_batch() and (learner_first or not pace.allows_unroll()):
            pace.draws += batch
        else:
            pace.unrolls += 1
        assert abs(pace.balance) <= pace.slack + 1e-9


@pytest.mark.parametrize("before", [0.5, 2.0, 3.7, 4.0, 8.0])
def test_a_resumed_run_with_another_rate_holds_neither_side_up(before):
    old, new = Pace(before, 4), Pace(4.0, 4)
    for _ in range(2_000):
        if old.allows_batch():
            old.draws += 4
        else:
            old.unrolls += 1
    new.load_state_dict(old.state_dict())
    assert abs(new.balance) <= new.slack + 1
    assert min(new.unrolls, new.draws) >= 0
    assert new.allows_batch() or new.allows_unroll()
    same = Pace(before, 4)
    same.load_state_dict(old.state_dict())
    assert same.state_dict() == old.state_dict()
    new.load_state_dict({"pace": [7, 9]})  # an older state does not say its rate
    assert (new.unrolls, new.draws) == (7, 9)
