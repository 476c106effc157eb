from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from ritornello.analysis import films
from ritornello.analysis.playing import load_agent, load_player, play, play_many
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


SOUND = {"env": "A", "seed": 0, "action_names": ["LEFT", "NOOP"], "actions": [1, 0, 0]}


def test_recorded_actions_are_told_apart_by_name(tmp_path: Path) -> None:
    agent = load_agent(PONG)
    path = tmp_path / "actions.json"
    path.write_text(json.dumps(SOUND))
    assert films._for_agent(films._read_actions(path), agent) == [0, 3, 3]
    with pytest.raises(ConfigError, match="uses UP"):
        films._for_agent({**SOUND, "action_names": ["UP", "NOOP"]}, agent)


@pytest.mark.parametrize(
    "wrong",
    [{"env": 5}, {"seed": True}, {"action_names": 7}, {"actions": [2]}, {"actions": [0.5]}],
)
def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    path = tmp_path / "actions.json"
    path.write_text(json.dumps({**SOUND, **wrong}))
    with pytest.raises(ConfigError, match="no list of actions"):
        films._read_actions(path)
