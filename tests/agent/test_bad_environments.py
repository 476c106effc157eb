"""What a user's environment does wrong is one message: before the start, or at its step."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest
import torch

from ritornello.agent.session import prepare
from ritornello.agent.testing import whole_games
from ritornello.core.errors import CheckpointError, ConfigError
from tests.deadlines import HANGS_S

ROOT = Path(__file__).parents[2]
MODULE = """
import gymnasium, numpy as np
from gymnasium.spaces import Box, Discrete


class Env(gymnasium.Env):
    observation_space = Box(-1, 1, (4,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(4, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(4, np.float32), 1.0, self.t % 7 == 0, False, {}


"""


@pytest.fixture
def user_module(tmp_path, monkeypatch):
    """Write my_envs.py as a user would; whatever it registers is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    known = dict(gymnasium.registry)

    def write(code, entry_point="Env"):
        register = f"gymnasium.register('Mine-v0', entry_point={entry_point})\n"
        (tmp_path / "my_envs.py").write_text(MODULE + code + "\n" + register)
        importlib.invalidate_caches()
        return "--env=my_envs:Mine-v0"

    yield write
    sys.modules.pop("my_envs", None)
    gymnasium.registry.clear()
    gymnasium.registry.update(known)


def refusal(*argv):
    """Return the message with which a command is refused: short, printable, one."""
    with pytest.raises((ConfigError, CheckpointError)) as caught:
        prepare(argv)
    message = str(caught.value)
    assert message.isprintable(), message
    assert len(message) < 1000
    return message


def trained(env, results):
    """Return the folder of a short run in an environment."""
    flags = (
        "--reproducible=True", "--environment_max_steps=300", "--envs_per_worker=1",
        "--r_f_steps=5", "--batch_size=4", "--training_fill_in_factor=0", "--basic_verbose=False",
        "--tensorboard=False", "--charts=False",
    )  # fmt: skip
    assert prepare([env, f"--results_dir={results}", *flags]).run() == 0
    (run,) = results.iterdir()
    return run


@pytest.mark.parametrize(
    ("code", "error", "line"),
    [
        ("x = undefined_name", "NameError: name 'undefined_name'", "`x = undefined_name`"),
        ("import no_such_package", "No module named 'no_such_package'", "install no_such_package"),
        ("raise SystemExit(3)", "SystemExit: 3", "`raise SystemExit(3)`"),
    ],
)
def test_a_module_with_a_bug_is_named_with_error_and_line(user_module, code, error, line):
    message = refusal(user_module(code))
    assert "my_envs" in message
    assert "while it was imported" in message
    assert "my_envs.py, line 19" in message
    assert error in message
    assert line in message


def test_a_module_that_is_not_there_is_told_apart_from_one_that_lacks_something():
    assert "there is none of that name" in refusal("--env=no_such_module:Mine-v0")
    assert "there is none of that name" in refusal("--env=tests.no_such_module:Mine-v0")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("    def __init__(self): exit(1)", "raised SystemExit: 1 .*line 20.*when it was made"),
        ("    def reset(self): return None, {}", "reset must take seed and options"),
        ("    def step(self, action): return 1 // 0", "step 1, action .: raised ZeroDivisionError"),
        ("    def step(self, action): return 0, 0, 0", "step 1, action .: step returned 3 values"),
        ("    def close(self): raise OSError('busy')", "OSError: busy .* when it was closed"),
        ("    action_space = None", "takes None, which is not supported"),
    ],
)
def test_mistakes_of_the_first_game_are_told_before_anything_is_started(user_module, code, message):
    assert re.search(message, refusal(user_module(f"class Bad(Env):\n{code}", "Bad")))


def test_an_environment_that_knows_no_render_mode_is_refused_only_where_it_is_to_be_shown(
    user_module, tmp_path, monkeypatch
):
    monkeypatch.setattr(whole_games, "has_display", lambda: False)
    env = user_module("class Blind(Env):\n    def __init__(self): pass", "Blind")
    run = trained(env, tmp_path / "results")
    test = (env, "--op_mode=test", f"--load_model_url={run}", "--test_episode_count=1")
    message = refusal(*test, "--render=True")
    assert "got an unexpected keyword argument 'render_mode'" in message
    assert "an environment must take render_mode" in message
    assert prepare(test).run() == 0


def test_a_lie_in_test_mode_is_one_line_and_exit_status_1(user_module, tmp_path, capsys):
    code = """class Late(Env):
    lies = False
    def step(self, action):
        observation, *others = super().step(action)
        shown = observation * float("nan") if Late.lies and self.t == 5 else observation
        return (shown, *others)"""
    env = user_module(code, "Late")
    run = trained(env, tmp_path / "results")
    sys.modules["my_envs"].Late.lies = True
    session = prepare([env, "--op_mode=test", f"--load_model_url={run}"])
    assert session.run() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(
        r"error: env .*Mine-v0.* game 1, step 5, action .: observation\[0\] is nan", line
    )


def test_a_file_of_torchbeast_is_told_how_to_be_used(tmp_path):
    path = tmp_path / "model.tar"
    torch.save({"model_state_dict": {"w": torch.zeros(2)}, "stats": object()}, path)
    message = refusal("--op_mode=test", f"--load_model_url={path}")
    assert f"python -m ritornello.agent.torchbeast {path} models/<name>" in message


@pytest.mark.slow
@pytest.mark.process
def test_a_thread_of_an_environment_keeps_no_command_from_ending(tmp_path):
    (tmp_path / "stays.py").write_text(
        "import threading\nimport gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Stays(CartPoleEnv):\n"
        "    def __init__(self, render_mode=None):\n"
        "        super().__init__(render_mode=render_mode)\n"
        "        threading.Thread(target=threading.Event().wait).start()\n"
        "gymnasium.register('Stays-v0', entry_point=Stays, max_episode_steps=50)\n"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ritornello.main", "--env=stays:Stays-v0"),
            *("--environment_max_steps=2000", "--reproducible=True"),
        ],
        cwd=tmp_path, env={"PYTHONPATH": f"{ROOT}:{tmp_path}"}, timeout=HANGS_S,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
