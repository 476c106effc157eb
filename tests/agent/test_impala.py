import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from ritornello.agent.algorithms.base import ImpalaConfig
from ritornello.agent.algorithms.health import credit_health, value_health, value_to_policy
from ritornello.agent.algorithms.impala import Impala
from ritornello.agent.distributions import CategoricalPolicy
from ritornello.core.errors import ConfigError
from ritornello.metrics.record import check_declared
from tests.agent.builders import (
    heads_of,
    make_batch,
    make_small_model,
    otherwise_at_resets,
    sharpened,
)
from tests.agent.learners import CONFIG
from tests.reference.impala_loops import impala_loss_loops
from tests.tolerances import rounding

SUMMED = rounding(torch.float32, 20)  # relative, of a loss or a metric: a batch has so many steps


def loss_of(model, batch, **changes):
    return Impala(replace(CONFIG, **changes)).loss(model, batch)


def gradients_of(model, batch, **changes):
    model.zero_grad()
    loss_of(model, batch, **changes).total.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize(
    ("share", "progress", "cost"),
    [
        *((1.0, 0.0, 0.08), (1.0, 0.25, 0.065), (1.0, 1.0, 0.02)),
        *((0.4, 0.0, 0.08), (0.4, 0.1, 0.065), (0.4, 0.4, 0.02), (0.4, 0.9, 0.02)),
    ],
)
def test_the_entropy_cost_goes_in_a_straight_line_to_its_end(share, progress, cost):
    batch = make_batch()
    config = replace(CONFIG, entropy_cost=0.08, entropy_end_cost=0.02, entropy_end_share=share)
    got = Impala(config).loss(make_small_model(), batch, None, progress).metrics
    want = loss_of(make_small_model(), batch, entropy_cost=cost).metrics
    for name, value in want.items():
        torch.testing.assert_close(got[name], value, equal_nan=True)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rho_bar": 2.0, "c_bar": 0.7, "rho_pg_bar": 1.5, "lambda_": 0.9, "discount": 0.8},
        {"lambda_": 0.95, "advantage_lambda": 0.3},
        {"trust_region": "implied", "trust_threshold": 0.1},
        {"policy_cloning_cost": 0.3, "value_cloning_cost": 0.2, "entropy_online_only": True},
        {"trust_region": "implied", "policy_cloning_cost": 0.3, "value_cloning_cost": 0.2},
    ],
    ids=["plain", "bars", "two lambdas", "laser", "clear", "laser and clear"],
)
def test_the_loss_equals_the_plain_loops(changes):
    model, batch = sharpened(make_small_model()), make_batch()
    config = replace(CONFIG, **changes)
    metrics = Impala(config).loss(model, batch).metrics
    with torch.no_grad():
        heads = heads_of(model, batch)
    lists = {
        name: getattr(batch, name).tolist()
        for name in ("action", "reward", "terminated", "reset_row", "behaviour_value", "is_online")
    }
    expected = impala_loss_loops(
        config,
        heads.params.softmax(-1).tolist(),
        batch.behaviour_params.softmax(-1).tolist(),
        heads.value.tolist(),
        lists,
    )
    for name, term in expected.items():
        got = metrics.get(f"loss/{name}", torch.tensor(0.0)).item()
        assert got == pytest.approx(term, rel=1e-4, abs=1e-5), name
    assert metrics["loss/total"].item() == pytest.approx(sum(expected.values()), rel=1e-4)
    if "trust_region" in changes:
        assert 0 < metrics["vtrace/masked_fraction"].item() < 1  # the case is not trivial


