import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from ritornello.replay.buffer import Buffer
from ritornello.replay.evidence import Evidence
from ritornello.replay.prioritised import SMALLEST_ERROR, Prioritised
from ritornello.replay.removers import Oldest
from ritornello.replay.sampler import Candidates, Outcome, Sampler
from tests.reference.prioritised_loops import importance_weights, unroll_priority
from tests.replay.builders import fill


def buffer_of(priorities, *, capacity=None, **options):
    """A buffer of items 0, 1, ... with these priorities."""
    buffer = Buffer("prioritised", capacity or len(priorities), Prioritised(**options), Oldest())
    fill(buffer, len(priorities))
    buffer.reprioritise(range(len(priorities)), np.array(priorities, np.float64))
    return buffer


@pytest.mark.parametrize("n", [1, 3, 20])
def test_unrolls_are_drawn_in_proportion_to_their_priorities(n):
    priorities = [1.0, 2.0, 3.0, 0.5, 8.0, 0.25]
    buffer, rng = buffer_of(priorities), np.random.default_rng(1)
    batches = 6000 // n
    counts = np.zeros(len(priorities))
    for _ in range(batches):
        for item in buffer.propose(n, 0.0, rng).items:
            counts[item.id] += 1
    expected = np.array(priorities) / sum(priorities) * batches * n
    assert chisquare(counts, expected).pvalue > 0.001


def test_draws_are_stratified():
    """Of n equal priorities, n draws take each once: one from each segment of the sum."""
    buffer, rng = buffer_of([2.0] * 16), np.random.default_rng(2)
    for _ in range(20):
        assert sorted(item.id for item in buffer.propose(16, 0.0, rng).items) == list(range(16))


@given(
    priorities=st.lists(st.floats(0.01, 100), min_size=1, max_size=12),
    n=st.integers(1, 20),
    beta=st.floats(0, 1),
    progress=st.floats(0, 1),
)
def test_importance_weights_equal_the_plain_loop(priorities, n, beta, progress):
    buffer = buffer_of(priorities, beta=beta)
    proposal = buffer.choose(buffer.propose(n, progress, np.random.default_rng(0)), None)
    drawn = [item.id for item in proposal.items]
    expected = importance_weights(priorities, drawn, beta + (1 - beta) * progress)
    assert len(drawn) == n
    assert proposal.weights == pytest.approx(expected, rel=1e-9)
    assert [weight for _, weight in proposal.weighted()] == proposal.weights.tolist()
    assert max(proposal.weights) == 1


def test_at_the_end_of_training_the_weighted_mean_is_that_of_uniform_replay():
    """The property that the weights are for: sum w x / sum w of many draws is the plain mean."""
    priorities = [1.0, 2.0, 3.0, 0.5, 8.0, 0.25]
    values = np.array([3.0, -1.0, 4.0, 1.0, -5.0, 9.0])
    buffer, rng = buffer_of(priorities), np.random.default_rng(3)
    proposal = buffer.propose(60_000, 1.0, rng)
    drawn = values[[item.id for item in proposal.items]]
    assert (proposal.weights * drawn).sum() / proposal.weights.sum() == pytest.approx(
        values.mean(), abs=0.05
    )
    assert abs(drawn.mean() - values.mean()) > 1  # without the weights it is far from it


@given(
    errors=st.lists(st.floats(0, 1e6), min_size=1, max_size=8),
    learned=st.integers(0, 255),
    alpha=st.floats(0, 1),
    eta=st.floats(0, 1),
)
def test_the_priority_of_an_unroll_equals_the_plain_loop(errors, learned, alpha, eta):
    mask = [bool(learned >> t & 1) for t in range(len(errors))]
    expected = unroll_priority(errors, mask, alpha, eta, SMALLEST_ERROR)
    outcome = Outcome(np.array([errors, errors[::-1]]), np.array([mask, mask[::-1]]))
    sampler = Prioritised(alpha=alpha, eta=eta)
    assert sampler.priorities(outcome) == pytest.approx([expected] * 2, rel=1e-9)


class Mistaken(Sampler):
    """A sampler that answers whatever a test says."""

    uses_priorities = True

    def __init__(self, positions=(0,), weights=None, priorities=(1.0,)):
        self.positions, self.weights, self.answer = positions, weights, priorities

    def propose(self, contents, n, progress, rng):
        weights = None if self.weights is None else np.array(self.weights)
        return Candidates(np.array(self.positions), weights)

    def priorities(self, outcome):
        return self.answer


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"positions": [0, 1, 2]}, "for 2 draws, expected 2 whole numbers below 3"),
        ({"positions": [-1, 0]}, "below 3"),
        ({"positions": [0.0, 1.0]}, "whole numbers"),
        ({"positions": [0, 1], "weights": [1.0]}, "importance weights"),
        ({"positions": [0, 1], "weights": [1.0, 1.5]}, "above 0 and at most 1"),
        ({"positions": [0, 1], "weights": [1.0, float("nan")]}, "above 0 and at most 1"),
    ],
)
def test_a_wrong_proposal_is_refused_where_it_was_made(answer, message):
    buffer, rng = Buffer("mine", 3, Mistaken(**answer), Oldest()), np.random.default_rng(0)
    fill(buffer, 3)
    with pytest.raises(ValueError, match=f"sampler of buffer mine .*{message}"):
        buffer.propose(2, 0.0, rng)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "proposed None, expected Candidates"),
        (np.arange(2), "proposed array.*, expected Candidates"),
        (Candidates(np.array(0)), "chose 0 for 2 draws"),
        (Candidates(np.arange(2), [1.0, 1.0]), "expected an array of 2 numbers"),
    ],
)
def test_what_is_no_proposal_is_refused_where_it_was_made(answer, message, monkeypatch):
    monkeypatch.setattr(Mistaken, "propose", lambda *arguments: answer)
    buffer, rng = Buffer("mine", 3, Mistaken(), Oldest()), np.random.default_rng(0)
    fill(buffer, 3)
    with pytest.raises(ValueError, match=f"sampler of buffer mine .*{message}"):
        buffer.propose(2, 0.0, rng)


@pytest.mark.parametrize("chosen", [np.arange(1), np.arange(3), np.array([0, 9]), np.zeros(2)])
def test_a_choice_of_another_size_is_refused_for_the_batch_would_have_it(chosen, monkeypatch):
    monkeypatch.setattr(Mistaken, "scores", True)
    monkeypatch.setattr(Mistaken, "choose", lambda *arguments: chosen)
    buffer, rng = Buffer("mine", 3, Mistaken([0, 1, 2]), Oldest()), np.random.default_rng(0)
    fill(buffer, 3)
    proposal, zeros = buffer.propose(2, 0.0, rng), np.zeros((3, 1, 1))
    with pytest.raises(ValueError, match="sampler of buffer mine chose .* for 2 draws, .* below 3"):
        buffer.choose(proposal, Evidence(zeros, zeros, zeros, zeros, None))


@pytest.mark.parametrize(
    ("priorities", "message"),
    [
        ([1.0], "one for each of the 2 unrolls"),
        ([1.0, 0.0], "gave the priority 0.0"),
        ([1.0, float("nan")], "gave the priority nan"),
    ],
)
def test_wrong_priorities_are_refused_where_they_were_made(priorities, message):
    buffer = Buffer("mine", 3, Mistaken(priorities=priorities), Oldest())
    with pytest.raises(ValueError, match=message):
        buffer.priorities(Outcome(np.zeros((2, 4)), np.ones((2, 4), bool)))
