import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ritornello.agent.models.popart import PopArt
from tests.reference.popart_loops import PopArtLoops
from tests.tolerances import rounding


def make_head(tasks=1, features=3, step_size=3e-4, seed=0):
    torch.manual_seed(seed)
    return PopArt(features, tasks, step_size=step_size)


@settings(max_examples=50)
@given(
    st.integers(1, 3),
    st.lists(st.floats(-1e4, 1e4), min_size=6, max_size=6),
    st.sampled_from([3e-4, 0.1, 1.0]),
    st.integers(0, 9),
)
def test_popart_updates_never_change_value(tasks, targets, step_size, seed):
    head = make_head(tasks, step_size=step_size, seed=seed)
    features = torch.randn(5, 3, 3)
    task_id = torch.tensor([0, tasks - 1, tasks // 2])
    before = head(features, task_id).value
    for _ in range(3):
        head.update(torch.tensor(targets).reshape(2, 3), task_id)
    after = head(features, task_id).value
    # Values of size mu are differences of float32 numbers of that size.
    tolerance = 1e-5 * max(1.0, *map(abs, targets))
    torch.testing.assert_close(after, before, rtol=1e-5, atol=tolerance)


@settings(max_examples=30)
@given(st.integers(0, 999), st.integers(1, 3))
def test_popart_equals_the_plain_loops(seed, tasks):
    rng = np.random.default_rng(seed)
    head = make_head(tasks, step_size=0.05, seed=seed)
    twin = PopArtLoops(head.linear.weight.tolist(), head.linear.bias.tolist(), 0.05)
    task_id = torch.from_numpy(rng.integers(0, tasks, 4))
    updates, largest = 3, 1.0
    for _ in range(updates):
        targets = rng.normal(3, 5, (2, 4))
        largest = max(largest, np.abs(targets).max())
        mask = rng.random((2, 4)) < 0.7
        head.update(torch.from_numpy(targets), task_id, torch.from_numpy(mask))
        by_task = {
            k: [targets[t, b] for t in range(2) for b in range(4) if mask[t, b] and task_id[b] == k]
            for k in range(tasks)
        }
        twin.update(by_task)
    # The statistics are float64, but the step by which they move is a float32 number. Sigma is the
    # root of a difference of squares, and not below its start by much.
    close = rounding(torch.float32, updates, largest)
    np.testing.assert_allclose(head.mu, twin.mu, rtol=0, atol=close)
    sigmas = [twin.sigma(k) for k in range(tasks)]
    np.testing.assert_allclose(head.sigma, sigmas, rtol=0, atol=close * largest)
    features = torch.from_numpy(rng.normal(size=(4, 3))).float()
    got = head(features, task_id)
    for b in range(4):
        task = int(task_id[b])
        assert got.value[b].item() == pytest.approx(
            twin.value(features[b].tolist(), task), rel=1e-4, abs=1e-5 * largest
        )
        expected = twin.normalised(features[b].tolist(), task)
        assert got.value_normalised[b].item() == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("masked", [False, True])
def test_a_target_that_is_not_finite_moves_nothing(bad, masked):
    """Also a masked one: what it is worth is not known, and nothing times it is no number."""
    head = make_head(tasks=2, step_size=0.1)
    before = copy.deepcopy(head.state_dict())
    targets = torch.tensor([[5.0, -3.0], [bad, 2.0]])
    counted = torch.tensor([[True, True], [not masked, True]])
    head.update(targets, torch.tensor([0, 1]), counted)
    for name, tensor in head.state_dict().items():
        assert torch.equal(tensor, before[name]), name