def test_the_gradient_flows_through_log_pi_entropy_and_values_only():
    """The gradient of a hand-written surrogate, in which targets and advantages are numbers."""
    model, batch = make_small_model(), make_batch(size=1)
    batch = replace(batch, first=torch.zeros_like(batch.first))
    got = gradients_of(model, batch, loss_reduction="sum")

    model.zero_grad()
    heads = heads_of(model, batch)
    log_pi = heads.params[:-1].log_softmax(-1)
    log_mu = batch.behaviour_params.log_softmax(-1)
    chosen = log_pi.gather(-1, batch.action.unsqueeze(-1)).squeeze(-1)
    ratios = (chosen - log_mu.gather(-1, batch.action.unsqueeze(-1)).squeeze(-1)).exp().detach()
    values, acc = heads.value.detach(), torch.zeros(1)
    surrogate = 0.0
    for t in reversed(range(batch.steps)):
        rho = ratios[t].clamp(max=1)
        q = batch.reward[t] + 0.99 * (values[t + 1] + acc)
        acc = rho * (q - 0.99 * acc - values[t]) + 0.99 * rho * acc
        surrogate += -rho * (q - values[t]) * chosen[t]
        surrogate += 0.5 * 0.5 * (values[t] + acc - heads.value[t]).square()
        surrogate += 0.01 * (log_pi[t].exp() * log_pi[t]).sum(-1)
    surrogate.sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(got[name], parameter.grad, rtol=1e-4, atol=1e-5)


def test_what_happened_at_a_reset_row_has_no_influence():
    # Replayed, so that there is cloning too.
    model, batch = make_small_model(), make_batch(is_online=torch.zeros(4, dtype=torch.bool))
    changed = otherwise_at_resets(batch)
    costs = {"policy_cloning_cost": 0.1, "value_cloning_cost": 0.1}
    before, after = (gradients_of(model, b, **costs) for b in (batch, changed))
    for name, gradient in before.items():
        assert torch.equal(gradient, after[name]), name
    one, two = loss_of(model, batch, **costs).metrics, loss_of(model, changed, **costs).metrics
    assert {k: v.item() for k, v in one.items()} == {k: v.item() for k, v in two.items()}


def test_popart_losses_are_those_of_rewards_in_units_of_sigma():
    """With mu = 0 and sigma = 10, rewards ten times as large give the loss of a plain head."""
    plain = make_small_model(popart=False)
    scaled = make_small_model(popart=True)
    scaled.load_state_dict(plain.state_dict())
    scaled.value_head.nu.fill_(100.0)
    scaled.value_head.step_size = 0.0
    batch = make_batch()
    larger = replace(batch, reward=batch.reward * 10)
    expected, got = gradients_of(plain, batch), gradients_of(scaled, larger)
    for name, gradient in expected.items():
        torch.testing.assert_close(got[name], gradient, rtol=1e-4, atol=1e-5)
    errors = loss_of(plain, batch).errors
    assert errors.nansum() > 0
    torch.testing.assert_close(loss_of(scaled, larger).errors, errors, equal_nan=True)


def test_popart_moves_before_the_loss_and_the_loss_uses_the_rewritten_head():
    model, batch = make_small_model(popart=True, popart_step_size=0.5), make_batch()
    before = heads_of(model, batch).value.detach()
    loss = loss_of(model, batch)
    assert model.value_head.mu.item() != 0
    torch.testing.assert_close(heads_of(model, batch).value, before, rtol=1e-4, atol=1e-5)

    # The same batch with the statistics frozen where they are now gives the same loss.
    frozen = copy.deepcopy(model)
    frozen.value_head.step_size = 0.0
    torch.testing.assert_close(loss_of(frozen, batch).total, loss.total, rtol=1e-4, atol=1e-4)
    loss.total.backward()  # rewriting the head in place did not break the graph
    assert model.value_head.linear.weight.grad.any()


def test_popart_rescales_the_moments_of_the_optimiser_it_is_given():
    model, batch = make_small_model(popart=True, popart_step_size=0.5), make_batch()
    optimiser = torch.optim.Adam(model.parameters())
    loss_of(model, batch).total.backward()
    optimiser.step()
    weight = model.value_head.linear.weight
    state, sigma = optimiser.state[weight], model.value_head.sigma
    first, second = state["exp_avg"].clone(), state["exp_avg_sq"].clone()
    Impala(CONFIG).loss(model, replace(batch, reward=batch.reward * 9), optimiser)
    ratio = (sigma / model.value_head.sigma).float()
    assert abs(ratio - 1) > 0.1
    torch.testing.assert_close(state["exp_avg"], first * ratio)
    torch.testing.assert_close(state["exp_avg_sq"], second * ratio**2)


