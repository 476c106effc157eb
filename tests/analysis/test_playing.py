from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from ritornello.analysis.playing import load_agent, load_player, play, play_many
from ritornello.analysis.playing_recording import Recording
from ritornello.core.errors import ConfigError
from tests.analysis.agents import write_agent
from tests.house import ROOT

PONG = str(ROOT / "models" / "pong")


def test_a_moment_shows_the_game_and_what_the_model_thinks_of_it() -> None:
    agent = load_agent(PONG)
    moments = list(play(agent, seed=3, steps=30))
    assert [moment.first for moment in moments] == [True, *[False] * 29]
    for moment in moments:
        assert moment.frame.shape == (210, 160, 3)
        assert moment.frame.dtype == np.uint8
        heads, _ = agent.model(moment.inputs, moment.state)
        assert torch.equal(heads.params, moment.heads.params)
        assert torch.equal(agent.model.torso(moment.inputs.obs), moment.features)
    # The stack ends with what the picture shows, and was not overwritten by later steps.
    newest = [moment.inputs.obs[0, -1].clone() for moment in moments]
    for now, before in zip(moments[1:], newest, strict=False):
        assert torch.equal(now.inputs.obs[0, -2], before)
    assert not torch.equal(newest[-1], newest[-2])
    assert agent.agent_steps == 451882
    assert agent.label == "pong"


def test_equal_seeds_play_equal_games_and_others_do_not() -> None:
    agent = load_agent(PONG)
    one, same, other = ([m.frame for m in play(agent, seed=seed, steps=40)] for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_a_recording_shows_another_agent_the_same_states(tmp_path: Path) -> None:
    trained = load_agent(PONG)
    stranger = load_agent(str(write_agent(tmp_path / "new", env="PongNoFrameskip-v4")))
    watched = list(play(trained, seed=4, steps=30))
    spec = trained.env_spec
    actions = tuple(moment.action for moment in watched)
    Recording(spec.env_id, 4, spec.action_meanings, actions).save(tmp_path / "actions.json")
    recording = Recording.load(tmp_path / "actions.json")
    again = list(play(stranger, seed=recording.seed, actions=recording.for_agent(stranger)))
    assert len(again) == 30
    assert all(torch.equal(a.inputs.obs, b.inputs.obs) for a, b in zip(watched, again, strict=True))
    assert [moment.action for moment in again] == list(actions)
    assert not torch.allclose(watched[9].heads.params, again[9].heads.params)


def test_recorded_actions_are_told_apart_by_name(tmp_path: Path) -> None:
    agent = load_agent(PONG)
    recording = Recording(agent.env_spec.env_id, 0, ("LEFT", "NOOP"), (1, 0, 0))
    assert recording.for_agent(agent) == [0, 3, 3]
    with pytest.raises(ConfigError, match="uses UP"):
        Recording(agent.env_spec.env_id, 0, ("UP", "NOOP"), (0, 1)).for_agent(agent)
    # A name that is never used does no harm.
    assert Recording(agent.env_spec.env_id, 0, ("UP", "NOOP"), (1,)).for_agent(agent) == [0]


RECORDED = '{"env": "%s", "seed": %s, "action_names": ["%s"], "actions": [%s]}'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "no list of actions"),
        (json.dumps({"env": "A", "seed": 0, "actions": [0]}), "action_names"),
        (
            json.dumps({"env": "A", "seed": 0, "action_names": ["NOOP"], "actions": [1]}),
            "names only for 0 to 0",
        ),
        (RECORDED % ("A", "1e999", "NOOP", "0"), "no list of actions.*seed is inf"),
        (RECORDED % ("A", "true", "NOOP", "0"), "no list of actions.*seed is True"),
        (RECORDED % ("A", "0", "NOOP", "1e999"), "no list of actions.*actions is .inf"),
        (RECORDED % ("A", "0", "NOOP", "0.5"), "no list of actions.*actions is .0.5"),
        (RECORDED.replace('"%s"', "%s") % ("5", "0", '"a"', "0"), "no list of actions.*env is 5"),
        (RECORDED.replace('["%s"]', "%s") % ("A", "0", "7", "0"), "action_names is 7"),
        ("[" * 100_000, "nested too deeply"),
        ('{"env": "A", "env": "B"}', "'env' twice"),
    ],
    ids=range(11),
)
def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "actions.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        Recording.load(path)


def test_a_pipe_is_no_recording(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="not a regular file"):
        Recording.load(tmp_path / "pipe")


