"""Everything that acts, stores and learns, with actions that are more than one choice."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from ritornello.agent.algorithms.base import Algorithm
from ritornello.agent.algorithms.batch import forward
from ritornello.agent.algorithms.impala import Impala
from ritornello.agent.learning.scorer import Scorer
from ritornello.agent.models.base import Inputs
from ritornello.agent.models.extra_inputs import ExtraInputs
from ritornello.agent.stored.checkpoint import load
from ritornello.core.errors import CheckpointError, ConfigError
from ritornello.core.spec import CHOICE
from ritornello.metrics.record import check_declared
from tests.agent.builders import ANY_ACTIONS, batch_of, make_batch, make_small_model, make_spec
from tests.agent.learners import CONFIG
from tests.agent.runs import make_blueprint, saved_state
from tests.agent.test_inference_server import make_served
from tests.agent.test_rollout import collect_records, make_board
from tests.agent.test_saved_state import parts, restored, written
from tests.reference import distribution_loops as loops
from tests.reference.vtrace_loops import vtrace_loops

REACH, DIALS, MIXED = (f"tests.worlds:tests/{name}-v0" for name in ("Reach", "Dials", "Mixed"))
WORLDS = pytest.mark.parametrize("env", [REACH, DIALS, MIXED])
PLAIN = replace(CONFIG, policy_cloning_cost=0.3, value_cloning_cost=0.0)
SPECS = {name: spec for name, spec in ANY_ACTIONS.items() if name != "one choice"}
EVERY = pytest.mark.parametrize("actions", SPECS.values(), ids=SPECS)


def for_loops(actions, params, action=None, mask=None):
    """Return a policy, and an action if there is one, as the plain loops take them.

    The loops know of no masks: what is not allowed is left out of the choices.
    """
    policy, done, start, column = [], [], 0, 0
    for part in actions.parts:
        own = params[start : start + part.param_count]
        is_choice = part.kind == CHOICE
        allowed = [i for i in range(len(own)) if mask is None or mask[start + i]]
        own = [own[i] for i in allowed]
        policy.append(
            ("choice", own) if is_choice else ("numbers", own[: part.count], own[part.count :])
        )
        if action is not None:
            numbers = action[column : column + part.width]
            done.append(allowed.index(int(numbers[0])) if is_choice else numbers)
        start, column = start + part.param_count, column + part.width
    return policy, done


@pytest.mark.parametrize("actions", ANY_ACTIONS.values(), ids=ANY_ACTIONS)
@pytest.mark.parametrize("has_masks", [False, True], ids=["all allowed", "masked"])
@pytest.mark.parametrize("region", ["none", "kl_pi_mu", "kl_mu_pi"])
def test_the_loss_equals_the_plain_loops(actions, region, has_masks):
    if has_masks and actions.dtype == "float32" and len(actions.parts) == 1:
        pytest.skip("real numbers have no masks")
    spec = make_spec(actions=actions, masked=has_masks)
    model, batch = make_small_model(spec), make_batch(spec)
    with torch.no_grad():
        model.policy_head.weight *= 100
    threshold = 0.8 if actions.dtype == "int64" else 3.0  # some states are nearer, and some not
    config = replace(PLAIN, trust_region=region, trust_threshold=threshold)
    metrics = Impala(config).loss(model, batch).metrics
    with torch.no_grad():
        seen = forward(model, batch)
    values = seen.heads.value.tolist()
    expected = dict.fromkeys(("policy", "entropy", "policy_cloning"), 0.0)
    masked = 0
    for b in range(batch.size):
        policies, ratios, trusted, log_probs = [], [], [], []
        for t in range(batch.steps):
            mask = batch.action_mask[t, b].tolist() if has_masks else None
            stored = batch.action[t, b].reshape(-1).tolist()
            pi, done = for_loops(actions, seen.heads.params[t, b].tolist(), stored, mask)
            mu, _ = for_loops(actions, batch.behaviour_params[t, b].tolist(), mask=mask)
            policies.append((pi, mu))
            log_probs.append(loops.log_prob(pi, done))
            is_reset = bool(batch.reset_row[t, b])
            ratio = math.exp(min(20.0, log_probs[-1] - loops.log_prob(mu, done)))
            ratios.append(0.0 if is_reset else ratio)
            pair = (mu, pi) if region == "kl_mu_pi" else (pi, mu)
            trusted.append(region == "none" or loops.kl(*pair) < threshold)
        ended = (batch.terminated[:, b] | batch.reset_row[:, b]).tolist()
        discounts = [0.0 if end else config.discount for end in ended]
        _, advantages = vtrace_loops(
            [row[b] for row in values], batch.reward[:, b].tolist(), discounts, ratios,
            1.0, 1.0, 1.0, 1.0, trusted,
        )  # fmt: skip
        for t, (pi, mu) in enumerate(policies):
            if batch.reset_row[t, b]:
                continue
            if not batch.is_online[b]:
                expected["policy_cloning"] += config.policy_cloning_cost * loops.kl(mu, pi)
            if trusted[t]:
                expected["policy"] -= advantages[t] * log_probs[t]
                expected["entropy"] -= config.entropy_cost * loops.entropy(pi)
            masked += not trusted[t]
    for name, term in expected.items():
        assert metrics[f"loss/{name}"].item() == pytest.approx(term, rel=1e-3, abs=1e-4), name
    assert (masked > 0) == (region != "none"), "the case is trivial"
    assert ("policy/entropy_fraction" in metrics) == (actions.dtype == "int64")
    for name in metrics:
        check_declared(name)


@EVERY
def test_an_algorithm_that_does_not_say_that_it_takes_any_action_is_refused(actions):
    class Simple(Algorithm):
        def loss(self, model, batch, optimiser=None, progress=0.0):
            raise AssertionError

    Simple(PLAIN).check(make_small_model(make_spec()))
    with pytest.raises(ConfigError, match="takes_any_action = True"):
        Simple(PLAIN).check(make_small_model(make_spec(actions=actions)))


def test_the_last_action_is_an_input_with_its_choices_written_out():
    extras = ExtraInputs(actions=SPECS["a tuple"].parts, reward=True)
    assert extras.count == 2 + 4 + 1 + 1
    inputs = Inputs(
        torch.zeros(2, 1, 1), torch.tensor([[False], [True]]),
        torch.tensor([[[0.5, -9.0, 2.0, 0.25]], [[1.0, 1.0, 1.0, 1.0]]]),
        torch.zeros(2, 1), None,
    )  # fmt: skip
    encoded = extras.encode(inputs)
    assert encoded[0, 0].tolist() == [0.5, -9.0, 0, 0, 1, 0, 0.25, 0]
    assert not encoded[1].any(), "there is none after a reset"


@WORLDS
@pytest.mark.parametrize("served", [False, True], ids=["workers act", "a server acts"])
def test_the_learner_finds_the_probabilities_with_which_was_acted(env, served):
    """With a memory that sees the last action, so that each of them must be where it belongs."""
    flags = {"env": env, "use_lstm": True, "lstm_size": 7, "use_last_action": True}
    if served:
        with make_served(**flags) as running:
            blueprint, blocks = running.blueprint, running.collect(5)[0]
    else:
        blueprint = make_blueprint(**flags)
        blocks, _, _ = collect_records(blueprint, 5)
    model = blueprint.learner().model
    for block in blocks:
        for record in block:
            blueprint.schema.check(blueprint.schema.unroll(record))
        batch = batch_of(blueprint.schema, block)
        with torch.no_grad():
            seen = forward(model, batch)
            mixed = replace(batch, action=batch.action.roll(1, 0))
        assert seen.log_ratio.abs().max() < 1e-4
        assert (batch.action[0] != batch.action[1]).any()
        assert not torch.equal(forward(model, mixed).log_pi_action, seen.log_pi_action)


@WORLDS
def test_replay_is_scored_by_the_policies_that_the_model_has_now(env):
    elite = [
        {"type": "queue", "capacity": 4, "sample_ratio": 0.5},
        {"type": "elite", "capacity": 40, "sample_ratio": 0.5, "dist_function": "policy_kl"},
    ]
    blueprint = make_blueprint(env=env, replay_parameters=elite)
    blocks, _, _ = collect_records(blueprint, 1)
    model, _ = blueprint.acting_model()
    board = make_board(blueprint)
    scorer = Scorer(model, blueprint.acting_weights, board, blueprint.schema, torch.device("cpu"))
    rows = np.arange(blueprint.schema.unroll_length)
    found = scorer.evaluate(list(blocks[0]), rows)
    then = np.stack([blueprint.schema.view(record, "behaviour_params") for record in blocks[0]])
    np.testing.assert_allclose(found.params, then, atol=1e-5)
    assert found.params.shape[-1] == blueprint.env_spec.actions.param_count


def state_of_a_short_run(blueprint):
    """What is saved of a run that has played and learned nothing, and its buffers."""
    with parts(blueprint) as (learner, tally, experience):
        for parameter in learner.model.parameters():
            parameter.grad = torch.ones_like(parameter)
        learner.optimiser.step()
        experience.start()
        for number in range(40):
            experience.next_batch()
            (rollout,) = experience.state_dict()["serial"]["pool"]["rollouts"]
            if number > 10 and any(rollout["env"]["actions"]):  # in the middle of a game
                break
        state = saved_state(blueprint, learner, tally=tally.state_dict(), **experience.state_dict())
        return copy.deepcopy(state), copy.deepcopy(experience.replay.state_dict(contents=True))


@WORLDS
def test_a_checkpoint_is_restored_and_one_whose_actions_are_none_is_refused(tmp_path, env):
    blueprint = make_blueprint(
        env=env, reproducible=True, op_mode="train_w_load", load_model_url="here", use_lstm=True,
        lstm_size=4, training_fill_in_factor=0.01, r_f_steps=7,
    )  # fmt: skip
    state, contents = state_of_a_short_run(blueprint)
    restored(load(written(tmp_path, state, contents)), blueprint)

    rollout = state["serial"]["pool"]["rollouts"][0]
    played = [game for game in rollout["env"]["actions"] if game]
    width = blueprint.env_spec.actions.shape[0]
    assert {len(action) for action in played[0]} == {width}

    def refused(change):
        changed = copy.deepcopy(state)
        change(changed["serial"]["pool"]["rollouts"][0])
        with pytest.raises(CheckpointError, match="is not what this program saves"):
            restored(load(written(tmp_path, changed, contents)), blueprint)

    def of_game(action):
        return lambda own: next(game for game in own["env"]["actions"] if game).append(action)

    for nonsense in (7, [0.0] * (width + 1), [math.nan] * width, ["x"] * width, []):
        refused(of_game(nonsense))
    if env != REACH:  # has choices
        refused(of_game([99] * width))
        refused(of_game([0.5] * width))
    refused(lambda own: own.update(last_action=own["last_action"][:, :-1]))
    refused(lambda own: own.update(last_action=own["last_action"].astype(np.float64)))
