"""Environments that are registered where worker processes do not find them."""

import subprocess
import sys

import pytest

from tests.deadlines import HANGS_S
from tests.house import ROOT

PLAY = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
class Mine(CartPoleEnv):
    pass
{top}
import ritornello
def run():
    flags = dict(env="Mine-v0", environment_max_steps=400, worker_count=1, charts=False,
        training_fill_in_factor=0.01, batch_size=2, r_f_steps=5)
    print(ritornello.train(**flags, {more}).reason)
if __name__ == "__main__":
    {below}
    run()
"""
REGISTER = "gymnasium.register('Mine-v0', entry_point=Mine, max_episode_steps=50)"


def run(folder, *command, **options):
    return subprocess.run(
        [sys.executable, *command], cwd=folder, text=True, capture_output=True, check=False,
        timeout=HANGS_S, env={"PYTHONPATH": str(ROOT), "HOME": str(folder)}, **options,
    )  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize(
    ("top", "below", "more", "trains"),
    [
        pytest.param(REGISTER, "", "", True, marks=pytest.mark.slow),
        ("", REGISTER, "", False),
        pytest.param("", REGISTER, "reproducible=True", True, marks=pytest.mark.slow),
    ],
    ids=["top", "guard", "in process"],
)
def test_an_id_below_the_guard_is_refused_where_workers_need_it(tmp_path, top, below, more, trains):
    (tmp_path / "script.py").write_text(PLAY.format(top=top, below=below or "pass", more=more))
    done = run(tmp_path, "script.py")
    if trains:
        assert done.stdout.strip().endswith("steps"), done.stderr
        assert 'evaluate("' in done.stdout + done.stderr
        assert "--resume=" not in done.stdout + done.stderr
    else:
        assert "<module>:Mine-v0" in done.stderr
        assert not (tmp_path / "results").exists()


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("by", ["notebook", "standard input"])
def test_what_no_process_can_read_again_is_refused(tmp_path, by):
    program = PLAY.format(top=REGISTER, below="pass", more="")
    if by == "notebook":
        done, expected = run(tmp_path, "-c", program), "<module>:Mine-v0"
    else:
        done, expected = run(tmp_path, "-", input=program), "write it into a file"
    assert expected in done.stderr
    assert not (tmp_path / "results").exists()
