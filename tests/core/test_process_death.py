"""Real processes, killed. The programs are tiny: none of them imports more than core/."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ritornello.core import process_death
from ritornello.core.process_death import Family
from ritornello.core.stop_signals import SIGNALS
from ritornello.core.warden import Warden
from tests.deadlines import HANGS_S, wait_until
from tests.troubled import lives

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks for processes in /proc"),
]
ROOT = Path(__file__).parents[2]
# A worker whose environments own processes: one in its group, one in a session of its own, and a
# copy of itself that runs no other program. It says their numbers and then waits.
WORKER = """
import os, subprocess, sys, time
from ritornello.core.process_death import Family
Family({mark!r}).found()
sleep = ["sleep", "3600"]
children = [subprocess.Popen(sleep), subprocess.Popen(sleep, start_new_session=True)]
copy = os.fork()
if copy == 0:
    os.close(1)
    time.sleep(3600)
print(*[child.pid for child in children], copy, flush=True)
{then}
time.sleep(3600)
"""


def start(program, **more):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        **more,
    )


def numbers(process):
    return [int(number) for number in process.stdout.readline().split()]


@contextlib.contextmanager
def cleaned_up(*pids):
    """Whatever a failing test leaves."""
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("head_is", ["alive", "dead"])
def test_a_family_ends_with_children_in_other_sessions_also_after_its_head(head_is):
    family, stranger = Family(), Family()
    worker = start(WORKER.format(mark=family.mark, then=""))
    other = start(WORKER.format(mark=stranger.mark, then=""))
    pids, others = numbers(worker), [other.pid, *numbers(other)]
    with worker, other, cleaned_up(worker.pid, *pids, *others):
        # Linux shows no environment of a program that is being started at this moment.
        wait_until(lambda: set(family.members(worker.pid)) == {worker.pid, *pids})
        if head_is == "dead":
            worker.kill()
            worker.wait()
            assert set(family.members(worker.pid)) == set(pids)
        assert family.end(worker.pid)
        assert not any(lives(pid) for pid in (worker.pid, *pids))
        assert family.end(worker.pid)  # a second time does no harm
        assert all(lives(pid) for pid in others)
        assert stranger.end(other.pid)


STARTED_AGAIN = """
import os, subprocess, sys, time
from ritornello.core.process_death import FAMILY, mark_own_children
from ritornello.core import warden
mark_own_children()
if len(sys.argv) == 1:
    os.execv(sys.executable, [sys.executable, "-c", {program!r}, "again"])
sleep = ["sleep", "3600"]
children = [subprocess.Popen(sleep), subprocess.Popen(sleep, start_new_session=True)]
copy = os.fork()
if copy == 0:
    os.setsid()
    os.close(1)
    time.sleep(3600)