def test_stored_values_are_cloned_in_the_units_of_today():
    model, batch = make_small_model(popart=True), make_batch()
    model.value_head.mu.fill_(20.0)
    model.value_head.nu.fill_(20.0**2 + 9.0)
    model.value_head.step_size = 0.0
    batch = replace(batch, behaviour_value=heads_of(model, batch).value[:-1].detach() + 6.0)
    metrics = loss_of(model, batch, value_cloning_cost=1.0).metrics
    replayed = (~batch.reset_row & ~batch.is_online).sum().item()
    assert metrics["loss/value_cloning"].item() == pytest.approx(replayed * (6 / 3) ** 2, rel=1e-3)


def test_advantages_of_each_game_are_normalised_by_its_own_size():
    model, batch = make_small_model(tasks=2), make_batch(tasks=2)
    with torch.no_grad():
        model.value_head.linear.weight.zero_()
    larger = replace(batch, reward=batch.reward * torch.where(batch.task_id == 1, 1000, 1))
    one = loss_of(model, batch, advantage_normalisation="rms").metrics["loss/policy"]
    two = loss_of(model, larger, advantage_normalisation="rms").metrics["loss/policy"]
    torch.testing.assert_close(one, two)


def test_rewards_are_transformed_in_the_loss_and_nowhere_else():
    model, batch = make_small_model(), make_batch()
    signed = replace(batch, reward=batch.reward.sign())
    got = loss_of(model, batch, reward_transform="abs_one_sign").total
    assert got == loss_of(model, signed).total
    assert got != loss_of(model, batch).total


def test_on_policy_data_looks_healthy():
    model, batch = make_small_model(), make_batch()
    with torch.no_grad():
        batch = replace(batch, behaviour_params=heads_of(model, batch).params[:-1])
    metrics = loss_of(model, batch).metrics
    assert metrics["vtrace/rho_mean"].item() == pytest.approx(1, rel=SUMMED)
    assert metrics["vtrace/ess"].item() == pytest.approx(1, rel=SUMMED)
    assert metrics["policy/kl_behaviour_target"].item() == pytest.approx(0, abs=SUMMED)
    reset_share = batch.reset_row.float().mean().item()
    assert metrics["vtrace/reset_fraction"].item() == pytest.approx(reset_share)


def from_buffers(*sources):
    """A batch whose columns come from these buffers, at different ages, with one reset row."""
    return make_batch(
        size=len(sources), source=torch.tensor(sources), age=torch.tensor(sources) * 7
    )


def test_each_buffer_gets_the_means_over_its_own_columns():
    model = sharpened(make_small_model())
    batch = from_buffers(0, 1, 1, 0)
    config = replace(CONFIG, trust_region="implied", trust_threshold=0.1)
    metrics = Impala(config, ["queue", "standard"]).loss(model, batch).metrics
    with torch.no_grad():
        log_pi = heads_of(model, batch).params[:-1].log_softmax(-1)
    log_mu = batch.behaviour_params.log_softmax(-1)
    for number, name in enumerate(("queue", "standard")):
        own, seen = [], []
        for t in range(batch.steps):
            for b in range(batch.size):
                if batch.source[b] == number and not batch.reset_row[t, b]:
                    pi, mu = log_pi[t, b], log_mu[t, b]
                    own.append((mu.exp() * (mu - pi)).sum().item())
                    distance = CategoricalPolicy(pi).implied_kl(CategoricalPolicy(mu), 1.0)
                    seen.append(distance.item() >= 0.1)
        kl = metrics[f"replay/{name}/kl_behaviour_target"].item()
        assert kl == pytest.approx(sum(own) / len(own), rel=1e-4)
        masked = metrics[f"replay/{name}/masked_fraction"].item()
        assert masked == pytest.approx(sum(seen) / len(seen), rel=SUMMED)
        assert metrics[f"replay/{name}/drawn_age_updates"].item() == 7 * number
    whole = metrics["policy/kl_behaviour_target"].item()
    assert metrics["replay/queue/kl_behaviour_target"].item() != pytest.approx(whole, rel=1e-3)


