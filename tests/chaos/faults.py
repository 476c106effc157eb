"""The faults of chaos: each is done to a training at work, and says how the session may end.

Files that fail, or are damaged, are for tests/exact and tests/fuzz: they hurt each of them.
"""

import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass

import psutil

INTERRUPTED = 130


@dataclass(frozen=True)
class Fault:
    """What is done, and which outcomes are allowed."""

    name: str
    do: Callable  # of the session and a source of random numbers
    statuses: tuple[int, ...]  # of the session that it happens to
    flags: tuple[str, ...] = ()  # of that session
    saves: bool = True  # the session ends with a save


FAULTS = {}


def fault(name, *statuses, flags=(), saves=True):
    """Register a function as a fault."""

    def register(do):
        FAULTS[name] = Fault(name, do, statuses, flags, saves)
        return do

    return register


def _workers(session):
    return [
        child
        for child in session.processes()
        if child.pid != session.pid and any("spawn_main" in part for part in child.cmdline())
    ]


@fault("signal-once", INTERRUPTED)
def signal_once(session, rng):
    session.send(rng.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)))


@fault("signal-forwarded", INTERRUPTED)
def signal_forwarded(session, rng):
    """A wrapper or a terminal that closes sends the same wish twice within a second."""
    number = rng.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    session.send(number)
    session.pause(rng.uniform(0.0, 0.5))
    session.send(number)


@fault("signal-twice", INTERRUPTED, 1, saves=False)
def signal_twice(session, rng):
    session.send(signal.SIGINT)
    session.pause(rng.uniform(1.05, 1.5))
    with contextlib.suppress(ProcessLookupError):
        session.send(signal.SIGINT)


@fault("signal-at-start", INTERRUPTED, -signal.SIGTERM, -signal.SIGINT, saves=False)
def signal_at_start(session, rng):
    """Done before the first update: see `Scenario`."""
    session.send(rng.choice((signal.SIGINT, signal.SIGTERM)))


@fault("kill-worker", INTERRUPTED)
def kill_worker(session, rng):
    _worker(session, rng, signal.SIGKILL)
    session.wait_updates(session.updates() + 20)
    session.send(signal.SIGINT)


@fault("stop-worker", INTERRUPTED, flags=("--worker_timeout=3",))
def stop_worker(session, rng):
    """A worker that is stopped is replaced, and training goes on."""
    _worker(session, rng, signal.SIGSTOP)
    session.pause(8.0)
    session.wait_updates(session.updates() + 20)
    session.send(signal.SIGINT)


def _worker(session, rng, number):
    workers = _workers(session)
    if workers:  # a reproducible run has none
        with contextlib.suppress(psutil.Error):
            rng.choice(workers).send_signal(number)


@fault("kill-learner", -signal.SIGKILL, saves=False)
def kill_learner(session, rng):
    session.send(signal.SIGKILL)


@fault("kill-all", -signal.SIGKILL, saves=False)
def kill_all(session, rng):
    """What a container does when it is removed."""
    for process in session.processes():
        with contextlib.suppress(psutil.Error):
            process.kill()


@fault("output-closed", INTERRUPTED)
def output_closed(session, rng):
    session.close_output()
    session.wait_updates(session.updates() + 20)
    session.send(signal.SIGTERM)
