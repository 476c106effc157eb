import errno
import importlib.util
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.utils.env_checker import data_equivalence

from ritornello import load_agent
from ritornello.agent.deployed import page, preprocessing
from ritornello.agent.deployed.formats import NETWORKS as FILES
from ritornello.agent.deployed.formats import largest_difference, network_file, runner
from ritornello.agent.deployed.graph import ActingGraph
from ritornello.agent.export import main
from ritornello.agent.models.base import Inputs
from ritornello.agent.models.factory import ModelConfig, make_model
from ritornello.agent.testing.player import Player
from ritornello.analysis import playing
from ritornello.core import faults
from ritornello.core.spec import CHOICE
from ritornello.flags.parts import NETWORKS
from ritornello.wrappers.gym_actions import ActionCode
from ritornello.wrappers.registry import make_env_vector
from tests.agent.builders import ANY_ACTIONS, make_spec
from tests.agent.test_parts import SPEC as PARTS
from tests.agent.test_parts import frames
from tests.analysis.agents import write_agent
from tests.faulty import Fault, Plan

HAS_ONNX = all(map(importlib.util.find_spec, ("onnx", "onnxscript", "onnxruntime")))
no_onnx = pytest.mark.skipif(not HAS_ONNX, reason="extra onnx is not installed")
KINDS = ["torch", pytest.param("onnx", marks=no_onnx)]

IMAGES = make_spec((4, 44, 44), stacked=4)
GAMES = replace(IMAGES, env_id="A-v0,B-v0,C-v0")
MEMORY = {"use_lstm": True, "use_last_action": True, "use_last_reward": True, "lstm_size": 16}
CASES = {
    **{name: (IMAGES, {"name": name}) for name in NETWORKS.shipped if name != "mlp"},
    "pixels, each": (IMAGES, {"normalise_pixels": "each", "layer_norm": "features"}),
    "vectors": (make_spec(), {"normalise_vectors": True}),
    "memory": (IMAGES, {**MEMORY, "lstm_layers": 2}),
    "games": (GAMES, {"use_task_id": True}),
    "games, rare": (GAMES, {"normalise_pixels": "rare", **MEMORY}),
    "parts": (PARTS, {"normalise_vectors": True, "use_lstm": True}),
    **{
        name: (replace(make_spec(actions=spec), has_action_mask=True), MEMORY)
        for name, spec in ANY_ACTIONS.items()
    },
}


