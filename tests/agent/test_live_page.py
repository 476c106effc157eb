"""The page that a training starts beside itself: told, ended with it, and never in its way."""

import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import nullcontext

import psutil
import pytest

from ritornello.agent.run import live_page as module
from ritornello.agent.run.live_page import check_live_page, live_page
from ritornello.agent.session import prepare
from ritornello.core.errors import ConfigError
from tests.agent.runs import COUNTING, QUIET
from tests.deadlines import wait_until
from tests.live.builders import make_run


def pages_of(pid):
    return psutil.Process(pid).children()


@pytest.mark.process
def test_the_page_is_served_within_the_block_and_is_gone_after_it(tmp_path, capsys, monkeypatch):
    make_run(tmp_path / "results", "run", 3)
    (tmp_path / "live.py").write_text("raise SystemExit('this is not the page')")
    monkeypatch.chdir(tmp_path)  # what lies there is not taken for the program
    with live_page("results"):
        line = capsys.readouterr().err.strip()
        address = line.removeprefix("live page: ")
        assert address.startswith("http://127.0.0.1:")
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(address.partition("?")[0] + "api/runs", timeout=60)
        (page,) = [p for p in pages_of(psutil.Process().pid) if "ritornello.live" in p.cmdline()]
    assert not page.is_running()


@pytest.mark.process
def test_a_page_that_cannot_start_is_told_and_the_training_goes_on(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(module.sys, "executable", "/bin/false")
    went_on = False
    with live_page(tmp_path):
        went_on = True
    assert went_on
    assert "the training goes on without it" in capsys.readouterr().err
    (tmp_path / "file").write_text("", encoding="utf-8")
    with live_page(tmp_path / "file"):
        pass
    assert "could not be started" in capsys.readouterr().err


@pytest.mark.process
def test_the_page_ends_when_the_training_is_killed(tmp_path):
    program = (
        "import sys, time\n"
        "from ritornello.agent.run.live_page import live_page\n"
        "with live_page(sys.argv[1]):\n"
        "    print('up', flush=True); sys.stdin.read()\n"
    )
    training = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert training.stdout.readline() == b"up\n"
        (page,) = pages_of(training.pid)
        training.kill()
        wait_until(lambda: not page.is_running() or page.status() == psutil.STATUS_ZOMBIE)
    finally:
        training.kill()
        training.wait(60)
        training.stdin.close()
        training.stdout.close()


def test_a_missing_package_is_one_message_before_anything_begins(monkeypatch):
    check_live_page()
    monkeypatch.setattr(module, "PACKAGES", ("uvicorn", "no_such_package"))
    with pytest.raises(ConfigError, match="no_such_package.*live"):
        check_live_page()


def test_the_page_of_a_run_that_goes_on_shows_the_folder_in_which_it_lies(tmp_path, monkeypatch):
    served = []
    monkeypatch.setattr(module, "live_page", lambda place: served.append(place) or nullcontext())
    monkeypatch.setattr(module, "check_live_page", lambda: None)
    monkeypatch.chdir(tmp_path)
    small = ["--seed=1", "--reproducible=True", "--r_f_steps=5", "--batch_size=4"]
    new = [f"--env={COUNTING}", f"--results_dir={tmp_path / 'mine'}", "--environment_max_steps=600"]
    assert prepare([*QUIET, *small, *new]).run() == 0
    (run,) = (tmp_path / "mine").iterdir()
    going_on = ["--op_mode=train_w_load", f"--load_model_url={run}", "--environment_max_steps=700"]
    assert prepare([*QUIET, *going_on, "--live=True"]).run() == 0
    assert served == [tmp_path / "mine"]
