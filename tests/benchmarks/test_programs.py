"""What a benchmark has started ends with it; the programs here never end by themselves."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from benchmarks.peers.measurement import ProcessTree, started
from benchmarks.programs import leaving_by_exception, running, undisturbed
from ritornello.core.stop_signals import handled_by
from tests.deadlines import HANGS_S
from tests.house import ROOT

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
# In the place of main.py: says who it is, and goes on until its starter is gone.
FAKE_MAIN = f"""
import os, sys, time
sys.path.insert(0, {str(ROOT)!r})
from ritornello.core.process_death import end_with_starter
end_with_starter()
open({{pid!r}} + ".part", "w").write(str(os.getpid()))
os.rename({{pid!r}} + ".part", {{pid!r}})
while True:
    time.sleep(0.05)
"""
BENCHMARK = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from benchmarks import {name} as benchmark
benchmark.ROOT = Path({root!r})
sys.argv[1:] = {arguments}
benchmark.main()
"""


@pytest.fixture(autouse=True)
def python_handlers():
    """Let signals raise in this process as in any program that is started in a terminal."""

    def interrupt(number, frame):
        raise KeyboardInterrupt

    with handled_by(interrupt):
        yield


def wait_until(condition, what):
    deadline = time.monotonic() + HANGS_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def is_gone(process):
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def interrupted():
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, None)]
)
def test_a_signal_leaves_through_the_blocks(number, status):
    def hear():
        with leaving_by_exception():
            os.kill(os.getpid(), number)

    if status is None:
        with pytest.raises(KeyboardInterrupt):
            hear()
    else:
        with pytest.raises(SystemExit) as left:
            hear()
        assert left.value.code == status


def test_a_signal_while_things_are_ended_is_answered_afterwards():
    done = []

    def end():
        with undisturbed():
            interrupted()
            os.kill(os.getpid(), signal.SIGTERM)
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        end()
    assert done
    end = undisturbed()(lambda: done.append(True))
    end()
    end()  # a decorated function may be called again
    assert len(done) == 3


@pytest.mark.process
def test_a_second_interrupt_leaves_no_driver_behind(tmp_path, monkeypatch):
    stop = ProcessTree.stop

    def interrupted_stop(tree):
        interrupted()
        stop(tree, grace_s=0.0)

    monkeypatch.setattr(ProcessTree, "stop", interrupted_stop)

    def run():
        with started([sys.executable, "-c", DEAF], tmp_path, tmp_path / "log") as (process, _):
            seen.append(psutil.Process(process.pid))
            interrupted()

    seen = []
    with pytest.raises(KeyboardInterrupt):
        run()
    assert is_gone(seen[0])


@pytest.mark.process
def test_a_driver_is_killed_even_if_its_tree_cannot_be_read(tmp_path, monkeypatch):
    def stop(tree):
        raise OSError("no /proc")

    monkeypatch.setattr(ProcessTree, "stop", stop)
    seen = []
    with (
        pytest.raises(OSError, match="no /proc"),
        started([sys.executable, "-c", DEAF], tmp_path, tmp_path / "log") as (process, _),
    ):
        seen.append(psutil.Process(process.pid))
    assert is_gone(seen[0])


@pytest.mark.process
def test_a_program_that_does_not_end_when_asked_is_killed():
    deaf = DEAF.replace("time.sleep", "print(1, flush=True); time.sleep")
    with running([sys.executable, "-c", deaf], grace_s=0.05, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"1\n"  # it is deaf from here on
    process.stdout.close()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("bench_neighbour", ["--busy=1", "--niceness=4", "--seconds=1000"]),
        ("bench_soak", ["--minutes=1000", "--interval_s=0.05"]),
        ("bench_interruptions", ["--runs=1"]),
    ],
)
def test_a_benchmark_takes_what_it_has_started_with_it(tmp_path, name, arguments, number):
    pid = tmp_path / "pid"
    (tmp_path / "main.py").write_text(FAKE_MAIN.format(pid=str(pid)))
    program = BENCHMARK.format(name=name, root=str(tmp_path), arguments=arguments)
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    tree = []
    try:
        wait_until(pid.exists, "the program does not start")
        tree = psutil.Process(process.pid).children(recursive=True)
        assert int(pid.read_text()) in [each.pid for each in tree]
        process.send_signal(number)
        process.wait(HANGS_S)
        wait_until(lambda: all(map(is_gone, tree)), "programs are left behind")
    finally:
        process.kill()
        process.wait()
        for each in tree:
            if not is_gone(each):
                each.kill()
