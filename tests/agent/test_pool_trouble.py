"""Workers that hang, crash, leave others behind; and a learner that was asleep.

Most of them are light ones (light_workers.py): it is the pool that is tested here.
"""

import os
import signal
import time

import pytest

from ritornello.agent.pools import places, serial_pool, supervision
from ritornello.agent.pools.pool import ProcessPool
from ritornello.agent.pools.serial_pool import SerialPool
from ritornello.core.errors import PlatformError, WorkerDied
from ritornello.transport.lifeline import Phase
from ritornello.transport.weights import WeightBoard
from tests import troubled
from tests.agent.light_workers import (
    LightConfig,
    LightServerConfig,
    life_and_number,
    light_server,
    light_worker,
)
from tests.agent.pools import all_of, gather_until, more_than
from tests.agent.runs import make_blueprint
from tests.agent.test_rollout import make_board
from tests.deadlines import wait_until
from tests.fakes import CountingEnv
from tests.troubled import lives
from tests.troubles import hang_in_c, hang_in_python

pytestmark = pytest.mark.process
# Of tests in which nothing may be taken for hanging that is only slow on a busy machine.
PATIENT_S = 3600.0
# Of tests in which something hangs. What is only slow is restarted, and they pass all the same.
IMPATIENT_S = 3.0


def second_life_of(worker):
    return lambda taken: any(who == worker and life_and_number(r) >= (1, 0) for who, r in taken)


@pytest.fixture
def skip(monkeypatch):
    """Move the monotonic clock on."""
    real, skipped_s = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: real() + skipped_s[0])

    def skip(seconds):
        skipped_s[0] += seconds

    return skip


@pytest.fixture
def make_pool(pools, monkeypatch):
    """Pools of light workers."""
    monkeypatch.setattr(places, "run_worker", light_worker)
    monkeypatch.setattr(places, "run_server", light_server)

    def make(trouble="", *, workers=1, timeout_s=PATIENT_S, server=False, max_restarts=100, **more):
        pool = ProcessPool(
            [LightConfig(worker, trouble=trouble) for worker in range(workers)],
            WeightBoard(8),
            slots=2,
            max_restarts=max_restarts,
            server=LightServerConfig() if server else None,
            worker_timeout_s=timeout_s,
            **more,
        )
        pools.append(pool)
        pool.start()
        return pool

    return make


@pytest.fixture
def make_real_pool(make_process_pool, tmp_path, monkeypatch):
    """Pools of real workers in environments of tests/troubled.py."""
    monkeypatch.setenv("TROUBLE_DIR", str(tmp_path))

    def make(env):
        blueprint = make_blueprint(env=f"tests.troubled:tests/{env}-v0")
        return make_process_pool(blueprint, worker_timeout_s=PATIENT_S)

    return make


def test_a_stopped_worker_is_killed_and_replaced_and_said_to_have_been_stopped(make_pool, caplog):
    pool = make_pool(timeout_s=IMPATIENT_S)
    gather_until(pool, more_than(2))
    os.kill(pool.members[0].life.process.pid, signal.SIGSTOP)
    gather_until(pool, second_life_of(0))
    assert "and gave no sign of life for" in caplog.text
    assert "somebody had stopped it (SIGSTOP)" in caplog.text
    assert pool.stats()["workers/restarts"] == pool.stats()["workers/hung"] == pool.restarts >= 1


@pytest.mark.parametrize("trouble", ["hang in python", "hang in c"])
def test_a_worker_that_hangs_is_replaced_and_its_stack_is_shown(make_pool, caplog, trouble):
    pool = make_pool(trouble, timeout_s=IMPATIENT_S)
    gather_until(pool, second_life_of(0))
    assert pool.hung >= 1
    assert pool.lost_unrolls >= 3
    assert "was stepping environments and gave no sign of life for" in caplog.text
    assert f"in {trouble.replace(' ', '_')}" in caplog.text
    assert "after 15 unrolls; 1 unfinished block lost" in caplog.text


def test_a_stopped_server_is_replaced_and_workers_that_wait_for_it_are_not(make_pool, caplog):
    pool = make_pool(timeout_s=IMPATIENT_S, server=True, workers=2)
    gather_until(pool, all_of(0, 1))
    os.kill(pool._server.life.process.pid, signal.SIGSTOP)
    gather_until(pool, lambda _: pool._server.config.life > 0)
    gather_until(pool, all_of(0, 1))
    assert "inference server (pid" in caplog.text
    assert "somebody had stopped it (SIGSTOP)" in caplog.text
    assert "was waiting for the inference server" not in caplog.text


