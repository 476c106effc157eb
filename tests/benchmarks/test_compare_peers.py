"""Drivers are fakes here: a few lines of Python that install nothing and learn nothing."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import venv
from dataclasses import replace

import numpy as np
import psutil
import pytest

from benchmarks import compare_peers
from benchmarks.peers import measurement
from benchmarks.peers.catalogue import (
    BY_NAME,
    DRIVERS,
    LEARNERS,
    SETTLED,
    SYSTEMS,
    System,
    driver_command,
)
from benchmarks.peers.installation import python_of
from benchmarks.peers.learning import (
    Learned,
    LearningResult,
    learned,
    learning_table,
    score_at,
)
from benchmarks.peers.measurement import (
    Drive,
    Game,
    ProcessTree,
    Progress,
    Reported,
    Run,
    RunFailed,
    Usage,
    busy_cpus,
    drive,
    last_error,
    read_progress,
    run_driver,
    started,
    steady,
)
from benchmarks.peers.ours import equal_work, forward, parse
from benchmarks.peers.report import Result, ours_over, table
from ritornello.agent.models.pixels import OBSERVED_BATCHES
from ritornello.core.process_settings import SETTINGS
from tests.deadlines import HANGS_S
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
    assert read_progress("") == ("", [], [])


def test_games_are_read_apart_from_updates():
    text = '{"game": -21, "wall_s": 3}\n{"steps": 320, "wall_s": 7.5}\n{"game": 4.5, "wall_s": 8}\n'
    games = [Game(-21.0, 3.0), Game(4.5, 8.0)]
    assert read_progress(text) == ("", [Progress(320, 7.5)], games)


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


def test_the_error_of_a_log_is_told_from_what_came_after_it(tmp_path):
    log = tmp_path / "log.txt"
    log.write_text("starting\nModuleNotFoundError: No module named 'ray'\nbye\n\n")
    assert last_error(log) == "ModuleNotFoundError: No module named 'ray'"
    log.write_text("Killed\n")
    assert last_error(log) == "Killed"


# --- running a driver --------------------------------------------------------------------------


@pytest.mark.process
def test_a_run_reports_speed_processors_and_memory_of_the_whole_tree(tmp_path):
    # 60 MB that a child shares with its parent count once; the child's own 40 MB count as well.
    # The child says how much processor time it has really had.
    result = run_fake(
        tmp_path,
        f"""
        shared = bytearray(os.urandom(1)) * 60_000_000
        if os.fork() == 0:
            own = bytearray(os.urandom(1)) * 40_000_000
            while os.getppid() != 1:
                with open("{tmp_path}/cpu", "a") as file:
                    file.write(f"{{time.monotonic()}} {{time.process_time()}}" + chr(10))
                until = time.process_time() + 0.01
                while time.process_time() < until:
                    pass
            os._exit(0)
        """,
        seconds=2.0,
    )
    assert result.flags == "--a=1"
    assert 10 < result.steps_per_s <= 500
    assert 100 < result.peak_memory_mb < 150
    # A loaded machine may give it little, so what it had is compared, not what it could have had.
    times, cpu = np.loadtxt((tmp_path / "cpu").read_text().splitlines()[:-1]).T
    _, progress, _ = read_progress((tmp_path / "run" / "progress.jsonl").read_text())
    window = [p.wall_s for p in steady(progress, 2.0)]
    expected = np.diff(np.interp(window, times, cpu)) / np.diff(window)
    assert result.busy_cpus == pytest.approx(expected.item(), rel=0.25, abs=0.02)


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
def test_processor_time_of_a_process_that_has_ended_is_kept(tmp_path):
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint(1, flush=True)\ninput()"
    root = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\ninput()"
    # A pipe of our own: `input()` waits until it is closed.
    process = subprocess.Popen(
        [sys.executable, "-c", root], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    tree = ProcessTree(psutil.Process(process.pid))
    try:
        assert process.stdout.readline() == b"1\n"
        before = tree.measure()
        (child,) = psutil.Process(process.pid).children()
        child.kill()
        wait_until(lambda: not child.is_running(), "the child does not end")
        # The child burns 0.3 s by a finer clock than the hundredths in which psutil counts user and
        # system time, each rounded down.
        assert before.cpu_s >= 0.25
        assert tree.measure().cpu_s >= before.cpu_s
    finally:
        tree.stop()
        process.communicate()


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


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_stops_the_whole_tree(tmp_path, number):
    child = fake(tmp_path, f"subprocess.Popen(['sleep', '100']); open('{tmp_path}/up', 'w')")
    # A shell starts what runs in the background deaf to SIGINT, and that is inherited.
    program = f"""
        import signal, sys
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        from benchmarks import compare_peers
        from benchmarks.peers.catalogue import System
        system = System("x", "", {str(child)!r}, "", "")
        compare_peers.systems = lambda names, there: [system]
        sys.exit(compare_peers.main(["--peers=x", "--peers_dir={tmp_path}"]))
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], cwd=ROOT)
    try:
        wait_until((tmp_path / "up").exists, "the driver does not start")
        tree = psutil.Process(process.pid).children(recursive=True)
        assert len(tree) == 2
        process.send_signal(number)
        assert process.wait(20) == 128 + number
        assert not [x for x in tree if x.is_running() and x.status() != psutil.STATUS_ZOMBIE]
    finally:
        process.kill()
        process.wait()


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


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (subprocess.CalledProcessError(1, ["python", "-m", "ensurepip"]), "CalledProcessError: "),
        (json.JSONDecodeError("Unterminated string", "x", 0), "JSONDecodeError: Unterminated"),
        (OSError("no space left\non the device"), "OSError: no space left on the device"),
        (RunFailed("it hangs"), "it hangs"),
    ],
)
def test_whatever_is_wrong_with_one_system_the_others_go_on(monkeypatch, capsys, error, said):
    def one_run(system, options, seed):
        if system.name == "sb3_a2c":
            raise error
        return Run(100.0, 1.0, 10.0, "--flags")

    monkeypatch.setattr(compare_peers, "one_run", one_run)
    assert compare_peers.main(["--peers=sb3_a2c,ours_queue", "--repeats=2"]) == 0
    systems = json.loads(capsys.readouterr().out.splitlines()[-1])["systems"]
    assert systems["sb3_a2c"]["failure"].startswith(said)
    assert systems["ours_queue"]["steps_per_s_runs"] == [100.0, 100.0]


