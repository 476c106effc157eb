"""An environment of one's own: images of any size, arguments, and what the checker says."""

import json
import os
import re
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Text
from gymnasium.wrappers import NormalizeObservation

from ritornello.agent.run.messages import next_command
from ritornello.agent.session import family_of, prepare
from ritornello.agent.stored.checkpoint_writer import CheckpointWriter
from ritornello.core.errors import CheckpointError, ConfigError
from ritornello.core.project import PROJECT_ROOT, main_command
from ritornello.flags.options import Flags
from ritornello.flags.parsing import parse
from ritornello.wrappers import trusted_modules
from ritornello.wrappers.check import check, main
from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.env_kwargs import kwargs_text
from ritornello.wrappers.registry import make_env_spec, make_env_vector, tried
from tests.agent.runs import make_blueprint, saved_state
from tests.analysis.agents import draw_blueprint, write_agent
from tests.extensions import own_environment
from tests.extensions.runs import new_folder, saved_in, trained
from tests.wrappers.lying import registered

LIGHT = f"{own_environment.__name__}:Own/Light-v0"
SMALL = '{"height": 12}'


@pytest.fixture(autouse=True)
def typed():
    """As if the user had typed --env=<module>:<id>."""
    before = set(trusted_modules._trusted), set(trusted_modules._trusted_kwargs)
    trusted_modules.trust_modules_of(LIGHT)
    yield
    for kept, now in zip(
        before, (trusted_modules._trusted, trusted_modules._trusted_kwargs), strict=True
    ):
        now.clear()
        now.update(kept)


def test_images_of_any_size_are_trained_on_saved_and_resumed(tmp_path):
    folder = new_folder(tmp_path)
    flags = {"env": LIGHT, "env_kwargs": SMALL, "frames_stacked": 2}
    summary, records = trained(folder, steps=150, **flags)
    assert summary.updates > 0
    assert summary.episodes > 20
    assert "loss/total" in records[-1].values
    spec = saved_in(folder).state["env_spec"]
    assert (tuple(spec["frame_shape"]), spec["frame_dtype"]) == ((2, 12, 20), "uint8")
    assert saved_in(folder).state["flags"]["env_kwargs"] == SMALL
    again, _ = trained(folder, steps=250, checkpoint=saved_in(folder), **flags)
    assert again.updates > summary.updates


def test_images_and_vectors_have_families_of_their_own():
    assert family_of(LIGHT) == "image"
    assert family_of("CartPole-v1") == "vector"
    assert family_of("Pendulum-v1") == "impact-mujoco"
    assert family_of("tests.worlds:tests/Mixed-v0") == "impact-mujoco", "choices and numbers"
    assert family_of("nowhere-v0") == "vector", "told later, with all that is wrong"
    flags = prepare([f"--env={LIGHT}", f"--env_kwargs={SMALL}"]).blueprint.flags
    assert (flags.frames_stacked, flags.skipped_frames, flags.reward_clipping_method) == (
        1,
        1,
        "none",
    )


@pytest.mark.parametrize("more", [[], ["--algorithm=impala"]])
def test_several_games_of_real_numbers_begin_with_flags_that_they_can_have(more):
    games = [f"tests.worlds:tests/{name}-v0" for name in ("Reach", "Remote")]
    flags = prepare([f"--env={','.join(games)}", *more]).blueprint.flags
    assert not flags.normalise_vectors
    assert flags.algorithm == ("impala" if more else "impact")
    assert prepare([f"--env={games[0]}", *more]).blueprint.flags.normalise_vectors


def test_a_family_is_that_of_the_backend_which_is_asked_for():
    argv = ["--env_backend=gymnasium_vector", '--env_kwargs={"vectorization_mode": "sync"}']
    assert parse(["--env=Pendulum-v1", *argv], family_of=family_of).algorithm == "impact"
    assert prepare([f"--env={LIGHT}", *argv]).blueprint.flags.frames_stacked == 1, "of images"
    with pytest.raises(ConfigError, match="--env_backend=nothing: "):
        parse(["--env=CartPole-v1", "--env_backend=nothing"], family_of=family_of)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ('{"a b": 1}', "expected names of arguments"),
        ('{"render_mode": "human"}', "give --render=True"),
        ('{"x": NaN}', "not finite"),
        ({"x": object()}, "expected texts, numbers"),
    ],
)
def test_arguments_that_are_no_plain_mapping_are_refused(said, message):
    with pytest.raises(ConfigError, match=message):
        kwargs_text(said)


def test_equal_arguments_are_equal_text():
    assert kwargs_text('{"b": [1, 2], "a": 1}') == kwargs_text({"a": 1, "b": [1, 2]})
    assert kwargs_text({}) == kwargs_text("") == ""