def test_a_learner_that_was_asleep_for_hours_does_not_kill_its_workers(make_pool, skip):
    """Its clock jumps between two looks, and no worker has given a sign in between."""
    pool = make_pool(timeout_s=IMPATIENT_S, workers=2)
    gather_until(pool, all_of(0, 1))
    for place in pool._places():
        os.kill(place.life.process.pid, signal.SIGSTOP)
    for _ in range(2):
        skip(3600.0)
        pool.poll(0.0)
    for place in pool._places():
        os.kill(place.life.process.pid, signal.SIGCONT)
    gather_until(pool, all_of(0, 1))
    assert pool.restarts == 0


def silent_life(pool, phase):
    """A worker's process that gives no sign of life from now on."""
    gather_until(pool, more_than(2))
    life = pool.members[0].life
    os.kill(life.pid, signal.SIGSTOP)
    wait_until(life._is_stopped)  # it may be in the middle of a sign
    life._lifeline.pulse.beat(phase)
    life.listen(10.0)  # it takes notice of what was done last
    return life


def look_for(life, seconds, skip):
    """Look at it once a second."""
    for _ in range(seconds):
        skip(1.0)
        life.listen(10.0)


def test_building_environments_may_take_longer_than_a_step(make_pool, skip):
    life = silent_life(make_pool(), Phase.BUILDING)
    look_for(life, 599, skip)
    assert life.is_running
    look_for(life, 10, skip)
    assert not life.is_running
    assert life.hung.startswith("was building environments and model and gave no sign of life")


def test_a_worker_can_be_started_while_the_terminal_is_full_or_frozen(make_pool, monkeypatch):
    """multiprocessing would write what waits in the streams first: it fails, or never returns."""

    class Full:
        def flush(self):
            raise OSError(28, "No space left on device")

        def write(self, text):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("sys.stdout", Full())
    pool = make_pool()
    monkeypatch.undo()
    gather_until(pool, all_of(0))


def test_a_crash_is_reported_with_the_place_in_the_code(make_pool, caplog):
    pool = make_pool("crash")
    gather_until(pool, second_life_of(0))
    assert "was killed by signal 11 (SIGSEGV)" in caplog.text
    assert "in crash" in caplog.text


def test_a_death_is_seen_although_a_copy_of_the_worker_holds_its_pipes_open(make_pool, caplog):
    pool = make_pool("fork")
    gather_until(pool, more_than(2))
    first = pool.members[0].life.process.pid
    taken = gather_until(pool, second_life_of(0))
    assert "was killed by signal 9 (SIGKILL) after 15 unrolls" in caplog.text
    assert life_and_number(taken[0][1])[0] == 0
    wait_until(lambda: not pool_of_group(first), "the copy was in its group, and is not gone")


def pool_of_group(group):
    return [
        int(entry)
        for entry in os.listdir("/proc")
        if entry.isdecimal() and lives(entry) and _group(entry) == group
    ]


def _group(pid):
    try:
        return os.getpgid(int(pid))
    except OSError:
        return None


def test_a_mistake_in_the_environment_ends_the_run_soon_and_shows_itself(make_pool, caplog):
    pool = make_pool("fail")
    with pytest.raises(WorkerDied, match="a mistake in step") as raised:
        gather_until(pool, lambda _: False)
    assert "The same failure came 3 times in a row" in str(raised.value)
    assert str(raised.value).endswith("giving up.")
    assert pool.restarts == 2
    pool.stop(1.0)
    assert caplog.text.count("ValueError: a mistake") == 2, "the last is the end of the run"


