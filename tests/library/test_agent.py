"""An agent that acts on observations plays as test mode does, whoever owns the environments."""

import numpy as np
import pytest

from ritornello import CheckpointError, ConfigError, load_agent, train
from ritornello.agent.testing.player import Player, env_seeds, game_config
from ritornello.core.errors import ShapeError
from ritornello.core.spec import CHOICE, NUMBERS, ActionPart, ActionSpec
from ritornello.playing import _actions
from ritornello.wrappers import trusted_modules
from ritornello.wrappers.registry import make_env_vector
from tests.analysis.agents import write_agent
from tests.house import ROOT
from tests.library.runs import COUNTING, TINY

PONG = ROOT / "models" / "pong"


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory):
    """The run folder of an agent that looks at all there is to look at."""
    return train(
        **TINY,
        results_dir=tmp_path_factory.mktemp("results"),
        use_lstm=True,
        lstm_size=8,
        use_last_action=True,
        use_last_reward=True,
    ).folder


def played(loaded, count, steps):
    """Yield (stacks before, first, last reward, action, last action, value) of a Player."""
    vector = make_env_vector(game_config(loaded.blueprint, COUNTING), count, env_seeds(5, count))
    player = Player(loaded.model, vector, [0] * count, greedy=True)
    for _ in range(steps):
        shown = [array.copy() for array in player.observation[:5]]
        step = player.step()
        yield shown, step


def test_batches_and_single_observations_give_what_a_player_does(recurrent):
    agent = load_agent(recurrent, greedy=True, env=COUNTING)
    alone = [load_agent(recurrent, greedy=True, env=COUNTING) for _ in range(3)]
    starts = 0
    for (stacks, first, last_action, reward, _), step in played(agent._loaded, 3, 40):
        frames = stacks[:, -1]
        starts += int(first.sum())
        decision = agent.decide(frames, reward=reward, first=first, last_action=last_action)
        assert decision.action.tolist() == step.action.tolist()
        np.testing.assert_allclose(decision.params, step.heads.params.numpy(), rtol=1e-5)
        for index, single in enumerate(alone):
            if first[index]:
                single.reset()
            each = single.decide(
                frames[index], reward=reward[index], last_action=int(last_action[index])
            )
            assert isinstance(each.action, int)
            assert each.action == step.action[index]
            assert each.value == pytest.approx(step.heads.value[index].item(), rel=1e-4)
    assert starts > 6, "no game ended, so memory was never cleared"


@pytest.mark.parametrize("name", ["Reach", "Mixed", "Sign"])
def test_an_agent_of_any_world_acts_in_the_environment_it_makes(tmp_path, name):
    env_id = f"tests.worlds:tests/{name}-v0"
    world = {**TINY, "env": env_id, "use_last_action": True}
    agent = load_agent(train(**world, results_dir=tmp_path).folder, env=env_id)
    env = agent.make_env()
    agent.reset()
    observation, _ = env.reset(seed=1)
    shape = agent.spec.actions.shape
    for _ in range(30):
        action = agent.act(observation)
        assert np.shape(action) == shape
        observation, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            observation, _ = env.reset()
            agent.reset()
    three = np.stack([observation] * 3)
    agent.reset()
    assert agent.act(three).shape == (3, *shape)
    if shape:
        before = agent.decide(three, last_action=np.zeros(shape)).params
        after = agent.decide(three, last_action=np.ones((3, *shape))).params
        assert not np.allclose(before, after)
        with pytest.raises(ShapeError, match="expected .* array of shape"):
            agent.decide(three, last_action=3)
    env.close()


def test_what_cannot_be_acted_on_is_told(recurrent):
    agent = load_agent(recurrent, env=COUNTING)
    frame = np.zeros(4, np.float32)
    for wrong in (
        frame[:3],
        np.zeros((2, 3)),
        np.zeros((0, 4)),
        np.array(["a"] * 4),
        7,
        (frame, {}),
    ):
        with pytest.raises(ShapeError, match="an observation has shape"):
            agent.act(wrong)
    with pytest.raises(ShapeError, match="they make one array of a dict"):
        agent.act({"camera": frame})
    with pytest.raises(ShapeError, match=r"reset\(\) returns \(observation, info\)"):
        agent.act((frame, {}))
    for wrong in (np.nan, -np.inf, 1e300):
        with pytest.raises(ShapeError, match=r"an observation has .*, expected finite numbers"):
            agent.act([0.0, wrong, 0.0, 0.0])
    agent.act(frame)
    with pytest.raises(ConfigError, match="looks at the last reward"):
        agent.act(frame)
    with pytest.raises(ConfigError, match="2 observations after 1"):
        agent.act([frame, frame], reward=0)
    with pytest.raises(ShapeError, match="reward is"):
        agent.act(frame, reward=[1, 2])
    agent.reset()
    assert agent.act([frame, frame]).shape == (2,)
    with pytest.raises(ConfigError, match=r"render_mode is 'x', expected .*agent.reset\(<id>\)"):
        agent.make_env("x")
    with pytest.raises(ConfigError, match="not Other"):
        agent.reset("Other")


