import copy
from dataclasses import fields, replace

import pytest
import torch

from ritornello.agent.algorithms import losses
from ritornello.agent.algorithms.base import ImpalaConfig, VTraceConfig
from ritornello.agent.algorithms.impact import Impact, ImpactConfig
from ritornello.agent.algorithms.impala import Impala
from ritornello.agent.assembly import make_algorithm
from ritornello.agent.learning.learner import Learner
from ritornello.agent.learning.optim import OptimiserConfig, make_optimiser
from ritornello.core.spec import CHOICE, NUMBERS, ActionPart, ActionSpec
from ritornello.flags.options import Flags
from tests.agent.builders import (
    heads_of,
    make_batch,
    make_small_model,
    make_spec,
    otherwise_at_resets,
    sharpened,
)
from tests.agent.learners import RAW, fail_to_step, same, with_bad_reward
from tests.agent.several import Case, batch_of_rank, distance, in_threads, joined
from tests.reference.impact_loops import impact_loss_loops

PLAIN = ImpactConfig(**RAW, target_period=3)
# Two real numbers, and one of three beside them.
NUMBERS_AND_CHOICE = ActionSpec((ActionPart(NUMBERS, 2), ActionPart(CHOICE, 3)))
CASE = Case("mean", "rms", 3, "vector")  # of two learners, with games that only one plays


def impact(model, target=None, **changes):
    """The algorithm with a target network of these weights; None: those of the model."""
    algorithm = Impact(replace(PLAIN, **changes))
    algorithm.check(model)
    weights = copy.deepcopy(dict((target or model).state_dict()))
    algorithm.load_state_dict({"weights": weights, "age": 0})
    return algorithm


def gradients(model, total):
    model.zero_grad()
    total.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_close(one, other, tolerance=1e-5):
    assert one.keys() == other.keys()
    for name, gradient in one.items():
        torch.testing.assert_close(gradient, other[name], rtol=1e-4, atol=tolerance, msg=name)


def tables(*models, batch):
    """Probabilities [T+1][B][A] and values [T+1][B] of each model, as lists."""
    with torch.no_grad():
        heads = [heads_of(model, batch) for model in models]
    return [(head.params.softmax(-1).tolist(), head.value.tolist()) for head in heads]


def lists_of(batch):
    names = ("action", "reward", "terminated", "reset_row", "is_online")
    return {name: getattr(batch, name).tolist() for name in names}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"surrogate_clip": 0.1, "ratio_bar": 1.2, "entropy_online_only": True},
        {"rho_bar": 2.0, "c_bar": 0.7, "rho_pg_bar": 1.5, "lambda_": 0.9, "discount": 0.8},
        {"lambda_": 0.95, "advantage_lambda": 0.3, "value_source": "policy"},
        {"policy_cost": 0.7, "value_cost": 2.0, "entropy_cost": 0.3},
    ],
    ids=["plain", "bounds", "bars", "present values", "costs"],
)
def test_the_loss_equals_the_plain_loops(changes):
    model, other = sharpened(make_small_model()), sharpened(make_small_model(seed=1))
    batch = make_batch()
    algorithm = impact(model, other, **changes)
    metrics = algorithm.loss(model, batch).metrics
    (pi, values), (target, target_values) = tables(model, other, batch=batch)
    mu = batch.behaviour_params.softmax(-1).tolist()
    expected = impact_loss_loops(
        algorithm.config, pi, target, mu, values, target_values, lists_of(batch)
    )
    for name, term in expected.items():
        assert metrics[f"loss/{name}"].item() == pytest.approx(term, rel=1e-4, abs=1e-5), name
    assert metrics["loss/total"].item() == pytest.approx(sum(expected.values()), rel=1e-4)
    assert 0 < metrics["impact/ratio_clipped_fraction"].item() < 1  # the case is not trivial


