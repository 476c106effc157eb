"""Drivers are fakes here: a few lines of Python that install nothing and learn nothing."""

import json
import re
import sys
import textwrap
import time
import venv
from dataclasses import replace

import numpy as np
import psutil
import pytest

from research import compare_peers
from research.peers import measurement
from research.peers.catalogue import (
    BY_NAME,
    DRIVERS,
    LEARNERS,
    SETTLED,
    SYSTEMS,
    System,
    driver_command,
)
from research.peers.installation import python_of
from research.peers.learning import (
    learned,
    score_at,
)
from research.peers.measurement import (
    Drive,
    Game,
    Progress,
    Reported,
    Run,
    RunFailed,
    Usage,
    busy_cpus,
    read_progress,
    run_driver,
    started,
    steady,
)
from research.peers.ours import equal_work, parse
from research.peers.report import Result, ours_over
from tests.house import LAYER, ROOT, imported_modules

# Writes an update of 10 steps every 20 ms for ever; what a test adds runs before.
FAKE = """
import json, os, subprocess, sys, time
path = next(x for x in sys.argv if x.startswith("--progress=")).split("=")[1]
def write(**line):
    with open(path, "a") as file:
        file.write(json.dumps(line) + chr(10))
write(flags="--a=1")
{first}
steps = 0
while True:
    time.sleep(0.02)
    steps += 10
    write(steps=steps, wall_s=time.monotonic())
"""


@pytest.fixture(autouse=True)
def short_interval(monkeypatch):
    monkeypatch.setattr(measurement, "METER_INTERVAL_S", 0.1)


def fake(folder, first="", name="driver"):
    path = folder / f"{name}.py"
    path.write_text(FAKE.format(first=textwrap.dedent(first)))
    return path


def run_fake(tmp_path, first="", seconds=0.8):
    folder = tmp_path / "run"
    folder.mkdir()
    return run_driver([sys.executable, "-I", str(fake(tmp_path, first))], folder, seconds)


def wait_until(condition, what, limit_s=40.0):
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


# --- reading progress --------------------------------------------------------------------------


def test_progress_is_read_up_to_the_last_whole_line():
    text = '{"flags": "--lr=1"}\n{"steps": 320, "wall_s": 7.5}\n{"steps": 640, "wall'
    assert read_progress(text) == ("--lr=1", [Progress(320, 7.5)], [])
    text = '{"game": -21, "wall_s": 3}\n{"steps": 320, "wall_s": 7.5}\n'
    assert read_progress(text) == ("", [Progress(320, 7.5)], [Game(-21.0, 3.0)])


def test_the_first_quarter_after_the_first_update_is_warm_up():
    # Start-up took 100 s; one update per second, slow ones until second 3 and fast ones after.
    progress = [Progress(10 * s if s < 3 else 1000 * (s - 2), 100.0 + s) for s in range(13)]
    first, last = steady(progress, seconds=12.0)
    assert (first, last) == (Progress(1000, 103.0), Progress(10_000, 112.0))
    with pytest.raises(RunFailed, match="1 updates after the warm-up"):
        steady(progress[:4], seconds=12.0)


def test_busy_cpus_are_those_of_the_window_alone():
    # Start-up: 5 CPUs for 10 s. Then 1.5 CPUs for 20 s, then none.
    usage = [Usage(0.0, 0.0, 1.0), Usage(10.0, 50.0, 1.0)]
    usage += [Usage(13.0, 54.5, 1.0), Usage(30.0, 80.0, 1.0), Usage(60.0, 80.0, 1.0)]
    assert busy_cpus(usage, 14.0, 25.5) == pytest.approx(1.5)
    assert busy_cpus(usage, 20.0, 40.0) == pytest.approx(0.75)


# --- running a driver --------------------------------------------------------------------------


@pytest.mark.process
def test_a_driver_that_fails_is_reported_with_the_last_line_of_its_error(tmp_path):
    with pytest.raises(RunFailed, match="^ValueError: no such game$"):
        run_fake(tmp_path, "raise ValueError('no such game')")


@pytest.mark.process
@pytest.mark.parametrize(
    ("first", "message"),
    [("sys.exit(0)", "ended before"), ("time.sleep(60)", "no update for too long, after 0")],
)
def test_a_driver_that_ends_early_or_hangs_is_reported(tmp_path, monkeypatch, first, message):
    if first.startswith("time"):
        monkeypatch.setattr(measurement, "FIRST_UPDATE_LIMIT_S", 0.5)
    with pytest.raises(RunFailed, match=message):
        run_fake(tmp_path, first)


