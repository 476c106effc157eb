"""Saved states: what this program saves is gone on from, and all else is refused in one message."""

import copy
import math
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ritornello.agent.learning.feed import Feed
from ritornello.agent.learning.scorer import Scorer
from ritornello.agent.pools.serial_pool import SerialPool
from ritornello.agent.run.checks import check_session
from ritornello.agent.run.experience import Moment, Serial
from ritornello.agent.run.tally import Tally
from ritornello.agent.stored.checkpoint import load
from ritornello.agent.stored.checkpoint_file import write_tree
from ritornello.agent.stored.checkpoint_tree import encode
from ritornello.agent.stored.checkpoint_writer import CheckpointWriter
from ritornello.agent.stored.model_file import check_weights
from ritornello.core.errors import CheckpointError, ConfigError
from ritornello.core.saved_state import restoring, within
from tests.agent.runs import BOTH_GAMES, make_blueprint, saved_state
from tests.agent.test_rollout import make_board
from tests.fuzz.strategies import changed, damaged_tree, honoured_or_refused


class Saved(NamedTuple):
    """What one save writes, as trees."""

    state: dict[str, Any]
    contents: dict[str, Any]

    def __repr__(self):  # a failing example is shown with its arguments
        return "Saved(...)"


EVERY_BUFFER = [
    {"type": "queue", "capacity": 6, "sample_ratio": 0.25},
    {"type": "standard", "capacity": 10, "sample_ratio": 0.25},
    {"type": "attentive", "capacity": 8, "sample_ratio": 0.25},
    {"type": "elite", "capacity": 8, "sample_ratio": 0.125},
    {"type": "prioritised", "capacity": 8, "sample_ratio": 0.125},
]


def blueprint_of_everything(**values):
    """Two games, memory, every kind of buffer, and games that can be put back where they were."""
    return make_blueprint(
        BOTH_GAMES, reproducible=True, worker_count=2, envs_per_worker=2, use_lstm=True,
        lstm_size=4, batch_size=8, training_fill_in_factor=0.01, replay_parameters=EVERY_BUFFER,
        **values,
    )  # fmt: skip


@contextmanager
def parts(blueprint):
    """What a checkpoint is restored into."""
    learner, spec = blueprint.learner(), blueprint.env_spec
    board = make_board(blueprint)
    tally = Tally(spec.action_repeat, 5, spec.tasks)
    feed = Feed(blueprint.schema, torch.device("cpu"))
    scorer = Scorer(
        blueprint.acting_model()[0], blueprint.acting_weights, board, blueprint.schema,
        torch.device("cpu"),
    )  # fmt: skip
    pool = SerialPool(blueprint.workers(), board)
    experience = Serial(pool, blueprint.replay(), feed, scorer.evaluate)
    try:
        yield learner, tally, experience
    finally:
        experience.close()
        board.close()


@pytest.fixture(scope="module")
def blueprint():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ritornello.wrappers.trusted_modules._trusted", {"tests.fakes"})
        return blueprint_of_everything(op_mode="train_w_load", load_model_url="here")


@pytest.fixture(scope="module")
def saved(blueprint):
    """The state of a run that has played and learned a little, and the contents of its buffers."""
    with pytest.MonkeyPatch.context() as patch, parts(blueprint) as (learner, tally, experience):
        patch.setattr("ritornello.wrappers.trusted_modules._trusted", {"tests.fakes"})
        # Every parameter has had a gradient, as after an update.
        for parameter in learner.model.parameters():
            parameter.grad = torch.ones_like(parameter)
        learner.optimiser.step()
        experience.start()
        for _ in range(60):  # unrolls in every buffer, and a few batches
            experience.next_batch()
            for report in experience.reports():
                tally.book_block(report.stats)
                for episode in report.episodes:
                    tally.book_game(episode)
        state = saved_state(blueprint, learner, tally=tally.state_dict(), **experience.state_dict())
        return Saved(
            copy.deepcopy(state), copy.deepcopy(experience.replay.state_dict(contents=True))
        )


def restored(checkpoint, blueprint):
    """Go on from a checkpoint as a session does: every check, every loader, a few steps."""
    checkpoint.check_spec(blueprint.env_spec)
    check_weights(checkpoint, blueprint.learner().model)
    checkpoint = check_session(checkpoint, blueprint)
    contents = checkpoint.load_replay()
    with parts(blueprint) as (learner, tally, experience):
        with restoring("the run"):
            with within("learner"):
                learner.load_state_dict(checkpoint.state["learner"])
            with within("tally"):
                tally.load_state_dict(checkpoint.state["tally"])
            experience.load_state_dict(checkpoint.state, contents)
        experience.start()
        experience.advance(Moment(update=1))
        for _ in range(3):
            experience.next_batch()


def written(folder, state, contents):
    """Write a state as a stranger can: with right checksums, whatever it holds."""
    path = folder / "update_000000001.pt"
    write_tree(path, encode({"has_replay": True, **state}))
    write_tree(path.with_suffix(".replay"), encode(contents))
    return path


def test_what_this_program_saves_goes_through(tmp_path, blueprint, saved):
    state, contents = saved
    path = CheckpointWriter(tmp_path).save(state, updates=1, agent_steps=1, replay=contents)
    restored(load(path), blueprint)


