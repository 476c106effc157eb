import copy
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ritornello.agent.learning.bad_updates import Culprit, NonFiniteUpdate
from ritornello.agent.models.base import ActorCritic
from tests.agent.builders import make_batch, make_small_model
from tests.agent.learners import CONFIG, fail_to_step, make_learner, same

NAN, INF = math.nan, math.inf
CLONING = replace(CONFIG, policy_cloning_cost=0.1, value_cloning_cost=0.1)
# What is in a batch -> who is to blame where it is not finite.
CULPRIT_OF = {
    "reward": "reward",
    "last_reward": "reward",
    "obs": "observation",
    "state": "memory",
    "behaviour_params": "ratio",
    "behaviour_value": "value",
}


def learner_of_everything(config=CLONING):
    model = {"popart": True, "use_lstm": True, "lstm_size": 8, "use_last_reward": True}
    return make_learner(make_small_model(tasks=2, popart_step_size=0.3, **model), config=config)


def batch_of_everything(learner, seed=0):
    return make_batch(tasks=2, seed=seed, state_count=learner.model.state_count)


def spoiled(batch, field, place, value):
    """The batch with one number changed."""
    tensor = getattr(batch, field).clone()
    tensor[place] = value
    return replace(batch, **{field: tensor})


@st.composite
def spots(draw, batch):
    """(field, place, value): one number of a batch that is not finite."""
    field = draw(st.sampled_from(sorted(CULPRIT_OF)))
    shape = getattr(batch, field).shape
    place = tuple(draw(st.integers(0, size - 1)) for size in shape)
    return field, place, draw(st.sampled_from([NAN, INF, -INF]))


def is_harmless(batch, clones, field, place, value):
    """Whether nothing that is learned depends on it, or what does is finite all the same."""
    row, column = (*place, 0)[:2]
    if field == "last_reward":  # the model takes it clamped, and not after a reset
        return bool(batch.first[row, column]) or value is not NAN
    if field == "behaviour_params" and not clones:
        # Nor is that learned from which acted on a reset row. A probability of 0 is no reason to
        # stop: the ratio of the action that was taken all the same is cut at its bar.
        return bool(batch.reset_row[row, column]) or value == -INF
    # No mask helps against it: nothing times it is no number. Without cloning nobody looks at it.
    return field == "behaviour_value" and not clones


@settings(max_examples=60)
@given(st.data(), st.integers(0, 3), st.booleans())
def test_one_bad_number_anywhere_moves_nothing_and_is_named(data, seed, clones):
    learner = learner_of_everything(CLONING if clones else CONFIG)
    learner.step(batch_of_everything(learner, seed=9), 0.0)
    batch = batch_of_everything(learner, seed)
    field, place, value = data.draw(spots(batch))
    bad = spoiled(batch, field, place, value)
    if is_harmless(batch, clones, field, place, value):
        learner.step(bad, 0.1)
        assert all(tensor.isfinite().all() for tensor in learner.model.state_dict().values())
        return
    error = fail_to_step(learner, bad)
    assert error.culprit.name == CULPRIT_OF[field]
    assert f"{field}{list(place)} is {value:g}" in str(error)
    assert error.culprit.columns == (place[0 if field == "state" else 1],)
    assert error.update == 1


def test_what_came_first_is_named_and_every_bad_unroll_is_known():
    learner = learner_of_everything()
    batch = batch_of_everything(learner)
    for field, place in (("behaviour_params", (0, 0, 1)), ("state", (2, 3)), ("obs", (4, 3, 0))):
        batch = spoiled(batch, field, place, NAN)
    assert fail_to_step(learner, batch).culprit.name == "observation"
    error = fail_to_step(learner, spoiled(batch, "reward", (1, 3), INF))
    assert error.culprit.name == "reward"
    assert error.culprit.columns == (0, 2, 3)


