import itertools
import json
import shutil

import numpy as np
import pytest
import torch

import ritornello
from ritornello.analysis import films
from ritornello.analysis.playing import load_agent, load_player, play, play_many
from ritornello.core.errors import ConfigError
from tests.analysis.agents import write_agent
from tests.house import ROOT

PONG = str(ROOT / "models" / "pong")


def test_a_moment_shows_the_game_and_what_the_model_thinks_of_it():
    agent = load_agent(PONG)
    moments = list(play(agent, seed=3, steps=30))
    assert [bool(moment.step.inputs.first) for moment in moments] == [True, *[False] * 29]
    for moment in moments:
        step = moment.step
        assert moment.frame.shape == (210, 160, 3)
        assert moment.frame.dtype == np.uint8
        _, heads, _ = agent.model(step.inputs, step.state)
        torch.testing.assert_close(heads.params, step.heads.params)
        torch.testing.assert_close(agent.model.torso(step.inputs.obs), step.features)
    # The stack ends with what the picture shows, and was not overwritten by later steps.
    newest = [moment.step.inputs.obs[0, -1].clone() for moment in moments]
    for now, before in zip(moments[1:], newest, strict=False):
        assert torch.equal(now.step.inputs.obs[0, -2], before)
    assert not torch.equal(newest[-1], newest[-2])
    same, other = (list(play(agent, seed=seed, steps=30))[-1].frame for seed in (3, 2))
    assert np.array_equal(same, moments[-1].frame)
    assert not np.array_equal(other, same)


def test_a_recurrent_agent_takes_its_state_and_its_last_step_along(tmp_path):
    folder = write_agent(tmp_path / "lstm", "--use_lstm=True", "--lstm_size=8")
    agent = load_agent(str(folder))
    steps = list(play_many(agent, 2, seed=1, steps=60))
    assert agent.model.state_count == 16
    assert any(step.episodes for step in steps), "no game ended: the test would see no reset"
    resets = 0
    for before, after in itertools.pairwise(steps):
        *_, state = agent.model(before.inputs, before.state)
        torch.testing.assert_close(state, after.state)
        assert after.inputs.last_action.tolist() == before.action.tolist()
        assert after.inputs.last_reward.tolist() == before.reward.tolist()
        resets += int(after.inputs.first.sum())
    assert resets >= 1
    assert len({step.state.numpy().tobytes() for step in steps}) == len(steps)


def test_games_are_played_with_one_thread_as_those_of_tests(tmp_path, monkeypatch):
    agent = load_agent(str(write_agent(tmp_path / "agent")))
    during: list[int] = []
    asked = agent.model.forward
    monkeypatch.setattr(
        agent.model, "forward", lambda *x: during.append(torch.get_num_threads()) or asked(*x)
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for played in (play(agent, steps=2), play_many(agent, 2, steps=2)):
            for _ in played:
                assert torch.get_num_threads() == 2, "what an analysis computes keeps its threads"
    finally:
        torch.set_num_threads(threads)
    assert during == [1] * 4


def test_an_agent_of_several_games_plays_the_one_that_is_asked_for(tmp_path):
    games = "PongNoFrameskip-v4,BreakoutNoFrameskip-v4"
    folder = str(write_agent(tmp_path / "two", env=games))
    agent, task = load_player(folder, "BreakoutNoFrameskip-v4")
    assert task == agent.task == 1
    assert ritornello.load_agent(folder, env="BreakoutNoFrameskip-v4")._task == 1
    assert load_player(folder)[1] == 0
    with pytest.raises(ConfigError, match="plays PongNoFrameskip-v4, Breakout"):
        agent.task_of("CarnivalNoFrameskip-v4")
    step = next(play_many(agent, 2, tasks=[0, 1]))
    assert step.inputs.task_id.tolist() == [0, 1]
    assert not torch.equal(step.inputs.obs[0], step.inputs.obs[1])


def test_an_agent_may_be_shown_a_game_that_it_never_saw():
    agent, task = load_player(PONG, "BreakoutNoFrameskip-v4")
    assert (task, agent.games) == (0, ("BreakoutNoFrameskip-v4",))
    assert agent.env_spec.tasks == ("PongNoFrameskip-v4",)
    (breakout,), (pong,) = (list(play(a, steps=1)) for a in (agent, load_agent(PONG)))
    assert not np.array_equal(breakout.frame, pong.frame)
    (step,) = play_many(agent, 2, steps=1)
    # Both backends show Breakout, apart from how far each game is by chance.
    shown, fast, other = (s.inputs.obs[0, -1].float() for s in (breakout.step, step, pong.step))
    assert (shown - fast).abs().mean() < 5 < (shown - other).abs().mean()
    with pytest.raises(ConfigError, match="NoSuchGame"):
        load_player(PONG, "NoSuchGame-v4")


SOUND = {"env": "A", "seed": 0, "action_names": ["LEFT", "NOOP"], "actions": [1, 0, 0]}


def test_recorded_actions_are_told_apart_by_name_and_checked(tmp_path):
    agent, path = load_agent(PONG), tmp_path / "actions.json"
    path.write_text(json.dumps(SOUND))
    assert films.Recording.read(path).for_agent(agent) == [0, 3, 3]
    path.write_text(json.dumps({**SOUND, "action_names": ["UP", "NOOP"]}))
    with pytest.raises(ConfigError, match="uses UP"):
        films.Recording.read(path).for_agent(agent)
    for wrong in ({"seed": True}, {"action_names": 7}, {"actions": [2]}, {"actions": [0.5]}):
        path.write_text(json.dumps({**SOUND, **wrong}))
        with pytest.raises(ConfigError, match=str(path)):
            films.Recording.read(path)


def test_analyses_of_two_models_of_one_name_lie_in_folders_of_their_own(tmp_path):
    folders = set()
    for name in ("pong", "breakout"):
        model = tmp_path / name / "mine"
        shutil.copytree(ROOT / "models" / name, model)
        folders.add(load_agent(str(model), [f"--results_dir={tmp_path}"]).folder)
    assert len(folders) == 2
    assert {folder.parent for folder in folders} == {tmp_path / "mine" / "analysis"}
