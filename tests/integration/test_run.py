import json
import signal
from pathlib import Path

import pytest

from ritornello import main
from ritornello.agent.stored.checkpoint import load
from ritornello.core.project import main_command
from ritornello.metrics.record import check_declared
from tests.integration.commands import (
    SMALL,
    interrupt,
    only_run,
    records,
    run,
    started,
    wait_for_records,
)

pytestmark = pytest.mark.process
STEPS = "--environment_max_steps=3000"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One finished run that several tests look at."""
    results = tmp_path_factory.mktemp("finished")
    status, output = run(results, *SMALL, STEPS, "--charts=True", "--tensorboard=True")
    assert status == 0, output
    return only_run(results), output


def test_a_run_writes_all_its_files(finished):
    folder, output = finished
    names = {path.name for path in folder.iterdir()}
    assert {
        "flags.json", "run.json", "metrics.jsonl", "train.log", "summary.json", "checkpoints",
        "Scores.txt", "Episode_steps.txt", "Train_time.txt", "Loss_file.txt", "lr_file.txt",
        "max_reward_file.txt", "training_summary.txt",
    } <= names  # fmt: skip
    assert any(name.startswith("events.out.tfevents") for name in names)
    assert list(folder.rglob("*.png"))
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["reason"] == "steps"
    assert summary["agent_steps"] >= 3000
    # How to go on, in lines that can be copied from a terminal of 80 columns.
    more = " \\\n  --environment_max_steps=6000"  # more than the run has made
    for mode, rest in (("resume", more), ("test", "")):
        command = f"{main_command()} \\\n  --{mode}={folder}{rest}\n"
        assert command in output
    assert "\nOptimizer: adam" in (folder / "training_summary.txt").read_text()
    games = (folder / "Scores.txt").read_text().splitlines()
    assert len(games) == records(folder)[-1]["episodes"] > 5
    metrics = {name for record in records(folder) for name in record["values"]}
    assert len(metrics) > 30
    for name in metrics:
        check_declared(name)


@pytest.mark.slow
def test_a_run_can_be_resumed_in_its_folder_and_in_a_new_one(tmp_path):
    status, output = run(tmp_path, *SMALL, "--environment_max_steps=1500")
    assert status == 0, output
    folder = only_run(tmp_path)
    before = records(folder)[-1]
    resume = ("--op_mode=train_w_load", f"--load_model_url={folder}")
    status, output = run(tmp_path, *resume, "--environment_max_steps=2500")
    assert status == 0, output
    assert only_run(tmp_path) == folder
    after = records(folder)[-1]
    for counter in ("agent_steps", "updates", "episodes", "wall_s"):
        assert after[counter] > before[counter]
    assert json.loads((folder / "flags.json").read_text())["seed"] == 3
    status, output = run(tmp_path, *resume, "--environment_max_steps=3500", "--new_run_folder=True")
    assert status == 0, output
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.slow
def test_render_records_a_film_where_there_is_no_display(finished, tmp_path, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    folder, _ = finished
    status, output = run(
        tmp_path, "--op_mode=test", f"--load_model_url={folder}", "--test_episode_count=1",
        "--render=True", "--greedy=True",
    )  # fmt: skip
    assert status == 0, output
    (film,) = folder.glob("*.mp4")
    assert film.stat().st_size > 1000
    assert str(film) in output


MISTAKES = {
    "unknown flag": (["--worker_cuont=2"], "did you mean --worker_count"),
    "unknown game": (["--env=PongoNoFrameskip-v4"], "PongNoFrameskip-v4"),
    "ratio sum": (
        ['--replay_parameters=[{"type":"queue","capacity":1,"sample_ratio":0.7}]'],
        "sums to 0.7",
    ),
    "missing checkpoint": (
        ["--op_mode=train_w_load", "--load_model_url=/nonexistent/run"],
        "/nonexistent/run does not exist",
    ),
    "no memory": (
        [
            '--replay_parameters=[{"type":"queue","capacity":1,"sample_ratio":0.5},'
            '{"type":"standard","capacity":900000000,"sample_ratio":0.5}]'
        ],
        "of memory",
    ),
    "shared memory": (
        ["--shared_queue_size=1000", "--worker_count=1000", "--envs_per_worker=1000"],
        "shared memory",
    ),
    "image model on a vector": (["--env=CartPole-v1", "--model=nature"], "needs images"),
    "no closed form": (
        ["--env=Pendulum-v1", "--use_kl_mask=True", "--kl_mask_kind=implied"],
        "--kl_mask_kind=kl_pi_mu",
    ),
    "several learners": (["--learner_count=2", "--reproducible=True"], "one learner was started"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_is_one_message_and_status_2_before_anything_is_made(tmp_path, capfd, name):
    flags, expected = MISTAKES[name]
    status = main.main([f"--results_dir={tmp_path / 'results'}", *flags])
    written = capfd.readouterr()
    output = written.out + written.err
    assert status == 2, output
    assert expected in output
    assert "Traceback" not in output
    assert len(output.splitlines()) <= 6
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        *(pytest.param(n, marks=pytest.mark.slow) for n in (signal.SIGTERM, signal.SIGHUP)),
    ],
)
def test_after_stop_no_child_process_no_shared_memory_and_no_temporary_file_is_left(
    tmp_path, number
):
    shared = Path("/dev/shm")
    before = set(shared.iterdir()) if shared.exists() else set()
    with started(tmp_path, *SMALL, "--environment_max_steps=100000000") as process:
        folder = wait_for_records(tmp_path, 1)
        status, output = interrupt(process, number)
    assert status == 130, output
    assert not list(folder.rglob("*.tmp"))
    if shared.exists():
        assert {p for p in set(shared.iterdir()) - before if "vtrace" in p.name} == set()
    checkpoint = load(folder)
    assert checkpoint.state["tally"]["updates"] == records(folder)[-1]["updates"]
    assert json.loads((folder / "summary.json").read_text())["reason"] == "interrupted"
