import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from ritornello.analysis import statistics
from ritornello.analysis.statistics import (
    FEW,
    Estimate,
    difference,
    estimate,
    interval,
    mean_estimate,
    probability_of_improvement,
    profile,
)
from tests.analysis.builders import curve_of
from tests.reference.statistics_loops import (
    improvement_loops,
    interquartile_mean_loops,
    profile_loops,
)

# Few different values, so that ties are common.
scores = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=6)
several_games = st.lists(scores, min_size=1, max_size=4)


def test_the_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(100):
        result = estimate([rng.normal(5.0, 1.0, 12).tolist()])
        assert result.low is not None
        assert result.high is not None
        hits += result.low <= 5.0 <= result.high
    assert 82 <= hits <= 99  # 95 % of many; the percentile bootstrap of 12 falls a little short


def test_games_are_strata_so_their_difference_is_no_uncertainty():
    strata = [[0.0, 0.01, 0.02], [10.0, 10.01, 10.02]]  # six runs
    result = estimate(strata)
    assert result.low is not None
    assert result.high is not None
    assert result.high - result.low < 0.03
    pooled = estimate([strata[0] + strata[1]])
    assert pooled.low is not None
    assert pooled.high is not None
    assert pooled.high - pooled.low > 1.0, "the wrong way, for contrast"


def test_few_runs_have_no_interval_but_the_lowest_and_the_highest():
    assert estimate([[2.0]]) == Estimate(2.0)
    assert estimate([[2.0, 3.0], [4.0]]) == Estimate(3.0), "of several games it would mislead"
    four = estimate([[1.0, 2.0, 3.0, 6.0]])
    assert (four.low, four.high, four.reach) == (None, None, (1.0, 6.0))
    assert str(four) == "2.50 (1.00 to 6.00)"
    assert Estimate(1.195, 1.181, 1.21).percent() == "119.5 [118.1, 121.0] %"
    assert probability_of_improvement([[2.0, 3.0]], [[0.0, 1.0]]) == Estimate(1.0)
    same = estimate([[2.0] * 5])
    assert (same.value, same.low, same.high) == (2.0, 2.0, 2.0)
    tied = probability_of_improvement([[1.0] * 5], [[1.0] * 5])
    assert (tied.value, tied.low, tied.high) == (0.5, 0.5, 0.5)


@pytest.fixture
def few_resamples(monkeypatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 20)


@pytest.mark.usefixtures("few_resamples")
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(several_games, st.data())
def test_the_fast_statistics_are_those_of_the_papers(games, data):
    others = [data.draw(scores) for _ in games]
    assert estimate(games).value == pytest.approx(interquartile_mean_loops(games))
    assert probability_of_improvement(games, others).value == pytest.approx(
        improvement_loops(games, others)
    )
    levels = np.array([-5.0, -1.0, 0.5, 2.0, 4.0])
    share, bounds = profile(games, levels)
    assert share == pytest.approx([profile_loops(games, level) for level in levels])
    assert (bounds is None) == (min(map(len, games)) < 2 or sum(map(len, games)) < FEW)


def test_the_interval_of_a_profile_is_that_of_runs_within_games():
    share, bounds = profile([[1.0, 1.0, 1.0], [0.0, 2.0]], np.array([0.5, 1.5]))
    assert share.tolist() == [0.75, 0.25]
    assert bounds is not None
    # The first game does not vary; of the second none or both runs may be drawn.
    assert [bound.tolist() for bound in bounds] == [[0.5, 0.0], [1.0, 0.5]]


def test_a_score_that_is_no_number_is_refused_and_not_left_out():
    games = [[1.0, float("nan"), 2.0]]
    for refused in (
        lambda: estimate(games),
        lambda: mean_estimate(games),
        lambda: probability_of_improvement(games, [[1.0, 2.0]]),
        lambda: interval([np.array(games[0])], np.mean),
    ):
        with pytest.raises(ValueError, match="expected finite numbers"):
            refused()


def area_step_by_step(points, to_steps):
    """The same by the book: the return half-way through each single step, added up."""
    total = 0.0
    for step in range(to_steps):
        where = step + 0.5
        value = points[0][1]
        for (before, low), (after, high) in itertools.pairwise(points):
            if before <= where <= after:
                value = low + (high - low) * (where - before) / (after - before)
        total += value
    return total / to_steps


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=8, unique=True),
    st.lists(st.floats(-21, 21), min_size=8, max_size=8),
    st.data(),
)
def test_the_area_is_the_sum_over_single_steps(steps, returns, data):
    points = list(zip(sorted(steps), returns, strict=False))
    to_steps = data.draw(st.integers(1, int(points[-1][0])))
    assert curve_of(points).area(to_steps) == pytest.approx(
        area_step_by_step(points, to_steps), abs=1e-9
    )


def test_the_interval_of_a_difference_is_welchs():
    a, b = np.array([5.0, 6.0, 9.0]), np.array([1.0, 2.0])
    shown = difference(tuple(a), tuple(b))
    # By the textbook: variances are not pooled, degrees of freedom by Welch and Satterthwaite.
    parts = [x.var(ddof=1) / len(x) for x in (a, b)]
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(x) - 1) for part, x in zip(parts, (a, b), strict=True)
    )
    half = stats.t.ppf(0.975, freedom) * sum(parts) ** 0.5
    assert shown.value == pytest.approx(20 / 3 - 1.5)
    assert (shown.low, shown.high) == pytest.approx((shown.value - half, shown.value + half))
    assert difference((5.0,), (1.0, 2.0)).low is None
    assert difference((5.0, 5.0), (1.0, 1.0)).low is None  # nothing varies: no interval, no NaN
    one_side = difference([500.0] * 5, [400.0, 410.0, 420.0])
    assert (one_side.low, one_side.high) == pytest.approx((90 - 24.84, 90 + 24.84), abs=0.01)


def test_runs_are_compared_in_memory_that_grows_with_them_and_not_with_their_pairs():
    runs = [np.random.default_rng(seed).normal(size=60).tolist() for seed in (1, 2)]
    tracemalloc.start()
    probability_of_improvement(runs[:1], runs[1:])
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 100e6
