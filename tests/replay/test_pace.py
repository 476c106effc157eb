import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import ConfigError
from replay.pace import Pace


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


def test_draws_per_unroll_settle_at_the_given_number():
    pace = Pace(4.0, 16)
    while pace.unrolls < 400:
        if pace.allows_batch():
            pace.draws += 16
        else:
            pace.unrolls += 1
    assert pace.draws / pace.unrolls == pytest.approx(4, rel=0.02)


def test_a_rate_that_is_not_positive_is_refused():
    with pytest.raises(ConfigError, match="max_draws_per_unroll"):
        Pace(0.0, 16)