def test_a_successor_that_cannot_be_started_is_tried_again(make_pool, monkeypatch, caplog):
    pool = make_pool()
    gather_until(pool, more_than(2))
    place = pool.members[0]
    launch, calls = place.life.launch, []

    def fail_once(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise OSError(11, "Resource temporarily unavailable")
        launch(*arguments)

    monkeypatch.setattr(place.life, "launch", fail_once)
    os.kill(place.life.process.pid, signal.SIGKILL)
    gather_until(pool, second_life_of(0))
    assert "worker 0 could not be started: [Errno 11] Resource temporarily" in caplog.text


def test_a_start_for_which_the_system_has_no_process_left_is_told(make_pool, pools, monkeypatch):
    launch = supervision.Supervised.launch

    def fail_second(life, *arguments):
        if life.name == "worker 1":
            raise OSError(11, "Resource temporarily unavailable")
        launch(life, *arguments)

    monkeypatch.setattr(supervision.Supervised, "launch", fail_second)
    with pytest.raises(WorkerDied, match=r"worker 1 could not be started: .Errno 11.*ulimit"):
        make_pool(workers=2)
    first = pools[0].members[0].life.process
    pools[0].stop(3.0)
    assert not first.is_alive()


def test_a_back_off_holds_up_nobody_else(make_pool, skip):
    pool = make_pool(workers=2)
    gather_until(pool, all_of(0, 1))
    for deaths in range(1, 9):
        os.kill(pool.members[0].life.process.pid, signal.SIGKILL)
        gather_until(pool, lambda _, deaths=deaths: pool.restarts == deaths)
        if deaths < 8:
            skip(60.0)
            gather_until(pool, lambda _: pool.alive() == 2)
    taken = gather_until(pool, more_than(20))  # the next is due in a minute
    assert all_of(1)(taken)
    assert pool.alive() == 1
    assert pool.describe()[0].startswith("worker 0: starts in ")
    skip(60.0)
    gather_until(pool, lambda taken: any(worker == 0 for worker, _ in taken))


def test_after_a_stop_what_environments_forgot_is_gone_too(make_real_pool, tmp_path):
    pool = make_real_pool("Careless")
    gather_until(pool, more_than(2))
    left = troubled.simulators(tmp_path) - troubled.closed(tmp_path)
    assert len([pid for pid in left if lives(pid)]) >= 3
    pool.stop(60.0)
    assert not [pid for pid in left if lives(pid)]


def test_a_stop_ends_workers_that_hang_in_c_and_what_they_own(make_real_pool, tmp_path):
    pool = make_real_pool("OwningAndHanging")
    gather_until(pool, lambda _: (tmp_path / "hangs").exists())
    pids = {place.life.process.pid for place in pool._places()} | troubled.simulators(tmp_path)
    pool.stop(0.5)
    assert len(pids) >= 4
    assert not [pid for pid in pids if lives(pid)]


def test_a_stop_comes_back_although_a_process_cannot_be_killed(caplog, monkeypatch):
    """As when a device or a file system does not answer: is_alive() stays true after SIGKILL."""
    asked = []

    class Stuck:
        name, pid = "stuck", 1

        def __getattr__(self, name):
            return lambda *arguments: asked.append(name) or name == "is_alive"

    monkeypatch.setattr(supervision, "KILL_WAIT_S", 0.1)
    stuck = Stuck()
    supervision.let_leave([stuck, None], 0.0)
    assert [name for name in asked if name in ("terminate", "kill")] == ["terminate", "kill"]
    assert "does not end although it was killed" in caplog.text


@pytest.mark.parametrize(("env", "said"), [("Exiting", "SystemExit"), ("Interrupting", "Keyb")])
def test_an_environment_that_ends_the_program_is_a_failure_in_the_serial_pool_too(env, said):
    blueprint = make_blueprint(env=f"tests.troubled:tests/{env}-v0")
    pool = SerialPool(blueprint.workers(), make_board(blueprint))
    previous = signal.signal(signal.SIGINT, lambda *_: None)  # as a run has it
    try:
        pool.start()
        with pytest.raises(PlatformError, match="raised ") as raised:
            pool.poll(0.0)
        assert said in str(raised.value)
    finally:
        signal.signal(signal.SIGINT, previous)
        pool.stop(0.0)


def test_an_environment_that_does_not_come_back_in_the_serial_pool_is_named(monkeypatch, caplog):
    monkeypatch.setattr(serial_pool, "PATIENCE_S", 0.01)
    blueprint = make_blueprint()
    pool = SerialPool(blueprint.workers(), make_board(blueprint))
    pool.start()
    step = CountingEnv.step

    def slow(env, action):
        wait_until(lambda: "has not come back" in caplog.text)
        return step(env, action)

    monkeypatch.setattr(CountingEnv, "step", slow)
    pool.poll(0.0)
    pool.stop(0.0)
    assert "env tests.fakes:tests/Counting-v0 has not come back for 0 s. It is in" in caplog.text
    assert "Still waiting; a second Ctrl-C leaves" in caplog.text


@pytest.mark.parametrize("hang", [hang_in_python, hang_in_c])
def test_the_serial_pool_ends_without_an_environment_that_hangs_when_closed(
    monkeypatch, caplog, hang
):
    monkeypatch.setattr(serial_pool, "CLOSE_WAIT_S", 0.05)
    blueprint = make_blueprint()
    pool = SerialPool(blueprint.workers(), make_board(blueprint))
    pool.start()
    monkeypatch.setattr(CountingEnv, "close", lambda env: hang(), raising=False)
    before = signal.getsignal(signal.SIGALRM)
    pool.stop(0.0)
    assert "env tests.fakes:tests/Counting-v0 raised TimeoutError: it had not come" in caplog.text
    assert signal.getsignal(signal.SIGALRM) == before