@pytest.mark.parametrize("value", [99, -1, 1.7, np.nan, np.inf, "x", [0, 99]])
def test_a_last_action_is_one_that_there_is(recurrent, value):
    agent = load_agent(recurrent, env=COUNTING)
    with pytest.raises(ShapeError, match=r"last_action is .*, expected 1 of \d actions"):
        agent.act(np.zeros((2, 4)), last_action=value)
    for good in (1, 1.0, [0, 1], np.array([1, 0], np.float32)):
        agent.act(np.zeros((2, 4)), reward=0, last_action=good)


@pytest.mark.parametrize(
    ("part", "good", "wrong"),
    [
        (ActionPart(CHOICE, 3), (0, 1, 2.0), (3, -1, 0.5, np.nan)),
        (ActionPart(NUMBERS, 1), (0, -7.5, 1e9), (np.nan, np.inf, 1e39)),
    ],
)
def test_each_part_of_an_action_is_one_that_there_is(part, good, wrong):
    actions = ActionSpec((ActionPart(CHOICE, 5), part))
    for value in good:
        assert _actions([4, value], 2, actions).tolist() == [[4, value]] * 2
    for value in wrong:
        with pytest.raises(ShapeError, match="last_action is .*, expected"):
            _actions([[4, value], [4, good[0]]], 2, actions)


@pytest.mark.parametrize("said", [{"env": COUNTING}, {"trust_env_module": True}])
def test_a_module_that_a_call_has_imported_needs_no_second_permission(recurrent, monkeypatch, said):
    monkeypatch.setattr(trusted_modules, "_trusted", set())
    with pytest.raises(ConfigError, match="may not ask for that"):
        load_agent(recurrent)
    observation, _ = load_agent(recurrent, **said).make_env().reset(seed=1)
    assert len(observation)
    assert load_agent(recurrent).spec.env_id == COUNTING
    assert trusted_modules._trusted == {"tests.fakes"}, "this module, and no other"


def test_trust_in_every_module_ends_with_the_call(monkeypatch):
    monkeypatch.setattr(trusted_modules, "_trusted", set())
    with trusted_modules.trust_forgotten():
        trusted_modules.trust_every_module()
        trusted_modules.check_trusted("no_such_module:Id-v0")
    with pytest.raises(ConfigError, match="may not ask for that"):
        trusted_modules.check_trusted("no_such_module:Id-v0")


@pytest.mark.parametrize("said", [{"env_kwargs": {"map_name": "8x8"}}, {"trust_env_module": True}])
def test_an_agent_makes_environments_of_the_texts_it_was_loaded_with(tmp_path, monkeypatch, said):
    monkeypatch.setattr(trusted_modules, "_trusted_kwargs", set())
    typed = '--env_kwargs={"map_name": "8x8"}'
    with trusted_modules.trust_forgotten():
        folder = write_agent(tmp_path / "agent", typed, env="FrozenLake-v1")
    agent = load_agent(folder, **said)
    env = agent.make_env()
    assert env.unwrapped.desc.shape == (8, 8)
    with pytest.raises(ConfigError, match="expected numbers only"):
        load_agent(folder)


def test_the_shipped_agent_plays_pong_in_the_environment_it_makes():
    agent = load_agent(PONG, greedy=True, seed=1)
    env = agent.make_env()
    observation, _ = env.reset(seed=4)
    assert observation.shape == agent.spec.frame_shape == (1, 84, 84)
    actions = set()
    for _ in range(60):
        action = agent.act(observation)
        observation, *_ = env.step(action)
        actions.add(action)
    assert len(actions) > 1
    env.close()
    agent.reset()
    assert agent.act(observation[0]) == load_agent(PONG, greedy=True).act(observation)
    with pytest.raises(ShapeError, match="uint8"):
        agent.act(observation / 255)


def test_no_agent_is_a_message(tmp_path):
    with pytest.raises(CheckpointError, match="nothing"):
        load_agent(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seed": "x"}, "seed is 'x', expected a whole number"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"greedy": "False"}, "greedy is 'False', expected True or False"),
    ],
)
def test_an_argument_of_another_type_is_refused(wrong, message):
    with pytest.raises(ConfigError, match=message):
        load_agent(PONG, **wrong)