STRANGE = [
    None, True, -1, 0, 1, 2**40, 2**70, -(2**70), 0.5, math.nan, math.inf, "", "x" * 300, "lz4",
    "\x1b[2J", [], {}, (), [None], {"a": 1}, {0: 0}, [[1, 2], [3]], b"\xff" * 9,
    np.zeros(0, np.int64), np.arange(3), np.zeros((2, 2), np.float32), np.ones(7, np.uint8),
    np.array(5), torch.zeros(3), torch.ones(2, 2, dtype=torch.int64), torch.tensor(math.nan),
    torch.zeros(0), torch.zeros(3, dtype=torch.uint8),
]  # fmt: skip


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_changed_state_is_gone_on_from_or_refused_with_a_message(
    data, tmp_path, blueprint, saved
):
    trees = data.draw(damaged_tree(saved._asdict(), st.sampled_from(STRANGE), "payloads"))
    state, contents = trees.get("state"), trees.get("contents")
    assume(isinstance(state, dict))
    with honoured_or_refused():
        restored(load(written(tmp_path, state, contents)), blueprint)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("replay",), torch.zeros(3), r"\['replay'\].*expected dict, got Tensor"),
        (("flags",), {1: 2}, r"\['flags'\]"),
        (("learner",), True, r"\['learner'\].*expected dict, got bool"),
        (("learner", "model"), {"extra": "text"}, r"\['model'\]\['extra'\].*expected Tensor"),
        (("learner", "optimiser"), torch.zeros(3), r"\['learner'\]\['optimiser'\]"),
        (("tally", "games"), np.arange(3), r"\['tally'\]\['games'\]"),
        (("serial",), torch.zeros(3), r"\['serial'\]"),
        (("learner", "optimiser", "state", 0, "step"), None, r"\['optimiser'\]\['state'\]\[0\]"),
        (("learner", "optimiser", "state", 0, "exp_avg"), torch.ones(9), r"\['exp_avg'\]"),
        (("tally", "updates"), -1, r"\['tally'\]\['updates'\].*got -1"),
        (("tally", "games", "tasks", 1, "window"), "x", r"\['tasks'\]\[1\]\['window'\]"),
        (("tally", "steps_of_games"), [1.0], "the steps of each game"),
        (("serial", "pool", "turn"), 7, "a turn below 2"),
        (("serial", "pool", "rollouts", 0, "first"), np.zeros(9, np.uint8), r"\['first'\]"),
        (("serial", "pool", "rollouts", 1, "last_action"), np.full(2, 99), r"\['last_action'\]"),
        (
            ("serial", "pool", "rollouts", 1, "env", "parts", 0, "actions", 0),
            [99],
            r"\['actions'\]",
        ),
        (("serial", "pool", "rollouts", 1, "actor", "state"), torch.ones(2, 3), r"\['actor'\]"),
        (("serial", "waiting"), [3], r"\['waiting'\]\[0\]"),
        (("env_spec", "action_meanings"), [], r"\['action_meanings'\]"),
        (("flags", "optimizer"), np.zeros(3), r"\['flags'\]"),
        (("contents", "mixer", "rng", "bit_generator"), "MT19937", r"\['mixer'\]\['rng'\]"),
        (("contents", "mixer", "share"), [3, 2], "share of replay"),
        (("contents", "mixer", "quotas", "carry"), [10**9, 0, -(10**9)] * 3, "less than a batch"),
        (("contents", "mixer", "wanted"), [9] * 9, r"\['wanted'\]"),
        (("contents", "counters", "next_id"), 0, "a number"),
        (("contents", "contents", "items", "codecs", 0), "zip", r"\['items'\]|replay codec"),
        (("contents", "contents", "items", "payloads", 0), np.zeros(9, np.uint8), "bytes"),
        (("contents", "contents", "buffers", 1, "ids"), np.arange(900, 903), r"\['buffers'\]\[1\]"),
        (("contents", "contents", "newest", 0), [0, 0, 10**6], r"\['newest'\]"),
        (("contents", "contents", "collected"), [], "for each buffer"),
        (("contents", "contents", "buffers", 7, "priorities"), np.ones(99), r"\['priorities'\]"),
        (("contents", "contents", "buffers", 7, "priorities"), np.full(4, np.nan), "above 0"),
        (("contents", "contents", "buffers", 7, "highest_priority"), math.nan, "finite number"),
    ],
)
def test_the_message_names_the_place(tmp_path, blueprint, saved, path, value, told):
    trees = saved._asdict()
    tree, *rest = path if path[0] == "contents" else ("state", *path)
    trees[tree] = changed(trees[tree], tuple(rest), lambda _: value)
    file = written(tmp_path, trees["state"], trees["contents"])
    with pytest.raises((CheckpointError, ConfigError), match=told) as refused:
        restored(load(file), blueprint)
    is_of_contents = isinstance(refused.value, CheckpointError) and tree == "contents"
    assert not is_of_contents or "--load_replay=False" in str(refused.value)


def test_a_file_with_weights_alone_can_be_tested_but_not_resumed(tmp_path, blueprint, saved):
    state = {name: saved[0][name] for name in ("flags", "env_spec", "learner", "tally")}
    path = CheckpointWriter(tmp_path).save(state, updates=1, agent_steps=1)
    with pytest.raises(CheckpointError, match="there is nothing to resume"):
        check_session(load(path), blueprint)
