"""A training as a call: it ends as it says, and leaves the interpreter as it was."""

import logging
import os
import signal
import subprocess
import sys
import threading
import warnings

import pytest
import torch

from ritornello import ConfigError, Interrupted, read_run, train
from ritornello.interpreter import alone
from ritornello.wrappers import trusted_modules
from tests.deadlines import HANGS_S
from tests.faulty import InjectedFault
from tests.house import ROOT
from tests.library.runs import COUNTING, TINY, fault

# Set by pytest for each test, and by PyTorch when it first needs its compiler's folder.
NOT_OURS = {"PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR"}


def surroundings():
    """All that a training changes in a process which is its own."""
    root = logging.getLogger()
    return {
        "signals": [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)],
        "wakeup": signal.set_wakeup_fd(-1),
        "handlers": list(root.handlers),
        "level": root.level,
        "chatty": logging.getLogger("matplotlib").level,
        "warnings": warnings.showwarning,
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "benchmark": torch.backends.cudnn.benchmark,
        "random": torch.random.get_rng_state().tolist(),
        "environment": {n: v for n, v in os.environ.items() if n not in NOT_OURS},
        "trusted": set(trusted_modules._trusted),
        "running": {t.name for t in threading.enumerate()},
        "folder": os.getcwd(),
    }


@pytest.fixture
def surrounded():
    """Look at the surroundings before and after a test, and compare."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.backends.cudnn.benchmark = True
    seen = surroundings()
    yield
    after = surroundings()
    torch.set_num_threads(before)
    torch.backends.cudnn.benchmark = False
    assert after == seen


@pytest.mark.usefixtures("surrounded")
def test_two_trainings_in_one_interpreter_leave_nothing_behind(tmp_path, capfd):
    trusted_modules._trusted.discard("tests.fakes")  # the call itself types it
    one, two = (train(**TINY, results_dir=tmp_path) for _ in range(2))
    trusted_modules._trusted.add("tests.fakes")
    assert one.folder != two.folder
    assert (one.reason, one.updates) == ("steps", two.updates)
    assert one.agent_steps == two.agent_steps >= TINY["environment_max_steps"]
    first, second = read_run(one.folder), read_run(two.folder)
    assert len(first["updates"]) == one.updates
    assert first["loss/total"].tolist() == second["loss/total"].tolist()
    said = [(run.folder / "train.log").read_text("utf-8") for run in (one, two)]
    assert all(text.count("all agent steps are done") == 1 for text in said)
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("surrounded")
def test_ctrl_c_saves_and_raises_with_the_summary(tmp_path):
    with (
        pytest.raises(Interrupted, match="resumes it") as caught,
        fault(at="learner.step", nth=3, do="sigint"),
    ):
        train(**TINY, results_dir=tmp_path)
    summary = caught.value.result
    assert isinstance(caught.value, KeyboardInterrupt)
    assert summary.reason == "interrupted"
    assert 0 < summary.agent_steps < TINY["environment_max_steps"]
    done = train(
        op_mode="train_w_load", load_model_url=summary.folder, results_dir=tmp_path,
        env=COUNTING, console=False,
    )  # fmt: skip
    straight = train(**TINY, results_dir=tmp_path)
    assert done.folder == summary.folder
    assert (done.reason, done.updates) == ("steps", straight.updates)
    assert done.best_return == straight.best_return


@pytest.mark.usefixtures("surrounded")
def test_another_signal_is_answered_after_the_saving_as_it_was_before(tmp_path):
    came = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        with fault(at="learner.step", nth=3, do="sigterm"):
            summary = train(**TINY, results_dir=tmp_path)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == [signal.SIGTERM]
    assert summary.reason == "interrupted"
    assert list((summary.folder / "checkpoints").glob("*.pt"))


@pytest.mark.usefixtures("surrounded")
def test_a_run_that_fails_raises_what_went_wrong(tmp_path):
    with (
        pytest.raises(InjectedFault, match=r"learner\.step"),
        fault(at="learner.step", nth=3, do="raise"),
    ):
        train(**TINY, results_dir=tmp_path)
    (folder,) = tmp_path.iterdir()
    assert "the run failed" in (folder / "train.log").read_text("utf-8")


@pytest.mark.usefixtures("surrounded")
def test_another_thread_trains_and_is_asked_to_stop(tmp_path):
    stop, results = threading.Event(), []
    flags = {**TINY, "environment_max_steps": 10**9}
    thread = threading.Thread(
        target=lambda: results.append(train(**flags, results_dir=tmp_path, stop=stop))
    )
    thread.start()
    deadline = threading.Event()
    for _ in range(int(HANGS_S * 20)):
        if any(path.stat().st_size for path in tmp_path.glob("*/metrics.jsonl")):
            break
        deadline.wait(0.05)
    with pytest.raises(ConfigError, match="another train or evaluate is going on"):
        train(**TINY, results_dir=tmp_path)
    stop.set()
    thread.join(HANGS_S)
    (summary,) = results
    assert summary.reason == "interrupted"
    assert list((summary.folder / "checkpoints").glob("*.pt"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"op_mode": "test"}, "evaluate"),
        ({"test": "models/pong"}, "evaluate"),
        ({"stop": True}, "expected an event"),
        ({"stop": threading.Event}, "expected an event"),
        ({"learner_count": 2}, "one learner was started"),
        ({"background": True}, "priority of this interpreter"),
        ({"background": "true"}, "priority of this interpreter"),
        ({"lr": -1}, "--lr=-1"),
        ({"larning_rate": 1}, "unknown option"),
        ({"lr": object()}, "expected text, a number"),
        ({"env_kwargs": {"a": {1, 2}}}, "JSON"),
    ],
)
@pytest.mark.usefixtures("surrounded")
def test_flags_that_cannot_be_are_refused_before_anything_is_made(tmp_path, flags, message):
    with pytest.raises(ConfigError, match=message):
        train(**{**TINY, **flags}, results_dir=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("surrounded")
def test_a_file_cannot_lower_the_priority_of_the_interpreter_either(tmp_path):
    file = tmp_path / "flags.yaml"
    file.write_text("background: true\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="priority of this interpreter"):
        train(**TINY, flags_file=file, results_dir=tmp_path / "results")


def test_only_one_training_at_a_time():
    with alone("this"), pytest.raises(ConfigError, match="that was called"), alone("that"):
        pass
    with alone("again"):
        pass


SCRIPT = """
import sys
from ritornello.interpreter import check_script
def begin():
    check_script()
{guard}
    begin()
print("went on")
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("guard", "status"),
    [("if True:", 1), pytest.param('if __name__ == "__main__":', 0, marks=pytest.mark.slow)],
)
def test_a_script_that_its_workers_would_run_again_is_told_so(tmp_path, guard, status):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(guard=guard), encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )
    assert ended.returncode == status, ended.stderr
    assert ("went on" in ended.stdout) == (status == 0)
    assert ('if __name__ == "__main__"' in ended.stderr) == (status == 1)