@pytest.mark.parametrize("actions", [3, NUMBERS_AND_CHOICE], ids=["choice", "numbers"])
@pytest.mark.parametrize("popart", [False, True])
@pytest.mark.parametrize("normalisation", ["none", "rms"])
def test_if_worker_and_target_are_the_policy_its_gradient_is_that_of_v_trace(
    popart, normalisation, actions
):
    spec = make_spec(actions=actions)
    model = make_small_model(spec, popart=popart, popart_step_size=0.3)
    batch = make_batch(spec)
    with torch.no_grad():
        batch = replace(batch, behaviour_params=heads_of(model, batch).params[:-1])
    shared = {field.name for field in fields(VTraceConfig)}
    plain = replace(PLAIN, advantage_normalisation=normalisation)
    same_settings = {name: getattr(plain, name) for name in shared}
    twin = copy.deepcopy(model)
    want = gradients(twin, Impala(ImpalaConfig(**same_settings)).loss(twin, batch).total)
    algorithm = impact(model, advantage_normalisation=normalisation)
    loss = algorithm.loss(model, batch)
    assert_close(gradients(model, loss.total), want)
    assert loss.metrics["impact/ratio_mean"].item() == pytest.approx(1, abs=1e-5)
    assert loss.metrics["impact/ratio_clipped_fraction"].item() == 0


@pytest.mark.parametrize(
    ("advantage", "flows"), [(1.0, (True, True, False)), (-1.0, (False, True, True))]
)
def test_no_gradient_flows_where_a_ratio_has_gone_too_far_towards_what_pays(advantage, flows):
    log_ratios = torch.tensor([0.6, 1.1, 1.4]).log().requires_grad_()
    loss = losses.clipped_surrogate(log_ratios, torch.full((3,), advantage), 0.3)
    loss.sum().backward()
    assert tuple((log_ratios.grad != 0).tolist()) == flows
    slopes = [
        -advantage * ratio if flow else 0
        for ratio, flow in zip((0.6, 1.1, 1.4), flows, strict=True)
    ]
    assert log_ratios.grad.tolist() == pytest.approx(slopes)


def test_what_happened_at_a_reset_row_has_no_influence():
    model, other = make_small_model(), make_small_model(seed=1)
    batch = make_batch()
    changed = otherwise_at_resets(batch)
    one, two = (impact(model, other).loss(model, each) for each in (batch, changed))
    got = {name: value.item() for name, value in two.metrics.items()}
    assert got == {name: value.item() for name, value in one.metrics.items()}
    assert_close(gradients(model, one.total), gradients(model, two.total), tolerance=0)
    assert torch.equal(one.errors.isnan(), batch.reset_row)


def test_a_ratio_that_overflows_leaves_the_loss_finite():
    model, other = make_small_model(), make_small_model(seed=1)
    batch = make_batch()
    certain = torch.full_like(batch.behaviour_params, -200.0)
    certain[..., 0] = 0.0
    batch = replace(batch, behaviour_params=certain)
    with torch.no_grad():
        other.policy_head.bias += torch.tensor([300.0, 0.0, -300.0])
    loss = impact(model, other).loss(model, batch)
    assert loss.total.isfinite()
    assert all(g.isfinite().all() for g in gradients(model, loss.total).values())


def test_burn_in_rows_teach_nothing_and_warm_up_both_networks():
    config = {"use_lstm": True, "lstm_size": 8}
    model, other = make_small_model(**config), make_small_model(**config, seed=1)
    replayed = torch.zeros(4, dtype=torch.bool)
    batch = make_batch(steps=7, state_count=model.state_count, is_online=replayed)
    batch = replace(batch, first=torch.zeros_like(batch.first))
    noisy = batch.reward.clone()
    noisy[:3] += 5
    algorithm = impact(model, other, burn_in_steps=3)
    one = algorithm.loss(model, batch)
    two = impact(model, other, burn_in_steps=3).loss(model, replace(batch, reward=noisy))
    assert one.total.item() == two.total.item()
    # The target has its own memory of those rows.
    seen = replace(batch, obs=torch.cat([batch.obs[:3] + 1, batch.obs[3:]]))
    moved = impact(model, other, burn_in_steps=3).loss(model, seen)
    assert moved.total.item() != one.total.item()
    assert one.errors[:3].isnan().all()
    assert not one.errors[3:].isnan().any()


def make_learner(model=None, *, optimiser="adam", changes=None, **config):
    model = model or make_small_model(popart=True, popart_step_size=0.3)
    rates = OptimiserConfig(name=optimiser, lr=1e-2)
    algorithm = Impact(replace(PLAIN, **config))
    return Learner(model, algorithm, make_optimiser(rates, model), lambda _: 1e-2, **changes or {})


