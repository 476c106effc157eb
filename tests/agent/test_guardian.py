"""The guardian with a learner that does what a plan says, without torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from ritornello.agent.run import guardian
from ritornello.agent.run.guardian import Guardian, report_run_folder, restarts_wanted
from tests.deadlines import HANGS_S

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[2]
# Does the n-th thing of the plan as the n-th learner, and notes how it was called.
LEARNER = f"""
import json, os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from ritornello.agent.run.guardian import REPORT, report_run_folder, restarts_wanted
from ritornello.core.process_death import end_with_starter
here = Path(__file__).parent
end_with_starter()
assert restarts_wanted(sys.argv[1:]) == 0, "a guarded learner needs no other guardian"
assert REPORT not in os.environ
calls = here / "calls"
number = len(calls.read_text().splitlines()) if calls.exists() else 0
with calls.open("a") as file:
    print(json.dumps([os.getpid(), *sys.argv[1:]]), file=file)
run = here / "run"
for step in json.loads((here / "plan").read_text())[number]:
    if isinstance(step, str) and step.startswith("report"):
        (run / "checkpoints").mkdir(parents=True, exist_ok=True)
        (run / "summary.json").unlink(missing_ok=True)
        report_run_folder(run, *map(int, step.split()[1:]))
    elif isinstance(step, str) and step.startswith("end"):
        (run / "summary.json").write_text(json.dumps({{"reason": step.split()[1]}}))
    elif isinstance(step, str) and step.startswith("save"):
        (run / "checkpoints" / f"update_{{int(step.split()[1]):09d}}.pt").touch()
    elif step == "linger":
        ends = []
        signal.signal(signal.SIGTERM, lambda *_: ends.append(1))
        (here / "waits").touch()
        while not ends:
            time.sleep(0.01)
        time.sleep(1)
        (here / "saved").write_text(str(len(ends)))
        sys.exit(130)
    elif step == "wait":
        signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
        (here / "waits").touch()
        time.sleep(3600)
    elif step < 0:
        os.kill(os.getpid(), -step)
    else:
        sys.exit(step)