@pytest.mark.process
def test_stopping_reaches_processes_that_have_lost_their_parent_and_their_session(tmp_path):
    # The grandchild is in a session of its own and outlives its parent, as Ray's daemons do.
    grandchild = "import time; time.sleep(100)"
    child = (
        "import subprocess, sys\n"
        f"x = subprocess.Popen([sys.executable, '-c', {grandchild!r}], start_new_session=True)\n"
        f"open('{tmp_path}/pid.part', 'w').write(str(x.pid))\n"
        f"import os; os.rename('{tmp_path}/pid.part', '{tmp_path}/pid')\n"
        "sys.stdin.read()"
    )
    root = (
        "import subprocess, sys, time\n"
        f"x = subprocess.Popen([sys.executable, '-c', {child!r}], stdin=subprocess.PIPE)\n"
        f"import os\nwhile not os.path.exists('{tmp_path}/go'): time.sleep(0.02)\n"
        "x.communicate(); time.sleep(100)"
    )
    with started([sys.executable, "-c", root], tmp_path, tmp_path / "log") as (_, tree):
        wait_until((tmp_path / "pid").exists, "the grandchild does not start")
        orphan = psutil.Process(int((tmp_path / "pid").read_text()))
        tree.measure()
        (tmp_path / "go").touch()
        wait_until(lambda: orphan.ppid() == 1, "the child does not end")
        assert orphan.is_running()
    wait_until(lambda: not orphan.is_running(), "the grandchild was left behind", limit_s=5.0)


# --- the whole comparison ----------------------------------------------------------------------


@pytest.mark.process
def test_a_system_that_fails_is_reported_and_the_others_go_on_in_turn(
    tmp_path, monkeypatch, capsys
):
    good = System("good", "Good", str(fake(tmp_path)), "nature", "as it is")
    bad = System("bad", "Bad", str(fake(tmp_path, "import no_such_thing", "bad")), "nature", "")
    monkeypatch.setattr(compare_peers, "systems", lambda names, there: [bad, good])
    status = compare_peers.main(
        ["--peers=bad,good", "--seconds=0.6", "--repeats=2", f"--peers_dir={tmp_path}/peers"]
    )
    assert status == 0
    lines = capsys.readouterr().out.splitlines()
    assert [x.split(" ...")[0] for x in lines[:3]] == [
        "run 1 of 2: bad", "run 1 of 2: good", "run 2 of 2: good",
    ]  # fmt: skip
    assert any(re.match("bad +failed: .*no_such_thing", line) for line in lines)
    systems = json.loads(lines[-1])["systems"]
    assert "no_such_thing" in systems["bad"]["failure"]
    assert systems["bad"]["steps_per_s"] is None
    assert len(systems["good"]["steps_per_s_runs"]) == 2
    assert systems["good"]["flags"] == "--a=1"
    assert "no_such_thing" in (tmp_path / "peers" / "logs" / "bad.txt").read_text()


def results():
    def result(name, *speeds, failure=""):
        runs = [Run(speed, 1.5, 1000 + speed, f"--speed={speed}") for speed in speeds]
        return Result(BY_NAME[name], runs, failure)

    return {
        "sb3_a2c": result("sb3_a2c", 400, 600, 500),
        "rllib_impala": result("rllib_impala", failure="ImportError: no ray"),
        "ours_queue": result("ours_queue", 1500, 2000, 1750),
        "ours_elite": result("ours_elite", 800, 900),
    }


def test_ratios_are_ours_over_theirs_of_the_medians():
    ours = ours_over(results(), "sb3_a2c")
    assert ours == {"ours_queue": 1750 / 500, "ours_elite": 850 / 500}
    assert ours_over(results(), "rllib_impala") == {}
    assert ours_over(results(), "ours_queue")["ours_queue"] == 1


# --- learning ----------------------------------------------------------------------------------


def test_the_score_is_the_mean_of_the_last_hundred_games_until_a_time_in_their_order():
    games = [Game(float(n), 10.0 + n) for n in range(250)]
    np.random.default_rng(1).shuffle(games)  # several processes write one file
    assert score_at(games, 9.0) is None
    assert score_at(games, 12.5) == 1.0  # games 0, 1 and 2
    assert score_at(games, 1e9) == np.mean(range(150, 250))


def test_what_comes_after_the_time_does_not_count():
    usage = [Usage(100.0, 0.0, 1.0), Usage(150.0, 60.0, 1.0), Usage(205.0, 170.0, 1.0)]
    progress = [Progress(1000, 130.0), Progress(5000, 199.0), Progress(9000, 203.0)]
    games = [Game(3.0, 120.0), Game(5.0, 180.0), Game(700.0, 204.0)]
    result = learned(Drive(Reported("--a", progress, games), usage), seconds=100.0)
    assert (result.score, result.games, result.agent_steps) == (4.0, 2, 5000)
    assert result.busy_cpus == pytest.approx(1.6)
    assert result.curve[0] == (20.0, 3.0)  # nothing before the first game
    assert result.curve[-1] == (100.0, 4.0)
    assert len(result.curve) == 17