def weights_of(network):
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def test_the_target_is_the_policy_of_each_third_update():
    learner = make_learner(target_period=3)
    target = learner.algorithm.target
    before = []
    for update in range(8):
        before.append(weights_of(learner.model))
        metrics = learner.step(make_batch(seed=update), 0.0)
        assert metrics["impact/target_age_updates"].item() == update % 3
        assert same(weights_of(target), before[update - update % 3])
    assert not same(before[-1], weights_of(target))


def test_what_the_target_says_in_points_does_not_move_with_popart():
    learner = make_learner(target_period=100)
    batch = make_batch(seed=7)
    learner.step(make_batch(seed=0), 0.0)
    target = learner.algorithm.target
    with torch.no_grad():
        before = heads_of(target, batch).value
    large = make_batch(seed=1)
    for _ in range(5):
        learner.step(replace(large, reward=large.reward * 100 + 50), 0.0)
    head = learner.model.value_head
    assert head.sigma.item() > 5
    assert target.value_head.sigma.item() != head.sigma.item()
    with torch.no_grad():
        assert torch.equal(heads_of(target, batch).value, before)


@pytest.mark.parametrize("updates", [2, 3])
def test_an_update_that_cannot_be_made_leaves_the_target_as_it_was(updates):
    """After three updates the bad one begins with a copy, which is taken back."""
    learner = make_learner()
    for seed in range(updates):
        learner.step(make_batch(seed=seed), 0.0)
    fail_to_step(learner, with_bad_reward(make_batch(seed=5)), match="reward")


def test_the_target_computes_like_the_model():
    spec = make_spec((2, 44, 40))
    model = make_small_model(spec, name="impala_shallow")
    options = {"precision": "bf16", "channels_last": True, "threads": 2}
    learner = make_learner(model, changes=options, target_period=2, ratio_bar=1e6)
    target = learner.algorithm.target
    assert target.precision == "bf16"
    assert target._parallel_torso is not None
    batch = make_batch(spec)
    metrics = learner.step(batch, 0.0)
    # The first target is the policy: if they compute alike, the ratio is exactly 1.
    assert metrics["impact/ratio_mean"].item() == 1
    learner.step(batch, 0.0)
    for name, parameter in target.named_parameters():
        fits = dict(model.named_parameters())[name]
        assert parameter.stride() == fits.stride(), name


def learner_of_several(group=None):
    model = make_small_model(popart=True, tasks=3, popart_step_size=0.05)
    # See tests/agent/several.py for the large epsilon.
    config = OptimiserConfig(lr=1e-3, lr_end=0.0, epsilon=1e-3)
    algorithm = Impact(ImpactConfig(reward_transform="none", target_period=4))
    options = {} if group is None else {"group": group}
    return Learner(model, algorithm, make_optimiser(config, model), lambda _: 1e-3, **options)


def test_two_learners_learn_what_one_learns_from_both_batches():
    def work(seat):
        learner = learner_of_several(seat)
        for update in range(10):
            learner.step(batch_of_rank(CASE, update, seat.rank), update / 10)
        return learner.state_dict()

    def work_alone(_):
        learner = learner_of_several()
        for update in range(10):
            batch = joined([batch_of_rank(CASE, update, rank) for rank in range(2)])
            learner.step(batch, update / 10)
        return learner.state_dict()

    first, second = in_threads(work)
    assert same(first, second)
    (alone,) = in_threads(work_alone, ranks=1)
    assert distance(first, alone) < 1e-5


def ring(**more):
    return [{"type": "circular", "capacity": 64, "sample_ratio": 1.0, **more}]


def test_a_target_lives_until_the_circular_buffer_is_renewed():
    flags = {"algorithm": "impact", "batch_size": 16}
    config = make_algorithm(Flags(**flags, replay_parameters=ring(uses=3))).config
    assert config.target_period == 64 // 16 * 3
    assert make_algorithm(Flags(**flags)).config.target_period == 1
    config = make_algorithm(Flags(**flags, replay_parameters=ring(), impact_target_period=7)).config
    assert config.target_period == 7
