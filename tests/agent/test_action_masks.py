"""Agents whose environments forbid actions: who acts, what is stored, what is learned."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ritornello import load_agent, train
from ritornello.agent.algorithms.impact import Impact, ImpactConfig
from ritornello.agent.algorithms.impala import Impala
from ritornello.agent.distributions import FORBIDDEN
from ritornello.agent.learning.scorer import Scorer
from ritornello.core.errors import ShapeError
from tests.agent.builders import ANY_ACTIONS, make_batch, make_small_model, make_spec
from tests.agent.learners import CONFIG, RAW
from tests.agent.runs import make_blueprint
from tests.agent.test_inference_server import make_served
from tests.agent.test_rollout import LSTM, check_recomputed, collect_records, make_board
from tests.library.runs import TINY
from tests.locked import KEYS, LOCKS

INFO, DICT, METHOD, NOTHING = (
    f"tests.locked:tests/Locks-{way}-v0" for way in ("info", "dict", "method", "nothing")
)
VAULT = "tests.locked:tests/Vault-v0"


def is_allowed(actions, mask, action):
    """Whether each choice of stored actions [..., *shape] is in masks [..., P]."""
    found, param = [], 0
    chosen = iter(actions.choices_in(action))
    for part in actions.parts:
        if part.kind == "choice":
            own = mask[..., param : param + part.count]
            taken = next(chosen)[0].astype(np.int64)
            found.append(np.take_along_axis(own, taken[..., None], -1)[..., 0])
        param += part.param_count
    return np.stack(found)


@pytest.mark.parametrize("env", [INFO, DICT, METHOD, VAULT], ids=lambda e: e.split("/")[1])
@pytest.mark.parametrize("served", [False, True], ids=["workers act", "a server acts"])
def test_only_what_is_allowed_is_done_and_the_learner_finds_its_probabilities(env, served):
    flags = {"env": env, **LSTM, "use_last_action": True}
    if served:
        with make_served(**flags) as running:
            blueprint, blocks = running.blueprint, running.collect(6)[0]
    else:
        blueprint = make_blueprint(**flags)
        blocks, _, _ = collect_records(blueprint, 6)
    assert check_recomputed(blueprint, blocks) > 5
    spec, schema = blueprint.env_spec, blueprint.schema
    for unroll in (schema.unroll(record) for block in blocks for record in block):
        mask = unroll.action_mask[:-1]
        assert is_allowed(spec.actions, mask, unroll.action).all()
        assert ((unroll.behaviour_params == FORBIDDEN) == ~mask).all()
        over = ~unroll.first[:-1] & unroll.first[1:]  # the reset rows: nothing is chosen there
        # Where time cuts a game, as the vault's, its last mask stays.
        assert (mask[over].all(-1) == (env != VAULT)).all()
        assert not mask[~over].all(-1).any()


def test_the_three_ways_to_say_it_give_the_same_unrolls():
    blocks = [collect_records(make_blueprint(env=env), 4)[0] for env in (INFO, DICT, METHOD)]
    for others in blocks[1:]:
        assert np.array_equal(blocks[0], others)


def test_where_everything_is_allowed_unrolls_hold_no_mask():
    schema = make_blueprint(env=NOTHING).schema
    assert "action_mask" not in schema.fields
    assert make_blueprint(env=INFO).schema.nbytes > schema.nbytes


def algorithm(name, model):
    extra = {"trust_region": "kl_pi_mu", "trust_threshold": 1.0, "policy_cloning_cost": 0.3}
    if name != "impact":
        made = Impala(replace(CONFIG, **(extra if name == "laser and clear" else {})))
    else:
        made = Impact(ImpactConfig(**RAW, target_period=3))
    made.check(model)
    return made


@pytest.mark.parametrize("name", ["impala", "laser and clear", "impact"])
@pytest.mark.parametrize("popart", [False, True], ids=["", "popart"])
def test_what_is_never_allowed_has_no_gradient_and_everything_is_finite(name, popart):
    spec = make_spec(actions=ANY_ACTIONS["several choices"], masked=True)
    batch = make_batch(spec)
    never = torch.tensor([1, 4])  # of choices of 3 and 2
    batch.action_mask[..., never] = False
    batch.action_mask[..., [0, 3]] = True
    batch.action[...] = 0
    model = make_small_model(spec, popart=popart)
    loss = algorithm(name, model).loss(model, batch)
    loss.total.backward()
    assert loss.total.isfinite()
    rows = model.policy_head.weight.grad.abs().sum(1)
    assert rows.isfinite().all()
    assert not rows[never].any()
    assert rows[[0, 2]].all()
    for metric, value in loss.metrics.items():
        assert value.isfinite(), metric


@pytest.mark.parametrize("name", ["impala", "laser and clear"])
@pytest.mark.parametrize("masked", [False, True], ids=["", "masked"])
def test_a_gpu_can_record_a_loss_whatever_is_allowed(name, masked, refuse_questions):
    spec = make_spec(actions=ANY_ACTIONS["several choices"], masked=masked)
    batch, model = make_batch(spec), make_small_model(spec)
    algorithm_of_it = algorithm(name, model)
    refuse_questions()
    algorithm_of_it.loss(model, batch)


def test_the_share_of_entropy_is_of_what_is_allowed():
    spec = make_spec(actions=4, masked=True)
    batch, model = make_batch(spec), make_small_model(spec)
    with torch.no_grad():
        model.policy_head.weight.zero_()
    batch.action_mask[...] = torch.tensor([True, False, True, False])
    metrics = Impala(CONFIG).loss(model, batch).metrics
    assert metrics["policy/entropy"].item() == pytest.approx(np.log(2))
    assert metrics["policy/entropy_fraction"].item() == pytest.approx(1)


def test_replay_compares_the_policies_over_what_is_allowed():
    """Elite replay by policies: the same weights are at distance 0 from what acted."""
    blueprint = make_blueprint(env=INFO)
    blocks, _, _ = collect_records(blueprint, 3)
    model, _ = blueprint.acting_model()
    board = make_board(blueprint)
    scorer = Scorer(model, blueprint.acting_weights, board, blueprint.schema, torch.device("cpu"))
    records = list(blocks[-1])
    found = scorer.evaluate(records, np.arange(5)).params
    stored = np.stack([blueprint.schema.unroll(record).behaviour_params for record in records])
    np.testing.assert_allclose(found, stored, rtol=0, atol=1e-5)


@pytest.mark.parametrize("greedy", [False, True])
def test_a_loaded_agent_does_what_is_allowed_and_asks_for_the_mask(tmp_path, greedy):
    folder = train(**{**TINY, "env": DICT}, results_dir=tmp_path).folder
    agent = load_agent(folder, greedy=greedy, env=DICT)
    assert agent.spec.has_action_mask
    assert agent.spec.frame_shape == (LOCKS + 1,)
    env = agent.make_env()
    observation, info = env.reset(seed=1)
    with pytest.raises(ShapeError, match=rf"action_mask is None, expected bool of shape \({KEYS},"):
        agent.act(observation)
    with pytest.raises(ShapeError, match="action_mask allows nothing"):
        agent.act(observation, action_mask=np.zeros(KEYS, bool))
    for step in range(LOCKS):
        action = agent.act(observation, action_mask=info["action_mask"])
        observation, _, terminated, _, info = env.step(action)
        assert terminated == (step == LOCKS - 1), "a key that does not fit was taken"
