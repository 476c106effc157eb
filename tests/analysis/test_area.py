import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ritornello.analysis.comparison import compare, page
from ritornello.analysis.runs import find_runs
from ritornello.analysis.statistics import difference
from ritornello.core.errors import ConfigError
from tests.analysis.builders import curve_of, write_run

PONG, BREAKOUT = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"


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


def test_runs_are_scored_game_by_game_and_the_best_comes_first(tmp_path):
    for seed in (2, 1):
        write_run(tmp_path / f"low{seed}", seed=seed, slope=0.1)
        write_run(tmp_path / f"high{seed}", seed=seed, slope=0.2)
        write_run(tmp_path / f"other{seed}", seed=seed, slope=-0.1, env=BREAKOUT)
    write_run(tmp_path / "short", seed=3, slope=0.1, end=400)
    runs, _ = find_runs([f"{x}={tmp_path}/{x}*" for x in ("low", "high", "other")])
    short, _ = find_runs([f"low={tmp_path}/short"])
    breakout, pong = compare([*runs, *short], 500, by_area=True)
    assert (breakout.env, pong.env) == (BREAKOUT, PONG)
    assert [row.label for row in pong.rows] == ["high", "low"]
    # The line begins with its first record, at 100 steps: 100 * 30 + 400 * 60 at slope 0.2.
    assert pong.rows[0].scores == pytest.approx([(100 * 20 + 400 * 60) / 500 + s for s in (1, 2)])
    assert (
        "low, seed 3: it has scores from 40 to 400 agent steps, but runs are compared at 500. "
        in pong.left_out[0]
    )
    with pytest.raises(ConfigError, match="to 1,000 agent steps: give a number between"):
        compare(runs, 2000, by_area=True)


def test_the_table_gives_differences_to_a_configuration(tmp_path):
    for seed in (1, 2, 3):
        write_run(tmp_path / f"a{seed}", seed=seed, slope=0.2, env=BREAKOUT)
        write_run(tmp_path / f"b{seed}", seed=3 * seed, slope=0.1, env=BREAKOUT)
    runs, notes = find_runs([f"{x}={tmp_path}/{x}*" for x in "ab"])
    games = compare(runs, 1000, by_area=True)
    text = page(games, notes, against="b")
    assert "| mean return over 0 to 1,000 agent steps |" in text
    a, b = (row.scores for row in games[0].rows)
    shown = difference(a, b)
    assert shown.low is not None
    assert f"| {shown.value:,.1f} [{shown.low:,.1f}, {shown.high:,.1f}] |" in text
    with pytest.raises(ConfigError, match="has no such configuration; there are 'a', 'b'"):
        page(games, against="c")


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
