"""The harness starts programs as a shell does, sees all they leave, and leaves nothing itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.chaos.__main__ import main
from tests.chaos.leftovers import MARK, end_processes, held_locks, processes_of, writers
from tests.chaos.running import Running, Terminal
from tests.chaos.spawner import Request, Spawner
from tests.chaos.zygote import ROOT

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the harness needs Linux"),
]
LIMIT_S = 200.0  # catches what hangs, not what is slow


def wait(condition: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def spawner() -> Iterator[Spawner]:
    made = Spawner(bare=True)
    made.wait_ready()
    yield made
    made.close()


class Starter:
    """Starts small programs in the place of main.py."""

    def __init__(self, spawner: Spawner, folder: Path) -> None:
        self.spawner = spawner
        self.folder = folder

    def __call__(self, source: str, terminal: str = "file", **request: object) -> Running:
        program = self.folder / "program.py"
        program.write_text(source)
        out = Terminal(terminal, self.folder / "output.txt")
        wanted = Request(
            str(program), ("a", "b"), str(self.folder), terminal=terminal == "pty",
            closed_output=terminal == "closed", **request,
        )  # type: ignore[arg-type]  # fmt: skip
        pid = self.spawner.start(wanted, out.descriptors)
        out.handed_over()
        return Running(wanted, self.spawner, out, pid)


@pytest.fixture
def start(spawner: Spawner, tmp_path: Path) -> Iterator[Starter]:
    yield Starter(spawner, tmp_path)
    end_processes(processes_of([str(tmp_path)], []))


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("import sys; print(sys.argv[1:], __name__); sys.exit(130)", 130),
        ("import os; os._exit(7)", 7),
        ("import os; os.kill(os.getpid(), 11)", -11),
        ("1 / 0", 1),
        ("pass", 0),
    ],
)
def test_a_program_ends_as_it_would_by_itself(
    start: Starter, source: str, status: int, anew: bool
) -> None:
    running = start(source, anew=anew)
    wait(lambda: running.is_over)
    assert running.status == status
    if status == 130:
        assert running.terminal.text() == "['a', 'b'] __main__\n"
    assert running.processes() == []


def test_the_environment_the_limits_and_ignored_signals_reach_the_program(start: Starter) -> None:
    running = start(
        "import os, resource, signal\n"
        "print(os.environ['COLOUR'], resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
        "os.kill(os.getpid(), signal.SIGHUP)\n"
        "print('alive')",
        environment={"COLOUR": "red"},
        limits={"NOFILE": 33},
        ignored_signals=("SIGHUP",),
    )
    wait(lambda: running.is_over)
    assert (running.status, running.terminal.text()) == (0, "red 33\nalive\n")


def test_a_pipe_is_closed_after_its_lines(start: Starter) -> None:
    running = start(
        "import sys, time\n"
        "for n in range(10_000):\n"
        "    print(n, flush=True)\n"
        "    time.sleep(0.001)\n",
        terminal="pipe",
    )
    wait(lambda: running.is_over)
    assert running.status in (1, 120)  # a broken pipe, which nobody handled
    assert running.terminal.text() == "0\n"


def test_a_full_device_refuses_to_be_written(start: Starter) -> None:
    running = start("print('x' * 100, flush=True)", terminal="full")
    wait(lambda: running.is_over)
    assert running.status != 0
    assert "No space left" in running.terminal.text()


def test_a_closed_output_is_no_output(start: Starter) -> None:
    running = start("import sys; sys.exit(3 if sys.stdout is None else 4)", terminal="closed")
    wait(lambda: running.is_over)
    assert running.status == 3


TICKS = "import time\nprint('ready', flush=True)\nwhile True:\n    time.sleep(0.05)\n"


def test_a_terminal_that_goes_hangs_up(start: Starter) -> None:
    running = start(TICKS, terminal="pty")
    wait(lambda: "ready" in running.terminal.text())
    running.terminal.leave()
    wait(lambda: running.is_over)
    assert running.status == -signal.SIGHUP


def test_ctrl_c_is_typed_and_ctrl_s_freezes(start: Starter, tmp_path: Path) -> None:
    progress = tmp_path / "progress"
    running = start(
        f"import time\nprint('ready', flush=True)\nfile = open({str(progress)!r}, 'w')\n"
        "while True:\n    print('x' * 100, flush=True)\n    file.write('.')\n    file.flush()\n"
        "    time.sleep(0.001)\n",
        terminal="pty",
    )
    wait(lambda: "ready" in running.terminal.text())
    running.terminal.type(b"\x13")
    sizes = [-1]

    def stands_still() -> bool:
        sizes.append(progress.stat().st_size if progress.exists() else -2)
        time.sleep(0.5)
        return sizes[-1] == sizes[-2] > 0

    wait(stands_still)
    running.terminal.type(b"\x03")
    wait(lambda: running.is_over)
    assert running.status == -signal.SIGINT


ORPHANS = """
import subprocess, sys, os, time
for session in (False, True):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"],
                     start_new_session=session)
