"""A process never outlives its owner, whichever process dies and for whatever reason.

Two kinds of belonging:

* A *program* that another program started (a run of a sequence, one of several learners) is
  asked to end when its starter is gone: `environment_for_child` in the starter,
  `end_with_starter` in the child.
* A *family* is a worker process and everything that its environments start, be it a simulator in a
  session of its own. `Family.found` in the worker, `Family.end` from outside. A family is known by
  its process group, and by a mark in the environment variables of programs that were started in it;
  so it can be ended when its head is dead already, and children have another parent by then.

The learner itself starts things, too: where environments live in its own process, and once always,
when an environment is made to see what it shows. `mark_own_children` makes these a family without a
group, because the learner's group may hold strangers, such as the rest of a pipeline.

Who ends a family when the learner dies? A worker leaves by itself when its pipe is closed. One that
was stopped, or hangs in C code, cannot: the learner's warden (core/warden.py), a small process that
does nothing but wait for the learner's end, gives all families LEAVE_S and then kills what is left.
This file is also the warden's program, so it begins with the standard library only, and little of
it.

Without /proc (macOS), a family is its process group alone.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

STARTER = "VTRACE_STARTER"  # environment variable: process id of whoever started this program
FAMILY = "VTRACE_FAMILY"  # environment variable: the mark of the family
LEAVE_S = 5.0  # for workers to close their environments once the learner is gone
LOOK_S = 0.1  # how often it is looked whether a process is gone
END_S = 5.0  # a process that was killed is gone within milliseconds, unless a device holds it
PARENT_LOOK_S = 0.5
PARENT_WATCH = "parent-watch"  # name of the thread that looks whether the starter is gone


# --- programs ------------------------------------------------------------------------------------


def environment_for_child() -> dict[str, str]:
    """Return environment variables for a program that is to end when this process does.

    The program has to call `end_with_starter`.
    """
    return {**os.environ, STARTER: str(os.getpid())}


def end_with_starter() -> None:
    """Get SIGTERM when the program that started this one is gone, if it wants that. Call it early.

    A run saves at that signal. The request is taken out of the environment variables, so that no
    child takes it for its own.
    """
    starter = os.environ.pop(STARTER, "")
    if starter.isdecimal():
        die_with_parent(int(starter))


def die_with_parent(parent: int, number: int = signal.SIGTERM) -> None:
    """Get signal `number` once, within a second, when the process `parent` ends or has ended.

    A thread looks at the parent's process id. Linux could tell the end instead (PR_SET_PDEATHSIG),
    but it tells that of the *thread* that was the parent, and once for each that becomes the
    parent.
    """

    def watch() -> None:
        while os.getppid() == parent:
            _pause(PARENT_LOOK_S)
        os.kill(os.getpid(), number)

    threading.Thread(target=watch, name=PARENT_WATCH, daemon=True).start()


@contextlib.contextmanager
def children_deaf_to(*numbers: int) -> Iterator[None]:
    """Block these signals in processes that are started in the block, from their first moment.

    They are blocked, which a child inherits, and not ignored. The child decides when it listens.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_interrupts() -> None:
    """Ignore Ctrl-C, which the terminal sends to every process; the learner decides for all."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


# --- families ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Family:
    """A process and all that it starts, told from others by a mark. Plain and picklable."""

    mark: str = field(default_factory=lambda: secrets.token_hex(16))

    def found(self) -> None:
        """Make this process the head. Call it before it starts others."""
        with contextlib.suppress(OSError):  # it leads a session already: that is a group too
            os.setpgid(0, 0)
        os.environ[FAMILY] = self.mark

    def members(self, head: int) -> list[int]:
        """Return the ids of the processes that live, without the one that asks.

        `head` is the process id of the head, dead or alive, and the number of the group.
        """
        if not os.path.isdir("/proc/self"):
            return [] if head == os.getpid() else _group_without_proc(head)
        variable = f"{FAMILY}={self.mark}".encode()
        pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
        return [pid for pid in pids if pid != os.getpid() and _belongs(pid, head, variable)]

    def end(self, head: int, limit_s: float = END_S, only: Collection[int] | None = None) -> bool:
        """Kill every member; return whether none is left. It may be called again.

        Args:
          head: process id of the head, dead or alive.
          limit_s: time for them to be gone. A process that a device holds in the kernel ends later.
          only: process ids of the members to kill; None kills all.
        """
        killed: set[int] = set()
        deadline = time.monotonic() + limit_s
        while members := [p for p in self.members(head) if only is None or p in only]:
            for pid in members:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            killed.update(members)
            if time.monotonic() >= deadline:
                break
            _pause(LOOK_S / 10)  # also for those that were being started meanwhile
        for pid in killed - {head}:
            # Where this process is the first of a container it inherits them, and nobody else
            # would take them off the list. (The head is the child of who calls, and waited for.)
            with contextlib.suppress(OSError):
                os.waitpid(pid, os.WNOHANG)
        return not members


NO_GROUP = -1  # in the place of a head: of a family that is known by its mark alone


def mark_own_children() -> None:
    """Mark whatever this program starts from now on. Call it first, and again after an exec.

    Best before the program starts itself anew: then also copies of it that run no other program
    (fork) show the mark.
    """
    if own_family() is None:
        os.environ[FAMILY] = f"{os.getpid()}-{secrets.token_hex(16)}"


def own_family() -> Family | None:
    """Return the family of `mark_own_children`, if this process has called it.

    A mark that was inherited belongs to the process that started this one.
    """
    mark = os.environ.get(FAMILY, "")
    return Family(mark) if mark.startswith(f"{os.getpid()}-") else None


def own_children() -> set[int]:
    """Return the ids of the processes that this one has started, in whatever session.

    Without a mark (`mark_own_children`) there are none. Processes of Python's multiprocessing are
    left out: it ends them itself, and its helpers serve for as long as the program runs.
    """
    family = own_family()
    members = [] if family is None else family.members(NO_GROUP)
    return {pid for pid in members if not _is_of_multiprocessing(pid)}


def end_own_children(pids: Collection[int]) -> None:
    """Kill those of these processes that this one has started and that still live."""
    family = own_family()
    if family is not None and pids:
        family.end(NO_GROUP, only=pids)


@contextlib.contextmanager
def started_in_here_ended() -> Iterator[None]:
    """End the processes that this one has started in the block; see `own_children`."""
    before = own_children()
    try:
        yield
    finally:
        end_own_children(own_children() - before)


def _is_of_multiprocessing(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"from multiprocessing." in file.read()
    except OSError:
        return False


def _belongs(pid: int, group: int, variable: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # pid (name) state parent group ...; the name may hold anything
            state, _, its_group = file.read().rpartition(b")")[2].split()[:3]
        if state in (b"Z", b"X"):  # dead; only its parent has not looked yet
            return False
        if int(its_group) == group:
            return True
        with open(f"/proc/{pid}/environ", "rb") as file:
            return variable in file.read().split(b"\0")
    except (OSError, ValueError):
        return False  # it has just ended, or belongs to somebody else


def _group_without_proc(group: int) -> list[int]:
    try:
        os.killpg(group, 0)
    except OSError:
        return []
    return [-group]  # os.kill takes it for the whole group


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


# --- the warden's program ------------------------------------------------------------------------


def watch_over(orders: BinaryIO, leave_s: float) -> None:
    """End all families that are left when `orders` ends, which is the learner's end.

    `orders` has lines "+<head> <mark>" and "-<head>", for families that have begun and ended.
    Families have `leave_s` to leave by themselves.
    """
    families: dict[int, Family] = {}
    for line in orders:
        number, _, mark = line[1:].decode().strip().partition(" ")
        if line.startswith(b"+"):
            families[int(number)] = Family(mark)
        else:
            families.pop(int(number), None)
    deadline = time.monotonic() + leave_s
    while time.monotonic() < deadline:
        if not any(family.members(head) for head, family in families.items()):
            return
        _pause(LOOK_S)
    for head, family in families.items():
        family.end(head)


if __name__ == "__main__":
    watch_over(sys.stdin.buffer, float(sys.argv[1]))
