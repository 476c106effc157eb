"""A short training, overheard at the joints: what goes from part to part, and when."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from ritornello.agent.acting.worker import WorkerBody
from ritornello.agent.learning.learner import Learner
from ritornello.agent.run.experience import Serial
from ritornello.agent.run.run import Run
from ritornello.agent.run.trainer import Trainer
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.replay.manager import ReplayManager
from tests.agent.runs import Noted, make_blueprint
from tests.agent.test_rollout import make_board

STEPS = 600
BUFFERS = [
    {"type": "queue", "capacity": 4, "sample_ratio": 0.5},
    {"type": "prioritised", "capacity": 20, "sample_ratio": 0.5},
]


@dataclass
class Overheard:
    """What was said in a training."""

    trainer: Any = None
    steps: list = field(default_factory=list)  # (batch, progress, share of the steps done)
    moments: list = field(default_factory=list)  # (moment, share done, version on the board)
    samples: list = field(default_factory=list)  # (context, moment of that time)
    feedback: list = field(default_factory=list)  # (batch, errors, errors of the learner)


def listen(monkeypatch, heard):
    step, advance, feed_back = Learner.step, Serial.advance, Serial.feed_back
    sample = ReplayManager.sample

    def share():
        return min(1.0, heard.trainer._tally.agent_steps / STEPS)

    def spied_step(learner, batch, progress):
        heard.steps.append((batch, progress, share()))
        return step(learner, batch, progress)

    def spied_advance(experience, moment):
        heard.moments.append((moment, share(), heard.trainer._board.version))
        advance(experience, moment)

    def spied_sample(manager, context, timeout_s):
        heard.samples.append((context, heard.trainer._experience.moment))
        return sample(manager, context, timeout_s)

    def spied_feed_back(experience, batch, errors):
        heard.feedback.append((batch, errors, heard.trainer._learner.errors))
        feed_back(experience, batch, errors)

    monkeypatch.setattr(Learner, "step", spied_step)
    monkeypatch.setattr(Serial, "advance", spied_advance)
    monkeypatch.setattr(Serial, "feed_back", spied_feed_back)
    monkeypatch.setattr(ReplayManager, "sample", spied_sample)


def blueprint_of():
    return make_blueprint(
        "CartPole-v1", reproducible=True, environment_max_steps=STEPS, lr_scheduler_steps=STEPS,
        worker_count=2, replay_parameters=BUFFERS, training_fill_in_factor=0.2,
    )  # fmt: skip


@pytest.fixture(scope="module")
def heard(tmp_path_factory):
    heard = Overheard()
    folder = RunFolder.create(tmp_path_factory.mktemp("run"), "Test-v0")
    with pytest.MonkeyPatch.context() as monkeypatch:
        listen(monkeypatch, heard)
        heard.trainer = Trainer(Run(blueprint_of(), folder), Noted())
        heard.trainer.run()
    assert len(heard.steps) > 20
    return heard


def test_the_board_shows_the_weights_of_each_update_before_the_next_batch(heard):
    assert [moment.update for moment, _, _ in heard.moments] == [v for _, _, v in heard.moments]
    assert heard.moments[-1][0].update == len(heard.steps)
    published = np.zeros(heard.trainer._blueprint.acting_weights.nbytes, np.uint8)
    newest = published.copy()
    heard.trainer._board.read_if_newer(-1, published)
    heard.trainer._blueprint.acting_weights.pack(heard.trainer._learner.model, newest)
    assert np.array_equal(published, newest)


def test_those_who_act_take_the_newest_weights(heard):
    for update, (batch, _, _) in enumerate(heard.steps):
        # An unroll waits for its batch in the queue, and one batch is made of two blocks.
        assert (update - batch.version[batch.is_online]).max() <= 3
    assert max(batch.version.max() for batch, _, _ in heard.steps) > 0.8 * len(heard.steps)


def test_everything_that_is_annealed_follows_the_share_of_the_steps_that_is_done(heard):
    assert heard.steps[0][1] < 0.3
    assert heard.steps[-1][1] > 0.9
    assert [progress for _, progress, _ in heard.steps] == [done for _, _, done in heard.steps]
    assert [m.progress for m, _, _ in heard.moments] == [done for _, done, _ in heard.moments]
    for context, moment in heard.samples:
        assert (context.update, context.progress) == (moment.update, moment.progress)


def test_what_each_update_has_learned_goes_back_to_replay(heard):
    assert len(heard.feedback) == len(heard.steps)
    for (batch, _, _), (returned, errors, of_learner) in zip(
        heard.steps, heard.feedback, strict=True
    ):
        assert returned is batch
        assert errors is of_learner
        assert errors is not None
    buffer = heard.trainer._experience.replay.buffers[1]
    assert len(set(buffer.state_dict()["priorities"])) > len(buffer) / 2


def test_replayed_unrolls_weigh_less_than_new_ones(heard):
    weights = torch.cat([batch.weight[~batch.is_online] for batch, _, _ in heard.steps])
    assert weights.min() < 0.95
    assert all((batch.weight[batch.is_online] == 1).all() for batch, _, _ in heard.steps)


def test_no_two_environments_play_the_same_game_and_no_two_actors_draw_alike():
    """In two lives of each worker, one game after the other."""
    blueprint = blueprint_of()
    board = make_board(blueprint)
    begun, starts, streams = 0, set(), set()
    configs = [config for life in (0, 1) for config in blueprint.workers(life=life)]
    for config in configs:
        body = WorkerBody(config, board)
        streams.add(body.rollout.state_dict()["actor"]["generator"].numpy().tobytes())
        for _ in range(8):
            block = blueprint.schema.allocate(config.num_envs)
            body.collect(block)
            first = blueprint.schema.view(block, "first")
            frames = blueprint.schema.view(block, "frames")[:, -first.shape[1] :]
            starts |= {frame.tobytes() for frame in frames[first]}
        begun += sum(episode + 1 for episode in body.rollout.state_dict()["env"]["episodes"])
        body.close()
    assert begun > 2 * sum(config.num_envs for config in configs)
    assert len(starts) == begun
    assert len(streams) == len(configs)


@pytest.mark.parametrize(("factor", "held"), [("auto", 360), (0.2, 200)])
def test_a_run_of_many_environments_fills_more_of_replay_unless_told_how_much(factor, held):
    blueprint = make_blueprint(
        worker_count=4, envs_per_worker=30, training_fill_in_factor=factor,
        replay_parameters="queue:4:0.5,standard:1000:0.5",
    )  # fmt: skip
    assert [buffer.min_size for buffer in blueprint.replay().buffers] == [1, held]
    assert blueprint.flags.training_fill_in_factor == factor, "a resume elsewhere chooses again"