"""


@pytest.fixture
def play(tmp_path, monkeypatch, capfd):
    """Runs a guardian over a plan: (exit status, command lines of the learners, what was said)."""
    program = tmp_path / "learner.py"
    program.write_text(textwrap.dedent(LEARNER))
    monkeypatch.setattr(guardian, "MAIN_PROGRAM", program)
    monkeypatch.setattr(guardian, "FIRST_DELAY_S", 0.01)

    def run(plan, argv=("--env=CartPole-v1", "--auto_restart=3"), max_restarts=3):
        (tmp_path / "plan").write_text(json.dumps(plan))
        status = Guardian(argv, max_restarts).run()
        lines = (tmp_path / "calls").read_text().splitlines()
        return status, [json.loads(line)[1:] for line in lines], capfd.readouterr().err

    return run


KILLED, CRASHED = -signal.SIGKILL, -signal.SIGSEGV


def test_a_group_whose_first_learner_was_killed_is_started_again(play):
    """A launcher tells its guardian so by its status, since it is not killed itself."""
    status, calls, said = play([["report", 128 + signal.SIGKILL], [0]])
    assert (status, len(calls)) == (0, 2)
    assert "killed by signal 9 (SIGKILL)" in said


def test_a_number_of_restarts_that_nobody_can_mean_is_left_to_the_check_of_the_flags():
    assert restarts_wanted([f"--auto_restart={'9' * 5000}"]) == 0


@pytest.mark.parametrize("status", [0, 2, 130])
def test_an_end_is_an_end(play, status):
    assert play([["report", "save 7", status]])[::2] == (status, "")


def test_a_killed_learner_resumes_its_newest_checkpoint(play, tmp_path):
    status, calls, said = play(
        [["report", "save 7", KILLED], ["report", "save 9", CRASHED], ["report", 0]]
    )
    assert status == 0
    resume = ["--op_mode=train_w_load", f"--load_model_url={tmp_path / 'run'}"]
    given = ["--env=CartPole-v1", "--auto_restart=3"]
    assert calls == [given, [*given, *resume], [*given, *resume]]
    assert "killed by signal 9 (SIGKILL); resuming" in said
    assert "killed by signal 11 (SIGSEGV); resuming" in said
    assert "(restart 2 of 3)" in said


def test_what_a_resume_says_otherwise_is_taken_from_the_command_line(play, tmp_path):
    argv = [
        "--op_mode", "train", "--load-model-url=models/pong", "--new_run_folder=True", "--seed=3",
        "--training_seconds=1000",
    ]  # fmt: skip
    _, calls, _ = play([["report", "save 7", KILLED], [0]], argv)
    assert calls[0] == argv
    assert calls[1][0] == "--seed=3"
    left_s = float(calls[1][1].removeprefix("--training_seconds="))
    assert 0 < left_s <= 1000
    assert calls[1][2:] == ["--op_mode=train_w_load", f"--load_model_url={tmp_path / 'run'}"]


def test_a_learner_that_was_killed_before_it_saved_starts_anew(play):
    status, calls, said = play([[KILLED], ["report", KILLED], [0]])
    assert status == 0
    assert calls[0] == calls[1] == calls[2]
    assert said.count("starting anew") == 2


def test_a_learner_that_is_killed_again_and_again_is_given_up(play):
    status, calls, said = play([["report", "save 7", KILLED]] * 9, max_restarts=2)
    assert status == 128 + signal.SIGKILL
    assert len(calls) == 3
    assert "restarted 2 times (--auto_restart): giving up" in said


def test_a_failure_is_tried_again_only_if_it_came_later_than_the_one_before(play):
    plan = [["report", "save 7", 1], ["report 7", "save 9", 1], ["report 9", 1], [0]]
    status, calls, said = play(plan)
    assert status == 1
    assert len(calls) == 3
    assert said.count("the learner failed, later than the last time") == 2


def test_a_failure_before_anything_was_saved_is_not_tried_again(play):
    status, calls, _ = play([["report", 1], [0]])
    assert (status, len(calls)) == (1, 1)


def test_a_resume_that_fails_at_once_is_not_tried_again(play, tmp_path):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / "update_000000007.pt").touch()
    argv = ["--op_mode=train_w_load", f"--load_model_url={tmp_path / 'run'}"]
    status, calls, _ = play([["report 7", 1], [0]], argv)
    assert (status, calls) == (1, [argv])


def test_a_failure_that_is_not_reported_to_be_later_is_not_tried_again(play):
    """The learner that fails in its checks has a folder of old, but has begun nothing."""
    status, calls, _ = play([["report", "save 7", KILLED], [1], [0]])
    assert (status, len(calls)) == (1, 2)


@pytest.mark.parametrize(
    ("reason", "last", "status"),
    [
        ("steps", CRASHED, 0),
        ("seconds", 1, 0),
        ("return", KILLED, 0),
        ("interrupted", CRASHED, 130),
    ],
)
def test_a_run_that_has_ended_is_not_resumed_if_its_learner_dies_on_the_way_out(
    play, reason, last, status
):
    plan = [["report", "save 7", KILLED], ["report 7", "save 9", f"end {reason}", last], [2]]
    given, calls, said = play(plan)
    assert (given, len(calls)) == (status, 2)
    assert said.splitlines()[-1].endswith(
        "; its run had ended by then and is saved: nothing is resumed"
    )


def test_a_signal_that_asks_to_end_is_no_reason_to_start_again(play):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        assert play([["report", "save 7", -number]] * 9)[0] == 128 + number


def test_delays_grow_and_begin_anew_after_a_long_session(monkeypatch, tmp_path):
    waits, now = [], [0.0]
    sessions = iter([1.0, 1.0, 1.0, 700.0, 1.0, *[1.0] * 9])
    guard = Guardian(["--env=x"], 12)

    def run_learner(command):
        now[0] += next(sessions)
        return KILLED

    monkeypatch.setattr(guard, "_run_learner", run_learner)
    monkeypatch.setattr(guard._asked_to_stop, "wait", waits.append)
    monkeypatch.setattr(guardian.time, "monotonic", lambda: now[0])
    assert guard.run() == 137
    assert waits == [5, 10, 20, 5, 5, 10, 20, 40, 80, 160, 300, 300]


def guarded(tmp_path, plan):
    """A guardian in a process of its own, whose learner waits."""
    (tmp_path / "learner.py").write_text(textwrap.dedent(LEARNER))
    (tmp_path / "plan").write_text(json.dumps(plan))
    program = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from ritornello.agent.run import guardian
guardian.MAIN_PROGRAM = Path({str(tmp_path / "learner.py")!r})
guardian.FIRST_DELAY_S = float(sys.argv[1])
assert not any(name in sys.modules for name in ("torch", "numpy", "pydantic", "psutil"))
sys.exit(guardian.Guardian([], 3).run())
"""
    return [sys.executable, "-c", program]