@pytest.mark.parametrize(
    ("stop", "status"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143)], ids=["INT", "TERM"]
)
def test_an_interrupt_shows_the_runs_that_are_done(monkeypatch, capsys, stop, status):
    done = []

    def one_run(system, options, seed):
        if len(done) == 3:
            raise stop
        done.append(system)
        return Run(100.0 + len(done), 1.0, 10.0, "--flags")

    monkeypatch.setattr(compare_peers, "one_run", one_run)
    assert compare_peers.main(["--peers=sb3_a2c,ours_queue", "--repeats=2"]) == status
    *shown, last = capsys.readouterr().out.splitlines()
    assert any(line.startswith("ours, queue ") for line in shown)
    systems = json.loads(last)["systems"]
    assert systems["sb3_a2c"]["steps_per_s_runs"] == [101.0, 103.0]
    assert systems["ours_queue"]["steps_per_s_runs"] == [102.0]


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


def test_the_table_has_a_row_for_each_system_that_ran_and_a_line_for_each_that_failed():
    lines = table(results()).splitlines()
    head, a2c, queue, elite, failed = lines[:5]
    assert re.split("  +", head)[4:6] == ["ours_queue/this", "ours_elite/this"]
    assert re.split("  +", a2c) == [
        "Stable-Baselines3, A2C", "2.9.2", "500", "400 600 500", "3.50", "1.70", "1.50", "1600",
        "nature",
    ]  # fmt: skip
    assert [row.split(",")[0] for row in (queue, elite)] == ["ours", "ours"]
    assert re.split(" +", failed, maxsplit=1) == ["rllib_impala", "failed: ImportError: no ray"]
    assert "    --speed=400" in lines


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