def test_arguments_that_the_environment_does_not_take_are_told_before_anything_starts():
    for name in ("depth", "seed"):
        text = f"unexpected keyword argument .{name}.* mend its name"
        with pytest.raises(ConfigError, match=text):
            tried(LIGHT, f'{{"{name}": 3}}')
    with pytest.raises(ConfigError, match="gives .*only mode and difficulty for Pong.*with --env"):
        make_env_vector(EnvConfig("PongNoFrameskip-v4", kwargs=SMALL), 1, [0])


def test_a_file_may_give_numbers_and_no_texts():
    command = ["--op_mode=test", "--load_model_url=x"]
    stored = {"env": "CartPole-v1", "env_kwargs": '{"size": 3}'}
    assert parse(command, lambda *_: stored).env_kwargs == '{"size": 3}'
    stored["env_kwargs"] = json.dumps({"deep": [{"xml": "/etc/passwd"}]})
    with pytest.raises(ConfigError, match="env_kwargs is .* from x: "):
        parse(command, lambda *_: stored)
    with pytest.raises(ConfigError, match="expected numbers only"):
        tried("CartPole-v1", stored["env_kwargs"])
    typed = [*command, f"--env_kwargs={stored['env_kwargs']}"]
    assert parse(typed, lambda *_: stored).env_kwargs == stored["env_kwargs"]


def test_the_arguments_of_another_environment_do_not_come_along():
    stored = {"env": LIGHT, "env_kwargs": SMALL}
    command = ["--op_mode=train", "--load_model_url=x"]
    assert parse(command, lambda *_: stored).env_kwargs == SMALL
    assert parse([*command, "--env=CartPole-v1"], lambda *_: stored).env_kwargs == ""
    stored |= {"env": f"{LIGHT},Own/Other-v0", "env_shares": [1, 2]}
    flags = parse([*command, f"--env={LIGHT}"], lambda *_: stored)
    assert (flags.env_kwargs, flags.env_shares) == (SMALL, ()), "of one of its games"


@pytest.mark.parametrize("given", [(), ('--env_kwargs={"lamps": 5}',)])
def test_a_game_that_is_visited_has_arguments_of_its_own(tmp_path, given):
    agent, made = write_agent(tmp_path / "agent", f"--env_kwargs={SMALL}", env=LIGHT), []

    def visited(height=12, lamps=0):
        made.append(lamps)
        return own_environment.Light(height)

    argv = ["--op_mode=test", f"--load_model_url={agent}", "--test_episode_count=1", *given]
    with registered(visited, "tests/Visited-v0") as config:
        argv = [*argv, f"--env={config.env_id}", f"--results_dir={tmp_path}"]
        session = prepare(argv)
        assert session.run() == 0
        assert set(made) == {5 if given else 0}
        assert (
            session.blueprint.env_spec
            == draw_blueprint(f"--env_kwargs={SMALL}", env=LIGHT).env_spec
        )
        with pytest.raises(CheckpointError, match=r"does not fit tests/Visited-v0:\n  frame_shape"):
            prepare([*argv, '--env_kwargs={"height": 13}'])


@pytest.mark.parametrize("mode", ["test", "train_w_load"])
def test_the_arguments_of_an_environment_whose_module_has_moved_come_along(tmp_path, mode):
    old, now = ("tests.extensions.before:Own/Light-v0", LIGHT)
    blueprint = make_blueprint(LIGHT, env_kwargs=SMALL)
    stored = {"flags": {**blueprint.flags.to_json(), "env": old}}
    stored["env_spec"] = {**blueprint.env_spec.to_dict(), "env_id": old}
    state = saved_state(blueprint, **stored)
    path = CheckpointWriter(tmp_path).save(state, updates=1, agent_steps=1)
    argv = [f"--op_mode={mode}", f"--load_model_url={path}", f"--env={now}"]
    flags = prepare(argv).blueprint.flags
    assert (flags.env, flags.env_kwargs) == (now, SMALL)


