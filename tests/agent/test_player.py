import types

import numpy as np
import torch

from ritornello.agent.acting.actor import Actor, LocalActor
from ritornello.agent.acting.lane import Lane
from ritornello.agent.acting.rollout import Rollout
from ritornello.agent.testing.player import Player, env_seeds, game_config
from ritornello.core.rng import child_seed
from ritornello.wrappers.registry import make_env_vector
from tests.agent.runs import COUNTING, make_blueprint


def test_a_player_plays_as_a_rollout_does():
    blueprint = make_blueprint(use_lstm=True)
    model = blueprint.learner().model.eval()
    config = game_config(blueprint, COUNTING)

    def env():
        return make_env_vector(config, 3, env_seeds(7, 3))

    acting = types.SimpleNamespace(version=0)
    actor = Actor(model, child_seed(7, "test actor", 0), with_features=False)
    group = Lane(env(), LocalActor(actor, acting), np.zeros(3, np.int64))
    rollout = Rollout([group], blueprint.schema, worker_id=0)
    player = Player(model, env(), [0, 0, 0], seed=7)
    for _ in range(8):
        block = blueprint.schema.allocate(3)
        rollout.collect(block)
        unroll = blueprint.schema.unroll(block)
        for t in range(blueprint.schema.unroll_length):
            step = player.step()
            assert step.action.tolist() == unroll.action[:, t].tolist()
            assert step.reward.tolist() == unroll.reward[:, t].tolist()
            assert player.observation.first.tolist() == unroll.first[:, t + 1].tolist()


def test_an_action_may_be_given_and_the_model_is_asked_all_the_same():
    blueprint = make_blueprint()
    model = blueprint.learner().model.eval()
    env = make_env_vector(game_config(blueprint, COUNTING), 2, env_seeds(0, 2))
    player = Player(model, env, [0, 0], keep_inputs=True)
    first, second = player.step(np.array([1, 0])), player.step(np.array([0, 1]))
    assert first.action.tolist() == [1, 0]
    assert second.inputs.last_action.tolist() == [1, 0]
    with torch.inference_mode():
        _, heads, _ = model(first.inputs, first.state)
    assert torch.equal(heads.params, first.heads.params), "the inputs outlived the next step"
