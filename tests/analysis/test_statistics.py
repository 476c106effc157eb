from __future__ import annotations

import numpy as np
import pytest

from analysis.statistics import Estimate, estimate, interquartile_mean, interval, mean_estimate


def test_the_middle_half_counts_over_all_games_together() -> None:
    # Of -1000, 2, 3, 4, 5, 6, 7, 1000 the middle four are 3, 4, 5, 6.
    result = estimate([[1000.0, 3, 5, 2], [4, 6, 7, -1000.0]])
    assert result.value == pytest.approx(4.5)


def test_the_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(100):
        result = estimate([rng.normal(5.0, 1.0, 12).tolist()])
        assert result.low is not None
        assert result.high is not None
        hits += result.low <= 5.0 <= result.high
    assert 82 <= hits <= 99  # 95 % of many; the percentile bootstrap of 12 falls a little short


def test_games_are_strata_so_their_difference_is_no_uncertainty() -> None:
    strata = [[0.0, 0.01, 0.02], [10.0, 10.01, 10.02]]
    result = estimate(strata)
    assert result.low is not None
    assert result.high is not None
    assert result.high - result.low < 0.03
    pooled = estimate([strata[0] + strata[1]])
    assert pooled.low is not None
    assert pooled.high is not None
    assert pooled.high - pooled.low > 1.0, "the wrong way, for contrast"


def test_one_run_has_no_interval_and_equal_runs_a_narrow_one() -> None:
    assert estimate([[2.0]]).low is None
    assert estimate([[2.0, 3.0], [4.0]]).high is None
    same = estimate([[2.0, 2.0, 2.0]])
    assert (same.value, same.low, same.high) == (2.0, 2.0, 2.0)


def test_the_same_scores_give_the_same_interval() -> None:
    # Enough runs that two sets of resamples have different percentiles.
    scores = [np.random.default_rng(2).normal(size=20).tolist() for _ in range(2)]
    assert estimate(scores) == estimate(scores)


def test_the_interquartile_mean_leaves_out_the_outer_quarters() -> None:
    # Of 8 sorted values the middle 4 are 3, 4, 5, 6: mean 4.5.
    values = np.array([1000.0, 3, 4, 5, 6, 7, -1000, 2])
    assert interquartile_mean(values) == pytest.approx(4.5)


def test_means_of_games_are_drawn_within_games() -> None:
    spread = mean_estimate([[1.0, 1.0], [9.0, 9.0]])
    assert spread == mean_estimate([[5.0, 5.0]]) == Estimate(5.0, 5.0, 5.0)
    assert mean_estimate([[1.0], [2.0, 4.0]]) == Estimate(2.0)


def test_the_interval_of_a_mean_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(100):
        result = mean_estimate([rng.normal(3.0, 1.0, 30).tolist()])
        assert result.low is not None
        assert result.high is not None
        hits += result.low <= 3.0 <= result.high
    assert 85 <= hits <= 99


def test_rows_are_drawn_as_a_whole() -> None:
    shares = np.random.default_rng(0).dirichlet([1.0, 2.0], size=30)
    bounds = interval([shares], np.mean)
    assert bounds is not None
    low, high = bounds
    # Of two shares that sum to 1 in every row, what one gains the other loses.
    assert low + high[::-1] == pytest.approx([1.0, 1.0])


def test_estimates_are_written_as_tables_show_them() -> None:
    assert str(Estimate(1234.56)) == "1,234.6"
    assert str(Estimate(21.5, 21.0, 22.0)) == "21.5 [21.0, 22.0]"
    assert Estimate(1.195, 1.181, 1.21).percent() == "119.5 [118.1, 121.0] %"