if os.fork() == 0:
    time.sleep(3600)
print("ready", flush=True)
"""


def test_children_sessions_and_forks_of_a_dead_program_are_found(start: Starter) -> None:
    running = start(ORPHANS)
    wait(lambda: running.is_over)
    assert len(running.processes()) == 3
    assert processes_of([str(running.request.mark) + "1"], []) == []
    end_processes(running.processes())
    assert running.processes() == []


def test_two_writers_of_one_file_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    source = f"file = open({str(path)!r}, 'a'); print('ready', flush=True); input()"
    both = [
        subprocess.Popen(
            [sys.executable, "-c", source],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, MARK: str(tmp_path)},
        )
        for _ in range(2)
    ]  # fmt: skip
    try:
        for process in both:
            assert process.stdout is not None
            process.stdout.readline()
        with path.open("rb"):  # to read is no crime
            found = writers([*processes_of([str(tmp_path)], []), psutil.Process()])
        assert found == {str(path): {process.pid for process in both}}
    finally:
        for process in both:
            process.communicate(b"\n")


def test_a_lock_that_is_held_is_seen(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    assert held_locks(tmp_path) == []
    source = (
        f"import fcntl; file = open({str(tmp_path / 'lock')!r}); fcntl.flock(file, fcntl.LOCK_EX);"
        "print('ready', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert held_locks(tmp_path) == ["lock"]
        process.communicate(b"\n")


HARNESS = """
import psutil, sys, time
from pathlib import Path
from tests.chaos.running import Terminal
from tests.chaos.spawner import Request, Spawner
spawner = Spawner(bare=True)
spawner.wait_ready()
out = Terminal("file", Path(sys.argv[1]) / "output.txt")
request = Request(sys.argv[1] + "/program.py", (), sys.argv[1])
program = spawner.start(request, out.descriptors)
over = spawner.start(Request("/dev/null", (), sys.argv[1]), out.descriptors)
while psutil.pid_exists(over):  # its end is told in a message that nobody reads
    time.sleep(0.01)
print(spawner.pid, program, flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_a_harness_that_dies(tmp_path: Path, number: int) -> None:
    (tmp_path / "program.py").write_text(ORPHANS + "time.sleep(3600)\n")
    with subprocess.Popen(
        [sys.executable, "-c", HARNESS, str(tmp_path)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as harness:  # fmt: skip
        try:
            assert harness.stdout is not None
            zygote, program = map(int, harness.stdout.readline().split())
            wait(lambda: len(processes_of([str(tmp_path)], [program])) == 4)
            harness.send_signal(number)
            harness.wait(LIMIT_S)
        finally:
            harness.kill()  # whatever failed: `with` would wait for it
    try:
        wait(lambda: not processes_of([str(tmp_path)], [program]))
        wait(lambda: not psutil.pid_exists(zygote) or not _is_zygote(zygote))
    finally:
        end_processes(processes_of([str(tmp_path)], [program]))


def _is_zygote(pid: int) -> bool:
    try:
        return "tests.chaos.zygote" in " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return False


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_ctrl_c_ends_everything_and_prints_the_table_so_far(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.chaos", "--only=damaged", f"--results_dir={tmp_path}"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as harness:
        assert harness.stdout is not None
        wait(lambda: list(tmp_path.glob("chaos_*/templates/*/results/*/metrics.jsonl")), 120.0)
        before = psutil.Process(harness.pid).children(recursive=True)
        harness.send_signal(signal.SIGINT)
        output, _ = harness.communicate(timeout=60)
        assert harness.returncode == 130
    assert len(before) >= 3  # zygotes, and what trains
    wait(lambda: not [each for each in before if each.is_running()])
    assert "| fault | scenarios |" in output
    assert {path.name for path in next(tmp_path.iterdir()).iterdir()} == {"report.md", "scenarios"}


def test_the_schedule_can_be_listed_and_wrong_arguments_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--list", "--seed=3", "--faults=5", "--only=kill-worker"]) == 0
    assert capsys.readouterr().out.count("kill-worker") == 5
    assert main(["--only=no-such-fault"]) == 2
    with pytest.raises(SystemExit, match="2"):
        main(["--seed=many"])