@pytest.mark.parametrize(("middle", "spread"), [(0.0, 1.0), (100.0, 0.01), (936.0, 0.1)])
def test_explained_variance_is_exact_far_from_zero(middle, spread):
    rng = np.random.default_rng(5)
    targets = middle + spread * rng.standard_normal((20, 8))
    values = targets + 0.6 * spread * rng.standard_normal((20, 8))
    shown = [torch.tensor(rows, dtype=torch.float32) for rows in (values, targets)]
    valid = torch.tensor(rng.random((20, 8)) < 0.9)
    got = value_health(valid, *shown)["value/explained_variance"].item()
    values, targets = (rows[valid].double().numpy() for rows in shown)
    assert got == pytest.approx(1 - (targets - values).var() / targets.var(), abs=0.01)


def test_foresight_and_horizon_equal_the_plain_loops():
    batch, rng = make_batch(steps=9), np.random.default_rng(3)
    shape = batch.reward.shape
    batch = replace(batch, reward=torch.tensor(rng.integers(-2, 3, shape), dtype=torch.float32))
    valid, trust = (torch.tensor(rng.random(shape) < 0.8) for _ in range(2))
    log_rhos = torch.tensor(rng.standard_normal(shape), dtype=torch.float32)
    values = torch.tensor(rng.standard_normal((shape[0] + 1, shape[1])), dtype=torch.float32)
    config = ImpalaConfig(reward_transform="abs_one_sign", discount=0.9, lambda_=0.8, c_bar=0.9)
    surprise = paid = c = 0.0
    for t, b in np.argwhere(valid.numpy()):
        reward = batch.reward[t, b].sign().item()
        following = 0.0 if batch.terminated[t, b] else 0.9 * values[t + 1, b].item()
        surprise += (reward + following - values[t, b].item()) * reward
        paid += abs(reward)
        c += min(0.9, math.exp(log_rhos[t, b])) * bool(trust[t, b]) / valid.sum().item()
    got = credit_health(config, batch, valid, log_rhos, values, trust)
    assert got["value/foresight"].item() == pytest.approx(1 - surprise / paid, rel=1e-4)
    assert got["vtrace/c_mean"].item() == pytest.approx(c, rel=1e-4)
    assert got["vtrace/horizon_steps"].item() == pytest.approx(1 / (1 - 0.72 * c), rel=1e-4)
    wide = credit_health(
        replace(config, lambda_=1.0, rho_bar=4.0, c_bar=4.0), batch, valid, log_rhos, values
    )
    assert wide["vtrace/c_mean"].item() > 1 / 0.9
    assert wide["vtrace/horizon_steps"].item() == pytest.approx(9)


def test_the_share_of_the_values_is_that_of_the_gradients_at_the_hidden_units():
    hidden = torch.randn(6, 3, 5, requires_grad=True)
    value, policy = torch.randn(5), torch.randn(5)
    per_step = {"value": hidden[:-1] @ value, "policy": hidden[:-1] @ policy}
    got = value_to_policy(hidden, per_step, torch.tensor([1.0, 0.5, 2.0]))
    share = (value.norm() / policy.norm()).item()
    assert got["grad/value_to_policy"].item() == pytest.approx(share, rel=1e-5)

    model, batch = sharpened(make_small_model()), make_batch()
    once, twice = (
        loss_of(model, batch, value_cost=cost, gradient_metrics=True).metrics[
            "grad/value_to_policy"
        ]
        for cost in (0.5, 1)
    )
    assert twice.item() == pytest.approx(2 * once.item(), rel=1e-4)
    with torch.no_grad():
        looked = loss_of(model, batch, gradient_metrics=True).metrics
        assert "grad/value_to_policy" not in looked


def recurrent():
    """A model with memory and all extra inputs, and a batch; columns 2 and 3 are replayed."""
    model = make_small_model(
        tasks=2, use_lstm=True, lstm_size=8, use_last_action=True, use_last_reward=True,
        use_task_id=True,
    )  # fmt: skip
    return sharpened(model), make_batch(tasks=2, state_count=model.state_count)


