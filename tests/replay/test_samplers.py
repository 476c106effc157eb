import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from ritornello.replay.buffer import Buffer
from ritornello.replay.removers import Oldest
from ritornello.replay.samplers import LeastDrawn
from ritornello.replay.scored import STRATEGIES, Attentive, Elite, select
from tests.replay.builders import fill


def select_loops(strategy, distances, draws, n):
    """The four strategies in plain words, for at least n candidates."""
    order = sorted(range(len(distances)), key=lambda i: (distances[i], i))
    if strategy == 1:
        return order[:n]
    if strategy == 3:
        least_drawn_first = []
        for count in sorted(set(draws)):
            least_drawn_first += [i for i in order if draws[i] == count]
        return least_drawn_first[:n]
    chosen = []
    for k in range(n):
        stratum = order[k * len(order) // n : (k + 1) * len(order) // n]
        fewest = min(draws[i] for i in stratum)
        chosen.append(
            stratum[0] if strategy == 2 else next(i for i in stratum if draws[i] == fewest)
        )
    return chosen


@st.composite
def candidates(draw, min_size=1):
    count = draw(st.integers(min_size, 40))
    distances = draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    draws = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    return np.array(distances, float), np.array(draws, np.int64)


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=30)
@given(pool=candidates(), n=st.integers(1, 60))
def test_every_strategy_returns_exactly_n_valid_candidates_for_any_pool(strategy, pool, n):
    distances, draws = pool
    chosen = select(strategy, distances, draws, n)
    assert chosen.shape == (n,)
    assert ((chosen >= 0) & (chosen < len(distances))).all()
    assert len(set(chosen.tolist())) == min(n, len(distances))


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(pool=candidates(), data=st.data())
def test_every_strategy_equals_its_description(strategy, pool, data):
    distances, draws = pool
    n = data.draw(st.integers(1, len(distances)))
    expected = select_loops(strategy, distances.tolist(), draws.tolist(), n)
    assert select(strategy, distances, draws, n).tolist() == expected


@pytest.mark.parametrize("sampler", [Elite, Attentive])
def test_lambda_falls_linearly_to_one_and_stays_there(sampler):
    rule = sampler(initial_lambda=6, alfa=0.5)
    shares = [0, 0.1, 0.25, 0.5, 1]
    assert [rule.current_lambda(share) for share in shares] == pytest.approx([6, 5, 3.5, 1, 1])
    assert Elite(initial_lambda=6, alfa=2).current_lambda(1.0) == pytest.approx(3.5)


def filled(sampler, count):
    buffer = Buffer("tested", count, sampler, Oldest())
    fill(buffer, count)
    return buffer


def test_among_equals_least_drawn_draws_each_equally_likely():
    buffer, rng = filled(LeastDrawn(lambda_batch_multiplier=6), 12), np.random.default_rng(5)
    buffer.commit([item for item in buffer.items if item.id < 6])
    counts = np.zeros(12)
    for _ in range(1500):
        for item in buffer.propose(2, 0.0, rng).items:
            counts[item.id] += 1
    assert not counts[:6].any()
    assert chisquare(counts[6:]).pvalue > 0.001


def test_least_drawn_looks_at_its_pool_only_and_is_uniform_at_lambda_one():
    sampler = LeastDrawn(lambda_batch_multiplier=3, alfa_annealing_factor=0.5)
    buffer, rng = filled(sampler, 12), np.random.default_rng(6)
    buffer.commit([item for item in buffer.items if item.id != 7])
    hits = {0.0: 0, 0.5: 0}
    for progress in hits:
        for _ in range(1200):
            hits[progress] += buffer.propose(1, progress, rng).items[0].id == 7
    # Found whenever it is among the 3 of 12, and drawn like any other at the end.
    assert hits[0.0] / 1200 == pytest.approx(3 / 12, abs=0.05)
    assert hits[0.5] / 1200 == pytest.approx(1 / 12, abs=0.04)
