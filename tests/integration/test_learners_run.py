"""Several learners as a user starts them: how they train, and how they end."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ritornello.agent.stored.checkpoint import load
from tests.agent.test_steering import state_of, tell
from tests.deadlines import wait_until
from tests.integration.commands import (
    HANGS_S,
    QUIET,
    ROOT,
    SMALL,
    descendants,
    interrupt,
    only_run,
    records,
    run,
    started,
    wait_for_records,
)
from tests.integration.test_endings import has_begun
from tests.integration.unlucky_learners import UPDATES

pytestmark = pytest.mark.process
TWO = "--learner_count=2"
ENDLESS = "--environment_max_steps=100000000"
UNLUCKY = "--algorithm=tests.integration.unlucky_learners"


def updates_saved(folder):
    return load(folder).state["tally"]["updates"]


def finish(process, children):
    """Wait for the end; return status and output. Nothing may be left."""
    try:
        output, _ = process.communicate(timeout=HANGS_S)
    finally:
        process.kill()
    wait_until(lambda: not any(child.is_running() for child in children), "left behind")
    return process.returncode, output


def learners_of(process):
    """The processes of the learners, in order, of a run that has begun to train."""
    learners = [
        child
        for child in psutil.Process(process.pid).children()
        if any(part.endswith("main.py") for part in child.cmdline())
    ]
    return sorted(learners, key=lambda child: child.create_time())


NUMBERS = ("--env=tests.worlds:tests/Remote-v0", "--preset=vector", "--normalise_vectors=True")


@pytest.mark.parametrize(
    "world",
    [
        pytest.param((), id="one choice"),
        pytest.param(NUMBERS, id="real numbers, normalised", marks=pytest.mark.slow),
    ],
)
def test_two_learners_train_as_one_run(tmp_path, world):
    status, output = run(
        tmp_path, *SMALL, *world, TWO, "--worker_count=1", "--environment_max_steps=2000"
    )
    assert status == 0, output
    folder = only_run(tmp_path)
    assert "2 learners; each has such workers, and batches of 4 unrolls of its own: 8 together" in (
        output
    )
    assert output.count("all agent steps are done") == 1, "only the first learner speaks"
    command = output.partition("resume: ")[2].partition("test: ")[0]
    assert f"--resume={folder}" in command
    assert "--learner_count=2" in command
    first = records(folder)[-1]
    assert first["agent_steps"] >= 2000
    assert updates_saved(folder) == first["updates"]
    # Each update takes new unrolls of both: two learners, 7 of 16 of a batch of 4 each, 5 steps.
    assert first["updates"] <= first["agent_steps"] / (2 * 1.75 * 5) + 10
    beside = [path.name for path in folder.iterdir() if "rank1" in path.name]
    assert sorted(beside) == ["metrics-rank1.jsonl", "train-rank1.log"]
    assert "the run failed" not in (folder / "train-rank1.log").read_text("utf-8")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks at /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_learners_are_started_reaches_them_when_they_have_begun(
    tmp_path, number
):
    with started(tmp_path, *SMALL, TWO, ENDLESS) as process:
        wait_until(lambda: has_begun(process), process=process)
        process.send_signal(number)
        output, _ = process.communicate(timeout=HANGS_S)
    assert process.returncode == 130, output
    assert set(output.splitlines()) == {"interrupted before anything was begun"}


@pytest.mark.slow
def test_two_learners_take_the_commands_that_all_can_follow_and_end_after_one_save(tmp_path):
    """A pause or another learning rate would be that of one learner alone."""
    with started(tmp_path, *SMALL, TWO, ENDLESS) as process:
        folder = wait_for_records(tmp_path, 2)
        assert state_of(folder)["commands"] == ["save", "stop"]
        for command in (("pause",), ("set", {"lr_factor": 0.5}), ("evaluate",)):
            assert tell(folder, *command) == "refused: this run takes only save, stop"
        assert tell(folder, "save").startswith("done: update ")
        status, output = interrupt(process)
    assert status == 130, output
    assert output.count("stopping: saving a checkpoint") == 1
    assert updates_saved(folder) == records(folder)[-1]["updates"]
    noted = json.loads((folder / "run.json").read_text("utf-8"))["control"]
    assert [each["command"] for each in noted] == ["pause", "set", "evaluate", "save"]
    assert not list((folder / "control").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("raises", "learner 1 failed: RuntimeError: out of luck"),
        ("killed", "learner 1 ended without a word"),
        ("nan", "the batch of learner 1 is not finite"),
        ("stopped", "learner 1 did not answer for"),
    ],
)
def test_a_learner_that_is_lost_ends_the_run_with_the_last_complete_update(
    tmp_path, name, sentence
):
    with started(
        tmp_path, *SMALL, TWO, ENDLESS, f"{UNLUCKY}:{name}", "--max_bad_updates=3"
    ) as process:
        folder = wait_for_records(tmp_path, 1)
        children = descendants(process.pid)
        status, output = finish(process, children)
    assert status == 1, output
    assert output.count("the run failed") == 1, output
    assert sentence in output
    assert "Traceback" not in output
    assert updates_saved(folder) == UPDATES
    # The luck of a session begins anew with it; 400 steps are fewer updates than UPDATES.
    steps = records(folder)[-1]["agent_steps"] + 400
    status, output = run(
        tmp_path, "--op_mode=train_w_load", f"--load_model_url={folder}", TWO,
        f"{UNLUCKY}:{name}", f"--environment_max_steps={steps}",
    )  # fmt: skip
    assert status == 0, output
    assert updates_saved(folder) > UPDATES


@pytest.mark.slow
@pytest.mark.parametrize("lost", [1, 2])
def test_the_learner_that_is_left_saves_if_the_first_is_killed(tmp_path, lost):
    with started(
        tmp_path, *SMALL, f"--learner_count={lost + 1}", "--worker_count=1", ENDLESS
    ) as process:
        folder = wait_for_records(tmp_path, 2)
        children = descendants(process.pid)
        for learner in learners_of(process)[:lost]:
            learner.kill()
        status, output = finish(process, children)
    assert status == 1, output
    assert output.count("learner 0 was killed by SIGKILL") == 1
    assert "frame #" not in output
    log = (folder / f"train-rank{lost}.log").read_text("utf-8")
    assert "the run failed: learner 0 ended without a word" in log
    last = (folder / f"metrics-rank{lost}.jsonl").read_text("utf-8").splitlines()[-1]
    assert updates_saved(folder) == json.loads(last)["updates"] > 0


@pytest.mark.slow
def test_torchrun_starts_them_too_and_its_sigterm_saves(tmp_path):
    process = subprocess.Popen(
        [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
            "main.py", f"--results_dir={tmp_path}", *QUIET, *SMALL, ENDLESS,
        ],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        folder = wait_for_records(tmp_path, 2)
        children = descendants(process.pid)
        process.terminate()
        _, output = finish(process, children)
    finally:
        process.kill()
    assert output.count("stopping: saving a checkpoint") == 1, output
    assert (folder / "metrics-rank1.jsonl").exists()
    assert updates_saved(folder) == records(folder)[-1]["updates"]


@pytest.mark.slow
def test_a_mistake_is_said_once_with_status_2(tmp_path):
    status, output = run(tmp_path, *SMALL, TWO, "--reproducible=True")
    assert status == 2
    assert output.count("error:") == 1
    assert "--reproducible=True with 2 learners: expected one" in output
    assert not list(tmp_path.iterdir())