@pytest.mark.parametrize("transform", ["abs_one_sign", "abs_one_clamp"])
def test_a_reward_that_is_made_finite_is_not_to_blame(transform):
    learner = make_learner(config=replace(CONFIG, reward_transform=transform))
    batch = spoiled(make_batch(), "reward", (0, 1), INF)
    learner.step(batch, 0.0)
    error = fail_to_step(learner, spoiled(batch, "obs", (2, 2, 1), NAN))
    assert error.culprit.name == "observation"
    assert "reward" not in error.culprit.what


def linear_learner():
    """One without the tanh in which everything large ends harmlessly."""
    model = make_small_model()
    model.torso_net = torch.nn.Linear(6, model.feature_count)
    square = torch.full((1,), 1e300, dtype=torch.float64)
    for name, kept in (("seen", torch.tensor([True])), ("square", square)):
        model.torso_net.register_buffer(name, kept)
    return make_learner(model)


@pytest.mark.parametrize(("field", "value"), [("reward", -3e38), ("obs", 1e30)])
def test_the_largest_number_is_named_if_nothing_is_infinite(field, value):
    learner, batch = linear_learner(), make_batch()
    large = spoiled(batch, field, (1,) * getattr(batch, field).ndim, value)
    error = fail_to_step(learner, large)
    assert f"the largest of it {abs(value):g} in {field}" in str(error)
    assert not error.culprit.columns
    both = spoiled(large, "behaviour_params", (0, 2, 0), NAN)
    error = fail_to_step(learner, both)
    assert error.culprit.name == "ratio"
    assert error.culprit.columns == (2,)


@pytest.mark.parametrize("value", [NAN, INF])
def test_weights_that_have_diverged_are_blamed_before_what_they_make(value):
    learner = linear_learner()
    with torch.no_grad():
        learner.model.torso_net.weight[0, 3] = value
    before = copy.deepcopy(learner.state_dict())
    batch = spoiled(make_batch(), "behaviour_params", (0, 2, 0), value)  # they have acted, too
    with pytest.raises(
        NonFiniteUpdate, match=r"weight\[0, 3\] is .*Nothing is trained yet"
    ) as caught:
        learner.step(batch, 0.1)
    assert caught.value.culprit.name == "weights"
    assert same(before, learner.state_dict())


def test_a_policy_that_overflows_is_blamed_as_ratio_and_values_as_value(monkeypatch):
    learner = make_learner()
    heads = ActorCritic.heads

    def with_logits(model, *args):
        made = heads(model, *args)
        return made._replace(params=made.params * 1e39)

    def with_values(model, *args):
        made = heads(model, *args)
        return made._replace(value_normalised=made.value * 1e39, value=made.value * 1e39)

    monkeypatch.setattr(ActorCritic, "heads", with_logits)
    error = fail_to_step(learner, make_batch(), match="loss/entropy is nan")
    assert error.culprit.name == "ratio"
    monkeypatch.setattr(ActorCritic, "heads", with_values)
    error = fail_to_step(learner, make_batch(), match="loss/value is (nan|inf)")
    assert error.culprit.name == "value"


@pytest.mark.parametrize(
    ("factor", "said"),
    [(INF, "gradient of policy_head.weight is not"), (1e25, "norm .* overflows")],
)
def test_a_gradient_that_is_bad_or_whose_norm_overflows_is_blamed_on_its_parameter(factor, said):
    learner = make_learner()
    learner.model.policy_head.weight.register_hook(lambda g: g * factor)
    error = fail_to_step(learner, make_batch(), match=said)
    assert "policy_head.weight" in str(error)
    assert error.culprit.name == "gradient"


def test_a_checkpoint_is_advised_only_where_there_may_be_one():
    culprit = Culprit("ratio", "params are nan")
    assert "checkpoint" not in str(NonFiniteUpdate(0, culprit))
    assert "from an earlier checkpoint" in str(NonFiniteUpdate(1, culprit))