def draw_inputs(graph, model, count):
    """Inputs of the graph, the model's own `Inputs` and state, and the noise's generator."""
    inputs = graph.example(count)
    inputs["first"] = torch.arange(count) % 3 == 0
    if graph.spec is PARTS:
        obs = frames(count)
        names = [name for name in inputs if name.startswith("obs")]
        inputs |= zip(names, model.torso_net.parts(obs), strict=True)
    else:
        obs = inputs["obs"]
    actions = graph.spec.actions
    if "last_action" in inputs:
        params = torch.randn(count, actions.param_count)
        inputs["last_action"] = model.distribution.sample(params, torch.Generator())
    nothing = torch.zeros(count, *actions.shape, dtype=getattr(torch, actions.dtype))
    seen = Inputs(
        obs,
        inputs["first"],
        inputs.get("last_action", nothing),
        inputs.get("last_reward", torch.zeros(count)),
        inputs.get("task_id"),
        graph._mask(inputs.get("action_mask")),
    )
    draw = torch.Generator().manual_seed(7)
    noise = {CHOICE: [], "numbers": []}
    for part in actions.parts:
        drawn = torch.empty(count, part.count)
        fill = drawn.exponential_ if part.kind == CHOICE else drawn.normal_
        noise[part.kind].append(fill(generator=draw))
    for kind, name in ((CHOICE, "exponential_noise"), ("numbers", "normal_noise")):
        if noise[kind]:
            inputs[name] = torch.cat(noise[kind], -1)
    own = {name: value for name, value in inputs.items() if name in graph.inputs}
    return own, seen, inputs.get("state", torch.zeros(count, 0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
def test_a_written_network_says_what_the_model_says(case, kind):
    spec, config = CASES[case]
    model = make_model(ModelConfig(**config), spec, popart=True)
    model.observe(frames(8) if spec is PARTS else make_obs(spec))
    with torch.no_grad():  # as of a trained one, whose outputs are near 1
        model.value_head.linear.weight *= 0.1
    model.value_head.mu.fill_(3)
    model.value_head.nu.fill_(11)
    graph = ActingGraph(model, spec)
    run = runner(kind, network_file(graph, kind))
    for count in (1, 4):
        inputs, seen, state = draw_inputs(graph, model, count)
        with torch.no_grad():
            _, heads, after = model(seen, state)
        got = run(inputs)
        assert list(got) == list(graph.outputs)
        np.testing.assert_allclose(got["params"], heads.params, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(got["value"], heads.value, rtol=1e-5, atol=1e-5)
        if model.state_count:
            np.testing.assert_allclose(got["next_state"], after, rtol=1e-5, atol=1e-5)
        mode = model.distribution.mode(heads.params)
        draw = model.distribution.sample(heads.params, torch.Generator().manual_seed(7))
        for name, expected in (("greedy_action", mode), ("sampled_action", draw)):
            assert got[name].dtype == getattr(torch, spec.actions.dtype)
            np.testing.assert_allclose(got[name], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("has_mask", [False, True])
def test_the_difference_of_a_wrong_network_is_told(has_mask):
    spec = make_spec(masked=has_mask)
    graph = ActingGraph(make_model(ModelConfig(), spec, popart=False), spec)

    def run(inputs):
        said = graph(inputs)
        return {**said, "params": said["params"] + 3}

    with torch.no_grad():
        assert largest_difference(graph, run) > 1


def make_obs(spec):
    if spec.is_image:
        return torch.randint(0, 200, (8, *spec.obs_shape), dtype=torch.uint8)
    return torch.randn(8, *spec.obs_shape)


EYES = """
import gymnasium, numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

class Eyes(gymnasium.Env):
    "Shows a picture, a choice and numbers; the reward tells what was done."
    observation_space = Dict({"action_mask": MultiBinary(12),
        "eye": Box(0, 255, (21, 22, 3), np.uint8),
        "lamp": Discrete(3, start=4), "speed": Box(-9, 9, (2, 2), np.float32)})
    action_space = MultiDiscrete([5, 7], start=[2, -3])

    def observation(self):
        draw = self.np_random
        self.mask = np.tile(draw.permutation([1, 1, 0, 1]), 3).astype(np.int8)
        return {"action_mask": self.mask, "eye": draw.integers(0, 256, (21, 22, 3), np.uint8),
            "lamp": draw.integers(4, 7), "speed": draw.normal(size=(2, 2)).astype(np.float32)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observation(), {}

    def step(self, action):
        assert self.mask[action[0] - 2] and self.mask[5 + action[1] + 3]
        self.steps += 1
        reward = float(action[0] * 100 + action[1]) * self.steps
        return self.observation(), reward, self.steps == 25, False, {}

gymnasium.register("Eyes-v0", entry_point=Eyes)

class Hands(gymnasium.Env):
    "Takes a dict of parts; the reward tells what was done."
    observation_space = Tuple((Box(-9, 9, (2,), np.float32), Dict({"it's [1]": Discrete(2)})))
    action_space = Dict({"arm": Box(-0.1, 0.1, (2, 1), np.float32), "it's [1]": Tuple((
        Discrete(3, start=1), Dict({"bits": MultiBinary(2), "n": MultiDiscrete([2, 3])})))})

    def observation(self):
        seen = self.np_random.normal(size=2).astype(np.float32)
        return seen, {"it's [1]": self.np_random.integers(2)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observation(), {}

    def step(self, action):
        assert np.abs(action["arm"]).max() <= self.action_space["arm"].high.max()
        fingers, more = action["it's [1]"]
        self.steps += 1
        reward = {1: 5.0, 2: 7.0, 3: 11.0}[fingers] + float(action["arm"][1, 0])
        reward += more["bits"] @ [100, 200] + [0, 1000][more["n"][0]] + 2000 * more["n"][1]
        return self.observation(), float(reward) * self.steps, self.steps == 25, False, {}

gymnasium.register("Hands-v0", entry_point=Hands)

class Flat(Hands):
    "Allows some of the choices, and says so in one array: there is none of real numbers."
    def masks(self):
        self.allowed = self.np_random.permutation([1, 1, 0])
        return np.concatenate([self.allowed, [1, 0, 1, 1], [0, 1], [1, 0, 1]])

    def reset(self, **more):
        observation, _ = super().reset(**more)
        return observation, {"action_mask": self.masks()}

    def step(self, action):
        fingers, more = action["it's [1]"]
        assert self.allowed[fingers - 1] and not more["bits"][0] and more["n"][0] == 1
        *told, _ = super().step(action)
        return *told, {"action_mask": self.masks()}

class Nested(Flat):
    "Says it as its actions are built."
    def masks(self):
        fingers, bits, *n = np.split(super().masks(), [3, 7, 9])
        return {"it's [1]": (fingers, {"n": tuple(n), "bits": bits})}

gymnasium.register("Flat-v0", entry_point=Flat)
gymnasium.register("Nested-v0", entry_point=Nested)
"""
# The script of the page, in a Python in which this program cannot be imported.
ALONE = """
import sys
sys.modules.update(dict.fromkeys(("ritornello", "agent", "wrappers", "replay")))
exec(open("play.py").read())
assert "torch" not in sys.modules or "onnxruntime" not in sys.modules
"""


def score_of_the_page(folder):
    """What the script of the README in a folder prints."""
    page = (folder / "README.md").read_text("utf-8")
    (script,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (folder / "play.py").write_text(script)
    path = {"PYTHONPATH": str(folder.parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", ALONE]
    done = subprocess.run(
        command, cwd=folder, env=path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    *told, last = done.stdout.splitlines()
    assert told[0] == "0 steps, score 0.0"
    return float(last.removeprefix("score "))


def export(agent, folder, kind):
    lines = []
    arguments = [f"--load_model_url={agent}", f"--output={folder}", f"--format={kind}"]
    main([*arguments, "--trust_env_module"], lines.append)
    assert "differs from the agent by at most" in lines[0]
    assert (folder / FILES[kind]).is_file()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("env", "flags"),
    [
        ("Pendulum-v1", [f"--{name}={value}" for name, value in MEMORY.items()]),
        ("eyes:Eyes-v0", ["--frames_stacked=2", "--use_lstm=True", "--use_last_action=True"]),
        ("eyes:Hands-v0", ["--use_last_action=True"]),
        ("eyes:Flat-v0", []),
        ("eyes:Nested-v0", []),
    ],
)
def test_the_script_of_the_page_plays_the_game_that_the_agent_plays(
    tmp_path, monkeypatch, env, flags, kind
):
    (tmp_path / "eyes.py").write_text(EYES)
    monkeypatch.syspath_prepend(tmp_path)
    agent_folder = write_agent(tmp_path / "agent", *flags, env=env, seed=3)
    export(agent_folder, tmp_path / "out", kind)
    agent = load_agent(agent_folder, greedy=True, trust_env_module=True)
    world = agent.make_env()
    observation, info = world.reset(seed=1)
    score, reward, over = 0.0, None, False
    while not over:
        action = agent.act(observation, reward=reward, action_mask=info.get("action_mask"))
        observation, reward, terminated, truncated, info = world.step(action)
        score, over = score + reward, terminated or truncated
    assert score_of_the_page(tmp_path / "out") == pytest.approx(score, rel=1e-5)


HALF = Box(-0.1, 0.3, (), np.float16)


@pytest.mark.parametrize(
    "space",
    [
        *(HALF, Box(-0.1, 0.3, (2, 1), np.float64), Box(-0.1, np.inf, (1,), np.float32)),
        *(Discrete(9, start=-3), MultiBinary((2, 2)), MultiDiscrete([9], dtype=np.int8)),
        MultiDiscrete([[3, 9], [8, 7]], start=[[0, 5], [-3, 1]], dtype=np.int8),
        Dict({"it's [1]": Tuple((Discrete(9), MultiDiscrete([9], start=[4], dtype=np.int32)))}),
        Tuple((HALF, Dict({"a": Discrete(9, start=3), "b": MultiBinary(2), "c": HALF}))),
    ],
    ids=str,
)
def test_the_script_of_the_page_acts_as_training_does(space):
    env, code = SimpleNamespace(action_space=space), ActionCode(space)
    row = np.ones(code.actions.shape, code.actions.dtype)  # beyond the bounds of numbers
    said = {"np": np, "env": env, "action": row[None]}
    done = eval(page._decoded(preprocessing._action(env)), said)
    assert space.contains(done)
    assert data_equivalence(done, code.decode(row.tolist()))


@pytest.mark.parametrize("kind", KINDS)
def test_the_script_of_the_page_plays_the_shipped_agent_of_pong(tmp_path, kind):
    export("models/pong", tmp_path / "pong", kind)
    agent = playing.load_agent("models/pong")
    vector = make_env_vector(agent.game_config(0), 1, [0])
    vector._seeds = np.array([1])  # of the emulator, as the script has it
    player = Player(agent.model, vector, [0], greedy=True)
    over = []
    while not over:
        over = player.step().episodes
    assert score_of_the_page(tmp_path / "pong") == over[0].return_raw > 10


def test_a_folder_of_something_else_is_left_alone(tmp_path, capsys):
    agent = write_agent(tmp_path / "agent")
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "network.onnx").write_text("theirs")
    for folder, more, message in (
        (tmp_path, [], "has a README.md that is not of an export"),
        (tmp_path / "theirs", [], "has a network.onnx that is not of an export"),
        (tmp_path / "out", ["--card"], "--card and --push are of model folders"),
    ):
        arguments = [f"--load_model_url={agent}", f"--output={folder}", "--format=torch", *more]
        with pytest.raises(SystemExit):
            main(arguments)
        assert message in capsys.readouterr().err
    assert (tmp_path / "README.md").read_text() == "mine"


@pytest.mark.parametrize("count", [1, 2])
def test_who_is_stopped_between_two_files_gives_the_same_command_again(tmp_path, count):
    agent, out = write_agent(tmp_path / "agent"), tmp_path / "out"
    plan = Plan([Fault(("file.replace",), "eio", nth=count + 1)])
    with faults.loaded(plan), pytest.raises(SystemExit):
        export(agent, out, "torch")
    assert len(list(out.iterdir())) == count
    export(agent, out, "torch")
    assert len(list(out.iterdir())) == 3


def test_a_disk_that_refuses_leaves_the_export_before_whole(tmp_path, monkeypatch, capsys):
    agent, out = write_agent(tmp_path / "agent"), tmp_path / "out"
    export(agent, out, "torch")
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def refuse(path, *_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(SystemExit):
        main([f"--load_model_url={agent}", f"--output={out}", "--format=torch"])
    assert "Cannot write the folder" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