@pytest.mark.process
def test_learning_is_compared_at_equal_time_from_the_start_with_the_next_seed_each_time(
    tmp_path, monkeypatch, capsys
):
    # A game every 20 ms, worth the number of the seed; the first after 0.3 s of starting.
    first = """
        time.sleep(0.3)
        seed = next(x for x in sys.argv if x.startswith("--seed=")).split("=")[1]
        _write = write
        def write(**line):
            _write(**line)
            _write(game=float(seed), wall_s=line["wall_s"])
    """
    # It has trained for as many steps as it wanted, and ends before the time.
    ends = first + "\n        write(steps=7, wall_s=time.monotonic()); sys.exit()"
    systems = [
        System("on", "On", str(fake(tmp_path, first, "on")), "nature", ""),
        System("ends", "Ends", str(fake(tmp_path, ends, "ends")), "nature", ""),
    ]
    monkeypatch.setattr(compare_peers, "systems", lambda names, there: systems)
    options = ["--learn", "--seconds=2", "--repeats=2", f"--peers_dir={tmp_path}/peers"]
    assert compare_peers.main(options) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])["systems"]
    for name in ("on", "ends"):
        assert [run["score"] for run in printed[name]["runs"]] == [1.0, 2.0], name
        assert printed[name]["score"] == 1.5
    assert printed["ends"]["runs"][0]["agent_steps"] == 7


# --- the list of systems -----------------------------------------------------------------------


def test_every_requirement_is_pinned_and_torch_is_the_one_of_this_repository():
    ours = (ROOT / "requirements.txt").read_text().splitlines()
    for system in SYSTEMS:
        for requirement in system.requirements:
            assert re.fullmatch(r"[\w\[\]-]+==[\d.]+", requirement), requirement
        if system.requirements:
            assert set(system.requirements) & {x for x in ours if x.startswith("torch==")}
            assert re.fullmatch(r"[\d.]+", system.version)


def test_drivers_of_other_systems_import_nothing_of_ours():
    ours = {*LAYER, "option_flags", "benchmarks", "tests"}
    for system in SYSTEMS:
        path = DRIVERS / system.driver
        if system.requirements:
            imported = {module.split(".")[0] for _, module in imported_modules(path)}
            assert not imported & ours, path


@pytest.mark.parametrize(("cores", "workers"), [(1, 1), (2, 2), (3, 2), (6, 4), (64, 16)])
def test_sixteen_games_are_dealt_out_to_the_cores(cores, workers):
    command = driver_command(BY_NAME["sb3_a2c"], "python", "Game", cores)
    assert f"--workers={workers}" in command
    assert f"--envs_per_worker={16 // workers}" in command
    # Ours plays as many, with as many workers, whatever it would choose by itself.
    driver = driver_command(BY_NAME["ours_queue"], "python", "Game", cores)[3:]
    values = equal_work(parse([*driver, "--progress=p", "--scratch=s"]))
    assert int(values["worker_count"]) == workers
    assert int(values["worker_count"]) * int(values["envs_per_worker"]) == 16


@pytest.mark.process
def test_an_installation_that_fails_is_reported_and_made_anew_next_time(tmp_path, monkeypatch):
    made = []

    def create(folder, clear, with_pip):
        made.append(folder)
        python = folder / "bin" / "python"
        python.parent.mkdir(parents=True, exist_ok=True)
        status = 1 if len(made) == 1 else 0
        python.write_text(
            f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\necho "ERROR: no"\nexit {status}'
        )
        python.chmod(0o755)

    monkeypatch.setattr(venv, "create", create)
    system = System("x", "", "x.py", "", "", requirements=("thing==1.0",))
    with pytest.raises(RunFailed, match="^pip: ERROR: no$"):
        python_of(system, tmp_path)
    for _ in range(2):  # the second finds it installed
        assert python_of(system, tmp_path) == tmp_path / "x" / "bin" / "python"
    assert len(made) == 2
    assert (tmp_path / "calls").read_text().splitlines() == [
        "-m pip install --quiet thing==1.0"
    ] * 2


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    "system",
    [BY_NAME["sync_loop"], BY_NAME["ours_queue"], LEARNERS[-1]],
    ids=["sync_loop", "ours_queue", "ours_default"],
)
def test_our_own_drivers_learn(tmp_path, system):
    at_once = replace(system, arguments=tuple(a for a in system.arguments if a not in SETTLED))
    command = driver_command(at_once, sys.executable, "PongNoFrameskip-v4", 2)
    for seconds in (6.0, 30.0, 150.0):  # on a busy machine an update takes seconds
        folder = tmp_path / str(seconds)  # the steps of a first try must not count in the next
        folder.mkdir()
        try:
            result = run_driver(command, folder, seconds=seconds)
        except RunFailed as error:
            if "give more --seconds" not in str(error):
                raise
        else:
            break
    assert result.steps_per_s > 0
    assert "PongNoFrameskip-v4" in result.flags
