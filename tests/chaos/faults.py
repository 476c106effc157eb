"""The faults of chaos: each is done to a training at work, and says how the session may end."""

import contextlib
import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

from tests.chaos.session import Session

Action = Callable[[Session, random.Random], None]
DONE, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130


@dataclass(frozen=True)
class Fault:
    """What is done, and what may come of it."""

    name: str
    do: Action
    statuses: tuple[int, ...]  # of the session that it happens to
    flags: tuple[str, ...] = ()  # of that session
    saves: bool = True  # the session ends with a save
    before_resume: Action | None = field(default=None)


FAULTS: dict[str, Fault] = {}


def fault(
    name: str, *statuses: int, flags: tuple[str, ...] = (), saves: bool = True
) -> Callable[[Action], Action]:
    """Register a function as a fault."""

    def register(do: Action) -> Action:
        FAULTS[name] = Fault(name, do, statuses, flags, saves)
        return do

    return register


def _workers(session: Session) -> list[psutil.Process]:
    return [
        child
        for child in session.processes()
        if child.pid != session.pid and any("spawn_main" in part for part in child.cmdline())
    ]


@fault("signal-once", INTERRUPTED)
def signal_once(session: Session, rng: random.Random) -> None:
    session.send(rng.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)))


@fault("signal-forwarded", INTERRUPTED)
def signal_forwarded(session: Session, rng: random.Random) -> None:
    """A wrapper or a terminal that closes sends the same wish twice within a second."""
    number = rng.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    session.send(number)
    session.pause(rng.uniform(0.0, 0.5))
    session.send(number)


@fault("signal-twice", INTERRUPTED, 1, saves=False)
def signal_twice(session: Session, rng: random.Random) -> None:
    session.send(signal.SIGINT)
    session.pause(rng.uniform(1.05, 1.5))
    with contextlib.suppress(ProcessLookupError):
        session.send(signal.SIGINT)


@fault("signal-at-start", INTERRUPTED, -signal.SIGTERM, -signal.SIGINT, saves=False)
def signal_at_start(session: Session, rng: random.Random) -> None:
    """Done before the first update: see `Scenario`."""
    session.send(rng.choice((signal.SIGINT, signal.SIGTERM)))


@fault("kill-worker", INTERRUPTED)
def kill_worker(session: Session, rng: random.Random) -> None:
    _worker(session, rng, signal.SIGKILL)
    session.wait_updates(session.updates() + 20)
    session.send(signal.SIGINT)


@fault("stop-worker", INTERRUPTED, flags=("--worker_timeout=3",))
def stop_worker(session: Session, rng: random.Random) -> None:
    """A worker that is stopped is replaced, and training goes on."""
    _worker(session, rng, signal.SIGSTOP)
    session.pause(8.0)
    session.wait_updates(session.updates() + 20)
    session.send(signal.SIGINT)


def _worker(session: Session, rng: random.Random, number: int) -> None:
    workers = _workers(session)
    if workers:  # a reproducible run has none
        with contextlib.suppress(psutil.Error):
            rng.choice(workers).send_signal(number)


@fault("kill-learner", -signal.SIGKILL, saves=False)
def kill_learner(session: Session, rng: random.Random) -> None:
    session.send(signal.SIGKILL)


@fault("kill-all", -signal.SIGKILL, saves=False)
def kill_all(session: Session, rng: random.Random) -> None:
    """What a container does when it is removed."""
    for process in session.processes():
        with contextlib.suppress(psutil.Error):
            process.kill()


PLANS = (
    '{"at": "file.*", "nth": %d, "do": "enospc"}',
    '{"at": "file.*", "nth": %d, "do": "enospc", "for_ever": true}',
    '{"at": "file.*", "nth": %d, "do": "eio"}',
    '{"at": "file.write", "file": "*.pt", "nth": %d, "do": "torn 10"}',
    '{"at": "save.*", "nth": %d, "do": "kill"}',
)


@fault("file-fails", DONE, FAILED, INTERRUPTED, -signal.SIGKILL, saves=False)
def file_fails(session: Session, rng: random.Random) -> None:
    """A file operation fails: see `plan_of`, whose plan the session has begun with."""
    session.wait_end_or(20.0)
    with contextlib.suppress(ProcessLookupError):
        session.send(signal.SIGINT)


def plan_of(rng: random.Random) -> str:
    """Return a plan that lets a random file operation of a session fail."""
    return rng.choice(PLANS) % rng.randint(1, 60)


@fault("output-closed", INTERRUPTED)
def output_closed(session: Session, rng: random.Random) -> None:
    session.close_output()
    session.wait_updates(session.updates() + 20)
    session.send(signal.SIGTERM)


def _damaged(name: str, damage: Action) -> None:
    FAULTS[name] = Fault(name, signal_once, (INTERRUPTED,), before_resume=damage)


def _cut_newest(session: Session, rng: random.Random) -> None:
    newest = session.checkpoints()[-1]
    size = newest.stat().st_size
    os.truncate(newest, rng.randrange(size))


def _flip_newest(session: Session, rng: random.Random) -> None:
    newest = session.checkpoints()[-1]
    content = bytearray(newest.read_bytes())
    for _ in range(rng.randint(1, 20)):
        content[rng.randrange(len(content))] ^= 0xFF
    newest.write_bytes(content)


def _damage_journal(session: Session, rng: random.Random) -> None:
    journal = session.run / "metrics.jsonl"
    content = journal.read_bytes()
    place = rng.randrange(len(content))
    journal.write_bytes(content[:place] + b"\xff{]\n" + content[place + 5 :])


_damaged("damaged-checkpoint", _cut_newest)
_damaged("flipped-checkpoint", _flip_newest)
_damaged("damaged-journal", _damage_journal)