def test_a_run_that_ended_before_the_time_counts_as_far_as_it_came():
    usage = [Usage(0.0, 0.0, 1.0), Usage(50.0, 50.0, 1.0)]
    result = learned(Drive(Reported("", [Progress(9, 40.0)], [Game(2.0, 41.0)]), usage), 100.0)
    assert (result.score, result.curve) == (2.0, ((45.0, 2.0), (50.0, 2.0)))


def test_the_table_of_learning_shows_each_seed_and_the_mean_normalised_score():
    def run(score, games=1234):
        return Learned(score, games, 99_000, 1.9, (), "--flags")

    results = {
        "sb3_ppo": LearningResult(BY_NAME["sb3_ppo"], [run(-20.7), run(-10.0)]),
        "rllib_impala": LearningResult(BY_NAME["rllib_impala"], [run(None, 0)]),
        "sample_factory": LearningResult(BY_NAME["sample_factory"], failure="ImportError: none"),
    }
    _, ppo, rllib, failed = learning_table(results, "PongNoFrameskip-v4").splitlines()[:4]
    assert re.split("  +", ppo)[2:5] == ["-15.3", "-20.7 -10.0", "15.2 %"]  # random is -20.7
    assert re.split("  +", rllib)[2:5] == ["-", "-", "-"]
    assert failed.endswith("failed: ImportError: none")
    assert results["rllib_impala"].to_json("PongNoFrameskip-v4")["score"] is None


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


@pytest.mark.process
def test_a_driver_that_ends_without_a_game_has_failed(tmp_path):
    path = fake(tmp_path, "sys.exit()")
    (tmp_path / "run").mkdir()
    with pytest.raises(RunFailed, match="it ended before 5 s were over"):
        drive([sys.executable, "-I", str(path)], tmp_path / "run", 5.0, from_start=True)


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


def test_an_unknown_system_is_refused_and_a_repeated_one_runs_once(capsys):
    with pytest.raises(SystemExit):
        compare_peers.parse(["--peers=sb3_a2c,sb4"])
    assert "no system is called sb4; expected some of sample_factory" in capsys.readouterr().err
    options = compare_peers.parse(["--peers=ours_queue,sb3_a2c,ours_queue"])
    assert [x.name for x in options.peers] == ["ours_queue", "sb3_a2c"]
    assert compare_peers.parse([]).peers == list(SYSTEMS)


def test_learning_is_compared_between_systems_as_their_authors_set_them(capsys):
    assert compare_peers.parse(["--learn"]).peers == list(LEARNERS)
    with pytest.raises(SystemExit):
        compare_peers.parse(["--learn", "--peers=ours_queue"])
    assert "no system is called ours_queue; expected some of" in capsys.readouterr().err
    for system in LEARNERS:
        command = driver_command(system, "python", "Game", 2, seed=7)
        assert "--as_published" in command, system.name
        assert "--seed=7" in command


def test_other_systems_do_not_get_our_settings(monkeypatch):
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    environment = compare_peers.environment_of_peers()
    assert not set(SETTINGS) & set(environment)
    assert environment["PATH"] == os.environ["PATH"]


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


def test_ours_report_nothing_before_the_mean_image_is_settled(tmp_path):
    assert (f"--from_update={OBSERVED_BATCHES}",) == SETTLED
    for system in SYSTEMS:
        is_ours = system.driver in ("ours.py", "sync_loop.py")
        assert (SETTLED[0] in system.arguments) is is_ours, system.name

    (tmp_path / "run").mkdir()
    progress, ended = tmp_path / "progress.jsonl", threading.Event()
    updates = (0, 199, 200, 201)
    records = [{"updates": u, "agent_steps": 320 * u, "wall_s": 1.0 * u} for u in updates]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (tmp_path / "run" / "metrics.jsonl").write_text(lines)
    progress.touch()
    thread = threading.Thread(target=forward, args=(tmp_path, progress, ended, 200), daemon=True)
    thread.start()
    deadline = time.monotonic() + HANGS_S
    while progress.read_text().count("\n") < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    ended.set()
    thread.join(HANGS_S)
    reported = read_progress(progress.read_text()).progress
    assert [each.steps for each in reported] == [64_000, 64_320]
    assert reported[1].wall_s - reported[0].wall_s == pytest.approx(1.0)


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