def wait_for(path):
    deadline = time.monotonic() + HANGS_S
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_guardian_ends_the_learner_and_then_the_guardian(tmp_path, number):
    with subprocess.Popen([*guarded(tmp_path, [["wait"]]), "0"]) as process:
        wait_for(tmp_path / "waits")
        process.send_signal(number)
        assert process.wait(HANGS_S) == 130
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


def test_the_guardian_waits_for_a_learner_that_saves_slowly(tmp_path):
    command = guarded(tmp_path, [["linger"]])
    # As main.py does, and with a listener that loses its patience sooner.
    command[-1] = command[-1].replace(
        "sys.exit(guardian.Guardian([], 3).run())",
        "from ritornello.core import stop_signals\nstop_signals.DEAF_S = 0.2\n"
        "stop = stop_signals.StopSignals()\nstop.install()\n"
        "sys.exit(guardian.Guardian([], 3, stop).run())",
    )
    with subprocess.Popen([*command, "0"]) as process:
        wait_for(tmp_path / "waits")
        process.terminate()
        assert process.wait(HANGS_S) == 130
    assert (tmp_path / "saved").read_text() == "1", "it was told once to end"


def test_a_signal_while_it_waits_to_start_again_ends_it(tmp_path):
    command = [*guarded(tmp_path, [["report", "save 7", KILLED]]), "3600"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert "resuming" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANGS_S) == 137


def test_a_learner_ends_with_a_killed_guardian(tmp_path):
    with subprocess.Popen([*guarded(tmp_path, [["wait"]]), "0"]) as process:
        wait_for(tmp_path / "waits")
        learner = json.loads((tmp_path / "calls").read_text())[0]
        process.kill()
        process.wait()
        deadline = time.monotonic() + HANGS_S
        while Path(f"/proc/{learner}").exists() and _state(learner) != "Z":
            assert time.monotonic() < deadline
            time.sleep(0.01)


def _state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_a_guardian_is_wanted_by_the_command_line_of_a_training_alone(monkeypatch):
    monkeypatch.delenv(guardian.REPORT, raising=False)
    assert restarts_wanted([]) == 0
    assert restarts_wanted(["--auto_restart=3"]) == 3
    assert restarts_wanted(["--seed=1", "--auto-restart", "2"]) == 2
    assert restarts_wanted(["--auto_restart=0"]) == restarts_wanted(["--auto_restart"]) == 0
    assert restarts_wanted(["--auto_restart=x"]) == restarts_wanted(["--auto_restart=-1"]) == 0
    assert restarts_wanted(["--auto_restart=3", "--op_mode=test"]) == 0
    assert restarts_wanted(["--auto_restart=3", "--help=run"]) == 0
    assert restarts_wanted(["-h", "--auto_restart=3"]) == 0
    assert restarts_wanted(["--auto_restart=3", "--version"]) == 0
    report_run_folder("nowhere")  # without a guardian nobody is told
    assert guardian.REPORT not in os.environ


def test_a_run_keeps_its_name_when_it_starts_anew_and_has_its_folder_when_it_is_resumed(tmp_path):
    guarded = Guardian(["--xpid=mine", "--lr=1"], 3)
    assert guarded._command(0.0)[2:] == ["--xpid=mine", "--lr=1"]
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "update_000000001.pt").touch()
    guarded._folder = tmp_path
    resume = ["--op_mode=train_w_load", f"--load_model_url={tmp_path}"]
    assert guarded._command(0.0)[2:] == ["--lr=1", *resume]
