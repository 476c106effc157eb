"""Environments that are registered where worker processes do not find them."""

import subprocess
import sys
from types import SimpleNamespace

import gymnasium
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.envs.registration import EnvSpec

from ritornello import ConfigError, train
from ritornello.interpreter import check_known_to_workers, is_of_the_caller
from tests import fakes
from tests.deadlines import HANGS_S
from tests.house import ROOT
from tests.library.runs import TINY

PLAY = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
class Mine(CartPoleEnv):
    pass
{top}
import ritornello
def run():
    flags = dict(env={env}, environment_max_steps=400, worker_count=1, charts=False,
        training_fill_in_factor=0.01, batch_size=2, r_f_steps=5)
    print(ritornello.train(**flags, {more}).reason)
if __name__ == "__main__":
    {below}
    run()
"""
ID = "'Mine-v0'"
REGISTER = "gymnasium.register('Mine-v0', entry_point=Mine, max_episode_steps=50)"


def run(folder, *command, **options):
    return subprocess.run(
        [sys.executable, *command], cwd=folder, text=True, capture_output=True, check=False,
        timeout=HANGS_S, env={"PYTHONPATH": str(ROOT), "HOME": str(folder)}, **options,
    )  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize(
    ("top", "below", "env", "more", "trains"),
    [
        pytest.param(REGISTER, "", ID, "", True, marks=pytest.mark.slow),
        ("", REGISTER, ID, "", False),
        ("", REGISTER, f"[{ID}]", "", False),
        pytest.param("", REGISTER, ID, "reproducible=True", True, marks=pytest.mark.slow),
    ],
    ids=["top", "guard", "list", "in process"],
)
def test_an_id_below_the_guard_is_refused_where_workers_need_it(
    tmp_path, top, below, env, more, trains
):
    script = PLAY.format(top=top, below=below or "pass", env=env, more=more)
    (tmp_path / "script.py").write_text(script)
    done = run(tmp_path, "script.py")
    if trains:
        assert done.stdout.strip().endswith("steps"), done.stderr
        assert 'evaluate("' in done.stdout + done.stderr
        assert "--resume=" not in done.stdout + done.stderr
    else:
        assert "<module>:Mine-v0" in done.stderr
        assert not (tmp_path / "results").exists()


@pytest.mark.process
def test_a_resume_is_refused_where_workers_would_play_its_run(tmp_path, monkeypatch):
    mine = EnvSpec("Mine-v0", entry_point=lambda: CartPoleEnv())
    monkeypatch.setitem(gymnasium.registry, "Mine-v0", mine)
    done = train(**TINY | {"env": "Mine-v0"}, results_dir=tmp_path)
    more = {"environment_max_steps": 200, "console": False}
    with pytest.raises(ConfigError, match="env is 'Mine-v0', which is registered in this process"):
        train(resume=done.folder, reproducible=False, **more)
    assert train(resume=done.folder, env="Mine-v0", **more).agent_steps >= 200


@pytest.mark.process
def test_a_module_that_is_named_for_one_game_may_register_another():
    assert is_of_the_caller("tests/Owing-v0")
    both = f"{fakes.__name__}:tests/Counting-v0,tests/Owing-v0"
    check_known_to_workers(SimpleNamespace(env=both, reproducible=False))


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("by", ["notebook", "standard input"])
def test_what_no_process_can_read_again_is_refused(tmp_path, by):
    program = PLAY.format(top=REGISTER, below="pass", env=ID, more="")
    if by == "notebook":
        done, expected = run(tmp_path, "-c", program), "<module>:Mine-v0"
    else:
        done, expected = run(tmp_path, "-", input=program), "write it into a file"
    assert expected in done.stderr
    assert not (tmp_path / "results").exists()
