from fractions import Fraction
from itertools import cycle
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from ritornello.replay.quotas import Quotas, replay_share, with_replay_share


def ratios_of(parts):
    return [Fraction(part, sum(parts)) for part in parts]


PARTS = st.lists(st.integers(1, 100), min_size=1, max_size=6)


@given(PARTS, st.integers(1, 64), st.integers(1, 60), st.lists(st.booleans(), min_size=1))
def test_quotas_are_exact_in_the_long_run_and_fill_every_batch(parts, batch_size, batches, small):
    ratios = ratios_of(parts)
    most = [
        ceil(ratio * batch_size) if is_small else batch_size
        for ratio, is_small in zip(ratios, cycle(small), strict=False)
    ]
    quotas = Quotas(ratios, batch_size, most=most)
    totals = [0] * len(ratios)
    for k in range(1, batches + 1):
        got = quotas.next()
        assert sum(got) == batch_size
        assert min(got) >= 0
        assert all(n <= highest for n, highest in zip(got, most, strict=True))
        totals = [total + n for total, n in zip(totals, got, strict=True)]
        wanted = [ratio * batch_size * k for ratio in ratios]
        assert all(abs(t - w) < len(parts) for t, w in zip(totals, wanted, strict=True))


@given(PARTS, PARTS, st.fractions(0, 1).filter(lambda share: 0 < share < 1))
def test_another_share_of_replay_keeps_the_proportions_of_each_side(queues, others, share):
    ratios, consumes = ratios_of([*queues, *others]), [True] * len(queues) + [False] * len(others)
    changed = with_replay_share(ratios, consumes, share)
    assert sum(changed) == 1
    assert replay_share(changed, consumes) == share
    for parts, side in ((queues, changed[: len(queues)]), (others, changed[len(queues) :])):
        assert [ratio / sum(side) for ratio in side] == ratios_of(parts)
    back = with_replay_share(changed, consumes, replay_share(ratios, consumes))
    assert back == ratios


def test_shares_without_a_common_denominator_are_kept_in_numbers_of_bounded_length():
    # Five shares of seven digits: their common denominator has 24 digits.
    first = [Fraction(n, d) for n, d in ((271, 999983), (314, 999979), (17, 999961), (2, 999959))]
    ratios = [*first, 1 - sum(first)]
    quotas = Quotas(ratios, 512)
    for _ in range(50):
        assert sum(quotas.next()) == 512
    state = quotas.state_dict()["quotas"]
    assert max(map(abs, [*state["claims"], *state["carry"]])) < 2**80
    unit, *claims = state["claims"]
    assert sum(claims) == 512 * unit
    for claim, ratio in zip(claims, ratios, strict=True):
        assert abs(Fraction(claim, unit) - 512 * ratio) < Fraction(1, 10**14)
