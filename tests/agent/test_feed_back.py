"""Importance weights on their way to the loss, and what was learned on its way back to replay."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from ritornello.agent.algorithms.base import ImpalaConfig
from ritornello.agent.algorithms.impala import Impala, Loss
from ritornello.agent.learning.bad_updates import NonFiniteUpdate
from ritornello.agent.learning.feed import Feed
from ritornello.agent.pools.serial_pool import SerialPool
from ritornello.agent.run.experience import Experience
from ritornello.agent.run.threaded import Threaded
from ritornello.core.errors import ConfigError
from tests.agent.builders import heads_of, make_batch, make_small_model
from tests.agent.learners import CONFIG, make_learner
from tests.agent.runs import make_blueprint
from tests.agent.test_rollout import make_board
from tests.agent.test_threaded import HANGS_S
from tests.reference.vtrace_loops import vtrace_loops
from tests.replay.builders import check_valid

PLAIN = replace(CONFIG, entropy_cost=ImpalaConfig().entropy_cost)
EVERY_TERM = replace(PLAIN, policy_cloning_cost=0.3, value_cloning_cost=0.2)
BUFFERS = [
    {"type": "queue", "capacity": 2, "sample_ratio": 0.5},
    {"type": "prioritised", "capacity": 20, "sample_ratio": 0.5},
]


def test_the_loss_of_each_unroll_counts_by_its_weight():
    """The twin: the unrolls one at a time, each with its own gradient, added up by hand."""
    model, batch = make_small_model(), make_batch()
    weights = [0.25, 1.0, 0.5, 0.125]
    expected = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    total = 0.0
    for column, weight in enumerate(weights):
        model.zero_grad()
        loss = Impala(EVERY_TERM).loss(model, batch.of_columns([column]))
        loss.total.backward()
        total += weight * loss.total.item()
        for name, parameter in model.named_parameters():
            expected[name] += weight * parameter.grad
    model.zero_grad()
    loss = Impala(EVERY_TERM).loss(model, replace(batch, weight=torch.tensor(weights)))
    loss.total.backward()
    assert loss.total.item() == pytest.approx(total, rel=1e-4)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-4, atol=1e-5)


def test_the_errors_equal_the_plain_loops_and_are_absent_where_nothing_is_learned():
    model, batch = make_small_model(), make_batch()
    config = replace(PLAIN, rho_bar=2.0, c_bar=0.7, lambda_=0.9)
    errors = Impala(config).loss(model, batch).errors
    assert errors.shape == (batch.steps, batch.size)
    assert not errors.requires_grad
    with torch.no_grad():
        heads = heads_of(model, batch)
    pi, mu = heads.params.softmax(-1), batch.behaviour_params.softmax(-1)
    resets = 0
    for b in range(batch.size):
        ratios, discounts = [], []
        for t in range(batch.steps):
            action, reset = batch.action[t, b], bool(batch.reset_row[t, b])
            ratios.append(0.0 if reset else (pi[t, b, action] / mu[t, b, action]).item())
            discounts.append(0.0 if reset or batch.terminated[t, b] else 0.99)
        values = heads.value[:, b].tolist()
        targets, _ = vtrace_loops(
            values, batch.reward[:, b].tolist(), discounts, ratios, 2.0, 0.7, 1.0, 0.9
        )
        for t in range(batch.steps):
            if batch.reset_row[t, b]:
                resets += 1
                assert errors[t, b].isnan()
            else:
                error = abs(targets[t] - values[t])
                assert errors[t, b].item() == pytest.approx(error, rel=1e-4, abs=1e-5)
    assert resets > 0


def test_steps_that_are_not_trusted_or_only_warm_the_memory_up_have_no_error():
    model, batch = make_small_model(), make_batch()
    config = replace(PLAIN, trust_region="kl_pi_mu", trust_threshold=1e-9)
    assert Impala(config).loss(model, batch).errors.isnan().all()
    model = make_small_model(use_lstm=True, lstm_size=4)
    batch = make_batch(state_count=model.state_count)
    errors = Impala(replace(PLAIN, burn_in_steps=2)).loss(model, batch).errors
    warm_up = torch.zeros(batch.steps, batch.size, dtype=torch.bool)
    warm_up[:2] = ~batch.is_online
    assert torch.equal(errors.isnan(), warm_up | batch.reset_row)


def test_the_learner_keeps_the_errors_of_its_last_update():
    learner, batch = make_learner(), make_batch()
    assert learner.errors is None
    learner.step(batch, 0.0)
    errors = learner.errors
    assert errors.shape == (batch.steps, batch.size)
    learner.step(make_batch(seed=1), 0.0)
    assert not torch.equal(learner.errors.nan_to_num(), errors.nan_to_num())
    kept = learner.errors
    with pytest.raises(NonFiniteUpdate):
        learner.step(make_batch(reward=torch.full((5, 4), torch.nan)), 0.0)
    assert learner.errors is kept  # that update was not made


class Recorder:
    """Replay, as far as feeding back goes."""

    def __init__(self, needs_outcomes):
        self.needs_outcomes = needs_outcomes
        self.calls = []

    def feed_back(self, ids, outcome):
        self.calls.append((ids, outcome))


def test_what_was_learned_goes_back_by_unroll_with_its_id():
    replay, batch = Recorder(True), make_batch(size=3, item=torch.tensor([7, 9, 8]))
    errors = torch.arange(15.0).reshape(5, 3)
    errors[2, 1] = torch.nan
    Experience(None, replay, None).feed_back(batch, errors)
    ((ids, outcome),) = replay.calls
    assert ids == [7, 9, 8]
    assert outcome.errors.tolist() == [[0, 3, 6, 9, 12], [1, 4, 0, 10, 13], [2, 5, 8, 11, 14]]
    assert outcome.learned.sum() == 14
    assert not outcome.learned[1, 2]


def test_an_algorithm_without_errors_cannot_serve_replay_by_errors():
    assert Loss(torch.tensor(0.0), {}).errors is None
    with pytest.raises(ConfigError, match="the algorithm reports none"):
        Experience(None, Recorder(True), None).feed_back(make_batch(), None)


def blueprint_with_priorities(**flags):
    return make_blueprint(replay_parameters=json.dumps(BUFFERS), batch_size=4, **flags)


def test_with_threads_what_was_learned_comes_back_while_others_insert_and_draw():
    blueprint = blueprint_with_priorities()
    learner, board = blueprint.learner(), make_board(blueprint)
    replay = blueprint.replay()
    feed = Feed(blueprint.schema, torch.device("cpu"))
    pool = SerialPool(blueprint.workers(), board)
    experience = Threaded(pool, replay, feed, cache_depth=2, cache_threads=2)
    experience.start()
    try:
        deadline = time.monotonic() + HANGS_S
        while learner.version < 30:
            assert time.monotonic() < deadline, experience.missing()
            batch = experience.next_batch()
            if batch is not None:
                learner.step(batch, 0.0)
                experience.feed_back(batch, learner.errors)
    finally:
        experience.quiesce()
        experience.close()
        board.close()
    (_, buffer) = replay.buffers
    check_valid(buffer)
    assert len(np.unique(buffer.state_dict()["priorities"])) > 5
