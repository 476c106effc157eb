import numpy as np
import pytest
import torch

from ritornello.agent.acting.acting_model import FlatWeights
from ritornello.agent.acting.worker import WorkerBody
from ritornello.agent.learning.scorer import Scorer
from ritornello.agent.models.factory import ModelConfig, make_model
from ritornello.core.spec import EnvSpec
from ritornello.core.unroll import UnrollSchema
from ritornello.transport.weights import WeightBoard
from tests.agent.runs import make_blueprint
from tests.agent.test_rollout import EXTRAS, LSTM, make_board

ELITE = [
    {"type": "queue", "capacity": 4, "sample_ratio": 0.5},
    {"type": "elite", "capacity": 40, "sample_ratio": 0.5},
]


@pytest.mark.parametrize(
    "flags",
    [{}, LSTM, pytest.param(EXTRAS, marks=pytest.mark.slow)],
    ids=["plain", "memory", "extra inputs"],
)
def test_features_and_queries_are_those_of_the_newest_weights(flags):
    blueprint = make_blueprint(
        "PongNoFrameskip-v4", replay_parameters=ELITE, r_f_steps=8, max_episode_frames=160,
        frame_scale_resolution=(42, 42), model="resnet", **flags,
    )  # fmt: skip
    board, learner = make_board(blueprint), blueprint.learner()
    body = WorkerBody(blueprint.workers()[0], board)
    records = []
    for _ in range(6):
        block = blueprint.schema.allocate(3)
        body.collect(block)
        records += list(block)
    body.close()
    model, _ = blueprint.acting_model()
    scorer = Scorer(model, blueprint.acting_weights, board, blueprint.schema, torch.device("cpu"))

    now = scorer.evaluate(records, np.arange(8))
    assert now.queries is None
    assert now.features.shape == (18, 8, 16)
    assert any(blueprint.schema.unroll(r).first[1:8].any() for r in records)  # resets inside
    for record, features, params in zip(records, now.features, now.params, strict=True):
        unroll = blueprint.schema.unroll(record)
        np.testing.assert_allclose(features, unroll.features, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(params, unroll.behaviour_params, atol=1e-5)

    rows = np.array([1, 4])
    some = scorer.evaluate(records[:3], rows, records[3:])
    assert some.features.shape[:2] == (3, 2)
    every = scorer.evaluate(records, rows)
    np.testing.assert_allclose(some.queries, every.features[3:, -1], rtol=1e-4, atol=1e-4)

    with torch.no_grad():
        for parameter in learner.model.parameters():
            parameter.add_(0.05)
    with board.write(1) as block:
        blueprint.acting_weights.pack(learner.model, block)
    assert not np.allclose(now.features, scorer.evaluate(records, np.arange(8)).features)


def test_the_unrolls_of_each_game_are_seen_through_its_own_statistics():
    """Of a dark game and a bright one, with pixels normalised for each: nothing has moved."""
    spec = EnvSpec("Dark-v0,Bright-v0", (1, 42, 42), "uint8", 1, ("0", "1", "2"), 1)
    config = ModelConfig(name="resnet", feature_count=16)
    learner = make_model(config, spec)
    draw = torch.Generator().manual_seed(0)
    ranges = ((0, 60), (100, 256))
    for game, (low, high) in enumerate(ranges):
        seen = torch.randint(low, high, (200, 1, 42, 42), dtype=torch.uint8, generator=draw)
        learner.observe(seen, torch.full((200,), game))
    schema = UnrollSchema(spec, 4, 16, 0)
    records = schema.allocate(2)
    records[...] = 0
    unrolls = schema.unroll(records)
    unrolls.task_id[...] = [0, 1]
    for game, (low, high) in enumerate(ranges):
        played = torch.randint(low, high, (5, 1, 42, 42), dtype=torch.uint8, generator=draw)
        unrolls.frames[game] = played.numpy()
    with torch.no_grad():
        games = torch.arange(2).repeat_interleave(5)
        rows = torch.from_numpy(unrolls.frames.reshape(10, 1, 42, 42))
        expected = learner.torso(rows, games).unflatten(0, (2, 5)).numpy()
    weights = FlatWeights(learner)
    board = WeightBoard(weights.nbytes)
    with board.write(0) as block:
        weights.pack(learner, block)
    cpu = torch.device("cpu")
    scorer = Scorer(make_model(config, spec), weights, board, schema, cpu)
    now = scorer.evaluate(list(records), np.arange(4), list(records))
    np.testing.assert_allclose(now.features, expected[:, :4], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(now.queries, expected[:, 3], rtol=1e-3, atol=1e-3)