class Silent(gymnasium.Env):
    """Sound: three numbers, a walk that ends by chance."""

    observation_space = Box(-1, 1, (3,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.shown(), {}

    def step(self, action):
        return self.shown(), float(action), bool(self.np_random.random() < 0.1), False, {}

    def shown(self):
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)


def said_of(entry_point, **options):
    with registered(entry_point, **options) as config:
        return check(config)


def test_a_sound_environment_has_nothing_wrong(capsys):
    findings = said_of(Silent)
    levels = findings.count("wrong"), findings.count("note")
    assert levels == (0, 1), findings.lines  # it draws nothing
    assert main([LIGHT]) == 0
    printed = capsys.readouterr().out
    assert "images of 14x20 pixels and 2 channels" in printed
    assert "the same seed and actions give the same game" in printed
    assert "rendering: draws pictures" in printed
    assert f"Train on it:\n  {main_command()} --env={LIGHT}" in printed


def test_the_command_that_trains_finds_a_module_of_the_present_folder(tmp_path, monkeypatch):
    (tmp_path / "my_lamp.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])  # as `python -m` has it
    plain = main_command()
    assert main_command("", "ritornello.main", "not_there") == plain
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert main_command("my_lamp") == f"PYTHONPATH=. {plain}"
    command = next_command("test", tmp_path, Flags(env="my_lamp:Own/Light-v0").to_json())
    assert command.startswith(f"PYTHONPATH=. {plain} ")
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    assert main_command("my_lamp.part") == f"PYTHONPATH=.:$PYTHONPATH {plain}"
    monkeypatch.setenv("PYTHONPATH", "elsewhere:.")
    assert main_command("my_lamp") == plain
    monkeypatch.setattr(sys, "path", [str(PROJECT_ROOT), *sys.path])  # as main.py has it
    assert main_command("tests.extensions") == plain


def test_a_reader_who_leaves_early_is_no_error(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as nobody_reads:
        monkeypatch.setattr(sys, "stdout", nobody_reads)
        assert main([LIGHT]) == 0


def test_an_environment_may_leave_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()

    def leave(env, **given):
        os.chdir(tmp_path / "other")
        return Silent.reset(env, **given)

    said_of(silent(reset=leave))
    assert Path.cwd() == tmp_path


def silent(**changes):
    """Return a class like Silent with other methods and spaces."""
    return type("Changed", (Silent,), changes)


def stepping(*returned):
    """Return a class whose steps return an observation and then this."""
    return silent(step=lambda env, action: (env.shown(), *returned))


def showing(shown):
    return silent(shown=lambda env: shown)


def later(wrong):
    """Return a class whose steps return `wrong` after its first game."""

    def step(env, action):
        honest = Silent.step(env, action)
        env.games = getattr(env, "games", 0) + honest[2]
        return wrong(honest) if env.games else honest

    return silent(step=step)


def seeing_later(observation):
    return later(lambda honest: (observation, *honest[1:]))


def make_no_map(env):
    raise ValueError("no map")


def take_actions_but_one(env, action):
    if action == 997:
        raise IndexError("no such action")
    return env.shown(), 0.0, False, False, {}


def called_wrongly(env, action):
    one, another = [action]
    return one, another


def without_action(env, action):
    return called_wrongly(env)


def refuse_to_close(env):
    raise OSError("no")


class Remembers(Silent):
    games = 0

    def reset(self, *, seed=None, options=None):
        Remembers.games += 1
        return super().reset(seed=seed)

    def step(self, action):
        self.np_random.random()
        return self.shown(), float(Remembers.games), False, False, {}


class BadPicture(Silent):
    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def render(self):
        return "a picture"


WITH_TEXT = Dict({"a": Box(0, 1, (3,)), "mission": Text(5)})


@pytest.mark.parametrize(
    ("entry_point", "message"),
    [
        (silent(__init__=make_no_map), "making it: env .* raised ValueError: no map"),
        (silent(observation_space=WITH_TEXT), r"making it: env .*\(\['mission'\]: Text is none of"),
        (silent(__init__=lambda env, size: 0), "'size'.* when it was made; give its .* as JSON"),
        (silent(step=without_action), r"argument: 'action' \([^;]*$"),
        (silent(step=called_wrongly), r"values to unpack [^;]*$"),
        (silent(action_space=Box(0, 9, (2,), np.int64)), "making it: env .*make it MultiDiscrete"),
        (silent(reset=lambda env, seed=None, options=None: np.zeros(3)), "reset: reset returned"),
        (silent(reset=lambda env: None), "its reset: raised TypeError.*reset must take seed"),
        (silent(reset=lambda env, seed=None: None), "'options'; reset must take seed and options"),
        (stepping(1.0, False, {}), "step 1, action 0: step returned 4 values.*Gym before 0.26"),
        (later(lambda honest: None), "action .: step returned None, expected"),
        (seeing_later(None), "action .: observation is None, expected an array of numbers"),
        (seeing_later("abc"), "action .: observation is 'abc', expected an array of numbers"),
        (seeing_later([1, [2], 3]), r"action .: observation is \[1, \[2\], 3\], expected an array"),
        (silent(step=take_actions_but_one, action_space=Discrete(998)),
         "playing: env .*, action 997: raised IndexError: no such"),
        (showing(np.zeros(4, np.float32)), r"reset: observation has shape \(4,\), expected \(3,\)"),
        (silent(shown=lambda env: np.random.uniform(-1, 1, 3)),  # noqa: NPY002
         "seed: two games.*from step 0 on: call super.*np_random.*numpy.random$"),
        (lambda: NormalizeObservation(Silent()),
         "seed: two games.*numpy.random. Nothing else may.*--normalise_vectors=True"),
        (Remembers, "seed: two games.*from step 1 on"),
        (silent(close=refuse_to_close), "making it: env .* raised OSError: no"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_what_to_do(entry_point, message, capsys):
    with registered(entry_point) as config:
        assert main([config.env_id]) == 1
    printed = capsys.readouterr().out.splitlines()
    wrong = [line for line in printed if line.startswith("wrong")]
    assert [line for line in wrong if re.search(message, line)], printed
    assert "wrong, " in printed[-1]


class Clock(Silent):
    def reset(self, *, seed=None, options=None):
        self.t = 0
        return super().reset(seed=seed)

    def step(self, action):
        self.t += 1
        return self.shown(), 0.0, self.t == 20, False, {}


class Sighted(Silent):
    action_space = Dict({"dials": MultiDiscrete([2, 3]), "pedal": Box(-1, 1, (2,), np.float32)})
    observation_space = Dict({"eye": Box(0, 255, (8, 9, 3), np.uint8), "lamp": Discrete(2)})

    def step(self, action):
        return self.shown(), 0.0, bool(self.np_random.random() < 0.1), False, {}

    def shown(self):
        draw = self.np_random
        eye = draw.integers(0, 256, (8, 9, 3), np.uint8)
        return {"eye": eye, "lamp": int(draw.integers(2))}


class Dazzled(Sighted):
    def shown(self):
        return {**super().shown(), "lamp": 2}


def test_actions_and_observations_of_several_parts_are_looked_at_part_by_part():
    findings = said_of(Sighted)
    assert not findings.count("wrong"), findings.lines
    for said in (
        "observation_space: 2 numbers and images of 8x9 pixels and 3 channels",
        "action_space: 2 choices of 2, 3 and 2 real numbers",
        "seed: the same seed and actions give the same game",
    ):
        assert f"ok     {said}" in findings.lines
    lines = said_of(Dazzled).lines
    assert any("reset: observation['lamp'] is 2" in line for line in lines), lines


@pytest.mark.filterwarnings("ignore:.*Casting input x to numpy array")  # of Gymnasium
def test_what_training_takes_is_not_called_wrong():
    findings = said_of(silent(shown=lambda env: torch.from_numpy(Silent.shown(env))))
    assert not findings.count("wrong"), findings.lines


@pytest.mark.parametrize(
    ("entry_point", "message"),
    [
        (type("Tiny", (Sighted,), {"action_space": Box(-0.01, 0.01, (2,), np.float32)}),
         "action_space: has numbers from -0.01 to 0.01 at [0]"),
        (type("Fixed", (Sighted,), {"action_space": Box(np.float32([0, -1]), np.float32([0, 1]))}),
         "action_space: has 0 alone at [0]: leave it out"),
        (Clock, "truncated: each of 94 games was terminated after 20 steps"),
        (stepping(0.0, False, False, {}), "time limit: no game came to its end"),
        (silent(shown=lambda env: env.np_random.uniform(2, 3, 3).astype(np.float32)),
         "is not in observation_space"),
        (silent(shown=lambda env: np.zeros(3, np.float32),
                step=lambda env, action: (env.shown(), 0.0, False, True, {})),
         "other seeds give the same game too"),
        (stepping(1e6, False, True, {}), "rewards beyond 10000"),
        (silent(observation_space=Box(0, 255, (8, 9, 3)),
                shown=lambda env: np.full((8, 9, 3), 255, np.float32)),
         "images with numbers beyond 100, which the network takes as they are"),
        (BadPicture, "cannot be recorded as films"),
    ],
)  # fmt: skip
def test_what_works_but_is_odd_is_noted(entry_point, message):
    findings = said_of(entry_point)
    assert not findings.count("wrong")
    notes = [line for line in findings.lines if line.startswith("note") and message in line]
    assert len(notes) == 1, findings.lines


def test_an_atari_game_is_made_and_played(capsys):
    assert main(["ALE/Pong-v5"]) == 0
    assert "backend" in capsys.readouterr().out
    assert main(["ALE/Pong-v5", '--env_kwargs={"mode": 99}']) == 1
    assert "wrong  making it" in capsys.readouterr().out


def test_without_an_environment_to_look_at_the_status_is_2(capsys):
    assert main(["nowhere-v0"]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_board_game_with_a_mask_is_played_by_its_rules(tmp_path, monkeypatch):
    pytest.importorskip("pettingzoo", reason="PettingZoo is not installed")
    env = "tests.extensions.own_board_game:Own/TicTacToe-v0"
    monkeypatch.setattr(trusted_modules, "_trusted", {env.split(":")[0]})
    assert make_env_spec(EnvConfig(env)).has_action_mask
    summary, _ = trained(new_folder(tmp_path), steps=150, env=env)  # an illegal move would raise
    assert summary.episodes > 10
