"""Whoever of a run is killed, whatever the others are doing: nothing is left."""

import os
import signal
import subprocess
import sys

import pytest

from ritornello.agent.stored.checkpoint import load
from tests import troubled
from tests.deadlines import HANGS_S, wait_until
from tests.integration.commands import ROOT, SMALL, descendants, start, wait_for_records
from tests.troubled import lives

pytestmark = pytest.mark.process


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Starts main.py with an environment of tests/troubled.py; killed in the end."""
    monkeypatch.setenv("TROUBLE_DIR", str(tmp_path))
    started = []

    def begin(env, *more):
        env_flag = f"--env=tests.troubled:tests/{env}-v0"
        flags = [flag for flag in SMALL if not flag.startswith("--env=")]
        process = start(tmp_path / "results", env_flag, *flags, *more)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()
    for pid in troubled.simulators(tmp_path):
        if lives(pid):
            os.kill(pid, signal.SIGKILL)


def test_nothing_outlives_a_killed_learner_whose_environments_hang_and_own_processes(run, tmp_path):
    process = run("OwningAndHanging")
    wait_until(lambda: (tmp_path / "hangs").exists(), "no environment hangs")
    # Two workers with two environments each, or one of them at least: it hangs in its first step.
    everybody = {child.pid for child in descendants(process.pid)}
    assert len(everybody) >= 4
    process.kill()
    everybody |= troubled.simulators(tmp_path)
    wait_until(
        lambda: not any(lives(pid) for pid in everybody),
        f"left behind: {[pid for pid in everybody if lives(pid)]}",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flag", "number"),
    [
        ("--reproducible=True", signal.SIGKILL),
        ("--reproducible=True", signal.SIGINT),
        ("--worker_count=1", signal.SIGINT),
    ],
)
def test_what_environments_forget_ends_with_the_run_however_that_ends(run, tmp_path, flag, number):
    process = run("Careless", flag)
    wait_for_records(tmp_path / "results", 1)
    assert len([pid for pid in troubled.simulators(tmp_path) if lives(pid)]) >= 2
    everybody = {child.pid for child in descendants(process.pid)}
    process.send_signal(number)
    output, _ = process.communicate(timeout=HANGS_S)
    assert process.returncode == (130 if number == signal.SIGINT else -number), output
    everybody |= troubled.simulators(tmp_path)
    wait_until(lambda: not any(lives(pid) for pid in everybody), "left behind")


@pytest.mark.slow
def test_a_clean_stop_closes_environments_and_leaves_nothing(run, tmp_path):
    process = run("Owning")
    wait_for_records(tmp_path / "results", 1)
    everybody = {child.pid for child in descendants(process.pid)}
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=HANGS_S)
    assert process.returncode == 130, output
    owned = troubled.simulators(tmp_path)
    assert len(owned) >= 4
    assert troubled.closed(tmp_path) == owned
    wait_until(lambda: not any(lives(pid) for pid in everybody | owned), "left behind")

    run_folder = next((tmp_path / "results").glob("*/checkpoints")).parent
    test = run(
        "Owning", "--op_mode=test", f"--load_model_url={run_folder}",
        "--test_episode_count=100000",
    )  # fmt: skip

    def playing():
        alive = {pid for pid in troubled.simulators(tmp_path) if lives(pid)}
        return alive if len(alive) >= 2 else None  # the trial at the start is of one

    everybody = wait_until(playing, "no game is played")
    test.kill()
    wait_until(lambda: not any(lives(pid) for pid in everybody), "left behind by a test")


@pytest.mark.slow
def test_a_run_of_a_killed_sequence_saves_and_ends(tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text("name: one\nseeds: [1]\nruns:\n- name: only\n  flags: {lr: 0.001}\n")
    flags = [flag for flag in SMALL if not flag.startswith("--seed")]
    with subprocess.Popen(
        [
            sys.executable, "multi_train.py", f"--sequence={plan}", f"--results_dir={tmp_path}",
            "--", *flags, "--log_interval_s=0.5", "--charts=False", "--tensorboard=False",
        ],
        cwd=ROOT, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as sequence:  # fmt: skip
        try:
            folder = wait_until(lambda: list(tmp_path.glob("one_*/001_*")), "no run")[0]
            run_folder = wait_for_records(folder, 1)
            everybody = {child.pid for child in descendants(sequence.pid)}
            assert len(everybody) >= 3
            assert not list((run_folder / "checkpoints").glob("update_*.pt"))
        finally:
            sequence.kill()
    wait_until(lambda: not any(lives(pid) for pid in everybody), "left behind")
    assert load(str(run_folder)).state["tally"]["updates"] > 0