def test_a_recurrent_agent_takes_its_state_and_its_last_step_along(tmp_path: Path) -> None:
    folder = write_agent(tmp_path / "lstm", "--use_lstm=True", "--lstm_size=8")
    agent = load_agent(str(folder))
    steps = list(play_many(agent, 2, seed=1, steps=60))
    assert agent.model.state_count == 16
    assert any(step.episodes for step in steps), "no game ended: the test would see no reset"
    resets = 0
    for before, after in itertools.pairwise(steps):
        _, state = agent.model(before.inputs, before.state)
        assert torch.equal(state, after.state)
        assert after.inputs.last_action.tolist() == before.action.tolist()
        assert after.inputs.last_reward.tolist() == before.reward.tolist()
        resets += int(after.inputs.first.sum())
    assert resets >= 1
    assert len({step.state.numpy().tobytes() for step in steps}) == len(steps)


def test_a_game_ends_with_a_moment_of_its_last_picture(tmp_path: Path) -> None:
    agent = load_agent(str(write_agent(tmp_path / "agent")))
    moments = list(play(agent, seed=0, games=2))
    games = [[m for m in moments if m.game == game] for game in (0, 1)]
    assert sum(len(game) for game in games) == len(moments)
    for game in games:
        assert [m.first for m in game] == [True, *[False] * (len(game) - 1)]
        # CartPole pays 1 per step, and nothing for the moment after the last one.
        assert [m.reward for m in game] == [*[1.0] * (len(game) - 1), 0.0]
        assert game[-1].episode_return == len(game) - 1
        assert game[0].frame.ndim == 3


def test_many_environments_play_as_many_games_as_asked(tmp_path: Path) -> None:
    agent = load_agent(str(write_agent(tmp_path / "agent")))
    steps = list(play_many(agent, 3, steps=5))
    assert len(steps) == 5
    assert steps[0].action.shape == (3,)
    assert steps[0].features.shape == (3, agent.model.feature_count)
    assert not torch.equal(steps[0].inputs.obs[0], steps[0].inputs.obs[1])
    with pytest.raises(ConfigError, match="got 2 tasks for 3 environments"):
        next(play_many(agent, 3, tasks=[0, 0]))


def test_an_agent_of_several_games_plays_the_one_that_is_asked_for(tmp_path: Path) -> None:
    games = "PongNoFrameskip-v4,BreakoutNoFrameskip-v4"
    folder = str(write_agent(tmp_path / "two", env=games))
    agent, task = load_player(folder, "BreakoutNoFrameskip-v4")
    assert task == 1
    assert load_player(folder)[1] == 0
    with pytest.raises(ConfigError, match="plays PongNoFrameskip-v4, Breakout"):
        agent.task_of("CarnivalNoFrameskip-v4")
    (pong, breakout) = (next(iter(play(agent, task=t, steps=1))) for t in (0, 1))
    assert pong.inputs.task_id is not None
    assert breakout.inputs.task_id is not None
    assert (pong.inputs.task_id.item(), breakout.inputs.task_id.item()) == (0, 1)
    assert not np.array_equal(pong.frame, breakout.frame)
    # The fast environments show the same two games.
    step = next(play_many(agent, 2, tasks=[0, 1]))
    assert step.inputs.task_id is not None
    assert step.inputs.task_id.tolist() == [0, 1]
    assert not torch.equal(step.inputs.obs[0], step.inputs.obs[1])


def test_an_agent_may_be_shown_a_game_that_it_never_saw() -> None:
    agent, task = load_player(PONG, "BreakoutNoFrameskip-v4")
    assert (task, agent.games) == (0, ("BreakoutNoFrameskip-v4",))
    assert agent.env_spec.tasks == ("PongNoFrameskip-v4",)
    (breakout,), (pong,) = (list(play(a, steps=1)) for a in (agent, load_agent(PONG)))
    assert not np.array_equal(breakout.frame, pong.frame)
    (step,) = play_many(agent, 2, steps=1)
    # Both backends show Breakout, apart from how far each game is by chance.
    row = breakout.inputs.obs[0, -1].float(), step.inputs.obs[0, -1].float()
    assert (row[0] - row[1]).abs().mean() < 5 < (row[0] - pong.inputs.obs[0, -1]).abs().mean()
    with pytest.raises(ConfigError, match="NoSuchGame"):
        load_player(PONG, "NoSuchGame-v4")