def rows_from(batch, row, state):
    """The same unrolls without their first rows, entered in `state`."""
    cut = {
        name: getattr(batch, name)[row:]
        for name in ("obs", "first", "action", "reward", "last_action", "last_reward",
                     "terminated", "behaviour_params", "behaviour_value")
    }  # fmt: skip
    return replace(batch, **cut, state=state)


def test_burn_in_learns_what_the_rows_after_it_alone_would_teach():
    """From the state that the first rows lead to, as a number."""
    model, batch = recurrent()
    batch = replace(batch, is_online=torch.zeros_like(batch.is_online))
    with torch.no_grad():
        features, inputs = model.torso(batch.obs), batch.inputs()
        begin = inputs._replace(
            obs=inputs.obs[:2], first=inputs.first[:2], last_action=inputs.last_action[:2],
            last_reward=inputs.last_reward[:2],
        )  # fmt: skip
        _, state = model.hidden(features[:2], begin, batch.state)
    rest = rows_from(batch, 2, state)
    costs = {"policy_cloning_cost": 0.3, "value_cloning_cost": 0.2, "trust_region": "implied",
             "trust_threshold": 0.2}  # fmt: skip
    for reduction in ("sum", "mean"):
        expected = gradients_of(model, rest, **costs, loss_reduction=reduction)
        got = gradients_of(model, batch, **costs, loss_reduction=reduction, burn_in_steps=2)
        for name, gradient in expected.items():
            torch.testing.assert_close(got[name], gradient, rtol=1e-4, atol=1e-6, msg=name)
    metrics = loss_of(model, batch, **costs, burn_in_steps=2).metrics
    for name, value in loss_of(model, rest, **costs).metrics.items():
        if name != "vtrace/reset_fraction":
            torch.testing.assert_close(metrics[name], value, rtol=1e-4, atol=1e-6, msg=name)


def test_burn_in_keeps_gradients_out_of_the_first_rows_of_replay_and_of_nothing_else():
    model, batch = recurrent()
    never = torch.zeros_like(batch.first)  # a reset would keep them out by itself
    of_new = []
    for burn_in_steps in (0, 2):
        obs, state = batch.obs.clone().requires_grad_(), batch.state.clone().requires_grad_()
        probed = replace(batch, obs=obs, state=state, first=never)
        loss_of(model, probed, burn_in_steps=burn_in_steps).total.backward()
        of_new.append(obs.grad[:, :2])
        flows = obs.grad.abs().sum(-1) > 0  # [T+1, B]
        assert flows[:-1, :2].all()
        assert flows[2:-1, 2:].all()
        assert flows[:2, 2:].all() == (burn_in_steps == 0)
        assert flows[:2, 2:].any() == (burn_in_steps == 0)
        assert (state.grad.abs().sum(1) > 0).tolist() == [True] * 2 + [burn_in_steps == 0] * 2
    # New data learns from all rows, also through the state.
    torch.testing.assert_close(of_new[0], of_new[1], rtol=1e-5, atol=1e-7)


def test_burn_in_without_a_memory_is_refused():
    algorithm = Impala(replace(CONFIG, burn_in_steps=2))
    with pytest.raises(ConfigError, match=r"burn_in_steps is 2.*--use_lstm"):
        algorithm.check(make_small_model())
    algorithm.check(recurrent()[0])


def test_every_metric_is_a_detached_scalar():
    model, batch = make_small_model(tasks=2, popart=True), make_batch(tasks=2)
    config = replace(CONFIG, policy_cloning_cost=0.1, trust_region="implied")
    metrics = Impala(config, ["standard"]).loss(model, batch).metrics
    assert {"popart/mu_0", "popart/sigma_1", "vtrace/masked_fraction"} <= metrics.keys()
    for name, value in metrics.items():
        assert check_declared(name)
        assert value.ndim == 0, name
        assert not value.requires_grad, name
        assert value.isfinite(), name


def test_traces_that_are_clipped_above_the_targets_are_refused():
    with pytest.raises(ConfigError, match="at most rho_bar"):
        ImpalaConfig(c_bar=2.0)