warden.LEAVE_S = 0.2
warden = warden.Warden()
warden.keep_own_children()
print(warden.pid, *[child.pid for child in children], copy, flush=True)
{then}
time.sleep(3600)
"""


def started_again(then):
    inner = STARTED_AGAIN.format(program="", then=then)
    return STARTED_AGAIN.format(program=inner, then=then)


def test_what_a_killed_program_has_started_itself_is_gone_in_whatever_session():
    learner = start(started_again(""))
    neighbour = subprocess.Popen(["sleep", "3600"])  # of the same group, as in a pipeline
    pids = numbers(learner)
    with learner, neighbour, cleaned_up(learner.pid, neighbour.pid, *pids):
        assert len([pid for pid in pids if lives(pid)]) == 4
        assert os.getpgid(neighbour.pid) == os.getpgid(learner.pid)
        learner.kill()
        wait_until(lambda: not any(lives(pid) for pid in pids))
        assert lives(neighbour.pid)


def test_an_inherited_mark_is_not_ones_own(monkeypatch):
    monkeypatch.setenv(process_death.FAMILY, f"{os.getppid()}-abc")
    assert process_death.own_family() is None
    process_death.mark_own_children()
    own = process_death.own_family()
    assert own.mark.startswith(f"{os.getpid()}-")
    process_death.mark_own_children()
    assert process_death.own_family() == own


def test_what_is_started_in_a_block_is_ended_but_for_multiprocessing(monkeypatch):
    monkeypatch.setenv(process_death.FAMILY, "")
    process_death.mark_own_children()
    sleep = ["sleep", "3600"]
    with subprocess.Popen(sleep) as earlier, cleaned_up(earlier.pid):
        with process_death.started_in_here_ended():
            left = subprocess.Popen(sleep, start_new_session=True)
            shared = multiprocessing.get_context("spawn").Manager()
        with left, cleaned_up(left.pid), shared:
            assert not lives(left.pid)
            assert lives(earlier.pid)
            assert list(shared.list([1])) == [1]


LEARNER = """
import os, subprocess, sys, time
from ritornello.core.process_death import Family
from ritornello.core import warden
warden.LEAVE_S = {leave_s}
warden, family = warden.Warden(), Family()
worker = subprocess.Popen(
    [sys.executable, "-c", {worker!r}.replace("MARK", family.mark)], stdout=subprocess.PIPE
)
pids = worker.stdout.readline().decode()
warden.keep(worker.pid, family)
{then}
print(warden.pid, worker.pid, pids, flush=True)
time.sleep(3600)
"""


def learner_program(worker_then="", then="", leave_s=0.2):
    worker = WORKER.format(mark="MARK", then=worker_then)
    return LEARNER.format(worker=worker, then=then, leave_s=leave_s)


@pytest.mark.parametrize("worker_then", ["", "os.kill(os.getpid(), 19)", "os._exit(0)"])
def test_nothing_outlives_a_killed_learner_be_its_worker_busy_stopped_or_dead(worker_then):
    learner = start(learner_program(worker_then))
    pids = numbers(learner)
    assert len(pids) == 5
    with learner, cleaned_up(learner.pid, *pids):
        learner.kill()
        wait_until(lambda: not any(lives(pid) for pid in pids))


def test_a_warden_that_cannot_be_started_is_done_without(monkeypatch, caplog):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    warden, family = Warden(), Family()
    for head in (2**22 + 1, 2**22 + 2):
        warden.keep(head, family)
    warden.release(2**22 + 1)
    warden.close()
    assert caplog.text.count("cannot be started") == 1


def test_no_signal_that_asks_programs_to_stop_ends_the_warden():
    warden, head = Warden(), 2**22 + 1
    warden.keep(head, Family())
    status = Path(f"/proc/{warden.pid}/status").read_text("utf-8")
    warden.release(head)
    warden.close()
    blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
    assert [number for number in SIGNALS if not blocked >> (number - 1) & 1] == []


CHILD = """
import os, time
from ritornello.core import process_death
process_death.end_with_starter()
assert process_death.STARTER not in os.environ
print(os.getpid(), flush=True)
while True:  # a signal that comes just before a sleep begins is answered after it
    time.sleep(0.1)
"""
STARTER = """
import subprocess, sys
from ritornello.core.process_death import environment_for_child
child = subprocess.Popen([sys.executable, "-c", *sys.argv[1:]],
                         env=environment_for_child(), start_new_session=True)
child.wait()
"""


def test_a_program_ends_with_the_one_that_started_it_although_that_one_was_killed():
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, CHILD], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    (child,) = numbers(starter)
    with starter, cleaned_up(starter.pid, child):
        assert lives(child)
        starter.kill()
        wait_until(lambda: not lives(child))


def test_a_program_whose_starter_was_gone_before_it_could_ask_gets_the_signal_at_once():
    program = f"""
import time
from ritornello.core.process_death import die_with_parent
die_with_parent({os.getpid()} + 1)
time.sleep(3600)
"""
    with start(program) as child, cleaned_up(child.pid):
        assert child.wait(HANGS_S) == -signal.SIGTERM


def test_a_warden_that_does_not_leave_in_time_is_ended(monkeypatch):
    monkeypatch.setattr("ritornello.core.warden.CLOSE_S", 0.0)
    warden = Warden()
    warden.keep(2**22 + 1, Family())
    process = warden._process
    warden.release(2**22 + 1)
    warden.close()
    assert process.returncode is not None, "Python would complain that it still runs"
