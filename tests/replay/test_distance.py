import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ritornello.core import spec as specs
from ritornello.core.errors import ShapeError
from ritornello.core.spec import CHOICE, ActionPart, ActionSpec
from ritornello.replay.distance import Distance, cos_dist, kl_div, ln_norm, policy_kl
from ritornello.replay.evidence import Evidence
from ritornello.replay.keys import DISTANCES
from tests.reference import distribution_loops
from tests.reference.distance_loops import cos_dist_loops, kl_loops, ln_norm_loops

FUNCTIONS = {"ln_norm": ln_norm, "cos_dist": cos_dist, "kl_div": kl_div, "policy_kl": policy_kl}
SHAPES = hnp.array_shapes(min_dims=3, max_dims=3, min_side=1, max_side=4)
NUMBERS = st.floats(-8, 8, width=32).filter(lambda x: x == 0 or abs(x) > 1e-3)


@st.composite
def pairs(draw):
    shape = draw(SHAPES)
    arrays = hnp.arrays(np.float32, shape, elements=NUMBERS)
    return draw(arrays), draw(arrays)


def evidence(now, then=None, queries=None):
    params = np.zeros((*now.shape[:2], 2), np.float32)
    return Evidence(now, params, then, params, queries)


@settings(max_examples=50)
@given(pairs(), st.integers(1, 5))
def test_ln_norm_equals_the_loops(pair, p):
    new, old = pair
    expected = [ln_norm_loops(a, b, p) for a, b in zip(new.tolist(), old.tolist(), strict=True)]
    np.testing.assert_allclose(ln_norm(new, old, p), expected, rtol=1e-4, atol=1e-5)


@settings(max_examples=50)
@given(pairs())
def test_cos_dist_equals_the_loops(pair):
    new, old = pair
    expected = [cos_dist_loops(a, b) for a, b in zip(new.tolist(), old.tolist(), strict=True)]
    np.testing.assert_allclose(cos_dist(new, old), expected, atol=1e-5)


@pytest.mark.parametrize("function", [kl_div, policy_kl])
@settings(max_examples=50)
@given(pair=pairs())
def test_kl_equals_the_loops_with_the_first_argument_first(function, pair):
    first, second = pair
    expected = [kl_loops(a, b) for a, b in zip(first.tolist(), second.tolist(), strict=True)]
    np.testing.assert_allclose(function(first, second), expected, rtol=1e-3, atol=1e-4)


def test_a_high_norm_does_not_overflow():
    new = np.full((1, 1, 2), 1000, np.float32)
    assert ln_norm(new, np.zeros_like(new), p=500)[0] == pytest.approx(1000, rel=0.01)


@pytest.mark.parametrize("name", DISTANCES)
def test_shapes_that_would_broadcast_are_refused(name):
    with pytest.raises(ShapeError, match=r"\(2, 3, 4\)"):
        FUNCTIONS[name](np.zeros((2, 3, 4)), np.zeros((2, 1, 4)))


@pytest.mark.parametrize(
    ("distance", "twin"),
    [
        (Distance("ln_norm", 1), partial(ln_norm_loops, p=1)),
        (Distance("ln_norm", 2), partial(ln_norm_loops, p=2)),
        (Distance("cos_dist"), cos_dist_loops),
        (Distance("kl_div"), kl_loops),
    ],
)
@settings(max_examples=50)
@given(
    rows=hnp.arrays(np.float32, (4, 3), elements=NUMBERS),
    queries=hnp.arrays(np.float32, (2, 3), elements=NUMBERS),
)
def test_pairwise_distances_equal_the_loops(distance, twin, rows, queries):
    rows, queries = rows.tolist(), queries.tolist()
    expected = [[twin([row], [query]) for query in queries] for row in rows]
    got = distance.pairwise(np.array(rows), np.array(queries))
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-5)


def test_attentive_distance_is_the_mean_over_rows_of_the_nearest_query():
    # Candidate 0 has rows 0 and 10, candidate 1 rows 4 and 4; queries are at 0 and 7.
    now = np.array([[[0.0], [10.0]], [[4.0], [4.0]]], np.float32)
    queries = np.array([[0.0], [7.0]], np.float32)
    got = Distance("ln_norm", 2).to_nearest(evidence(now, queries=queries))
    np.testing.assert_allclose(got, [(0 + 3) / 2, (3 + 3) / 2])


def test_policy_kl_reads_policies_and_needs_no_features():
    params_now, params_then = np.zeros((1, 1, 2)), np.array([[[math.log(3), 0.0]]])
    given_evidence = Evidence(np.zeros((1, 1, 9)), params_now, None, params_then, None)
    assert Distance("policy_kl").drift(given_evidence)[0] == pytest.approx(0.1308, abs=1e-4)
    assert not Distance("policy_kl").needs_stored_features


TUPLE = ActionSpec((ActionPart(CHOICE, 3), ActionPart(specs.NUMBERS, 2), ActionPart(CHOICE, 2)))


@given(hnp.arrays(np.float32, (2, 2, 3, 9), elements=st.floats(-2, 2, width=32)))
def test_the_divergence_of_policies_over_other_actions_equals_the_loops(params):
    then, now = params  # [C, R, P] each

    def policy(row):
        return [("choice", row[:3]), ("numbers", row[3:5], row[5:7]), ("choice", row[7:])]

    expected = [
        sum(
            distribution_loops.kl(policy(one), policy(other))
            for one, other in zip(rows_then, rows_now, strict=True)
        )
        for rows_then, rows_now in zip(then.tolist(), now.tolist(), strict=True)
    ]
    np.testing.assert_allclose(policy_kl(then, now, TUPLE), expected, rtol=1e-4, atol=1e-5)
    nothing = np.zeros((2, 3, 1), np.float32)
    drift = Distance("policy_kl").drift(Evidence(nothing, now, None, then, None, TUPLE))
    np.testing.assert_allclose(drift, expected, rtol=1e-4, atol=1e-5)
