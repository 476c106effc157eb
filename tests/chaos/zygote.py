"""The process that starts the programs under test: by a fork that has imported everything, or anew.

An import of torch takes seconds of processor time; a fork of a process that has done it takes
milliseconds. The forked child runs the program's file as `__main__`, with the arguments,
descriptors, limits and terminal that were asked for, in a session of its own. Where the import
itself is under test, the child executes a new interpreter instead.

This process has one thread, so that forking it is safe. It is the subreaper of all that it starts:
an orphan becomes its child. When the harness is gone, however it went, it kills all of them and
leaves. Requests and answers are JSON messages over a socket; descriptors travel beside them.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import resource
import runpy
import select
import signal
import socket
import sys
import termios
import time
from pathlib import Path
from typing import Any

import psutil

from tests.chaos import kernel

ROOT = Path(__file__).resolve().parent.parent.parent
# What the programs import anyway. A name that is gone is passed over: it is then imported later.
PRELOADED = ("torch", "gymnasium", "ale_py", "cv2", "pydantic_settings", "rich.live", "psutil")
PRELOADED_OURS = ("ritornello.agent.session", "ritornello.metrics.charts")
MESSAGE_BYTES = 1 << 17
POLL_S = 0.02


Child = tuple[dict[str, Any], list[int]]  # what a fork is to become, and its descriptors


def serve(control: socket.socket) -> Child | None:
    """Start what is asked for; return in each child, and at the end, when nothing is left."""
    kernel.become_subreaper()
    try:
        child = _answer_requests(control)
    except OSError:
        child = None  # the harness is gone, with messages unread
    if child is None:
        kill_descendants()
    return child


def _answer_requests(control: socket.socket) -> Child | None:
    """Return in each child, or None when the harness has closed its end."""
    control.send(json.dumps({"ready": os.getpid(), "own_shm": _own_shared_memory()}).encode())
    while True:
        for pid, status in _reap():
            control.send(json.dumps({"ended": pid, "status": status}).encode())
        if not select.select([control], [], [], POLL_S)[0]:
            continue
        data, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 8)
        if not data:
            return None
        request = json.loads(data)
        pid = os.fork()
        if pid == 0:
            control.close()
            return request, descriptors
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(json.dumps({"started": pid}).encode())


def become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Turn this child into the program that was asked for; returns or raises as that does."""
    os.setsid()
    if request["terminal"]:
        fcntl.ioctl(descriptors[0], termios.TIOCSCTTY, 0)
    for target, source in enumerate(descriptors):
        os.dup2(source, target)
    for source in descriptors:
        if source > 2:
            os.close(source)
    if request["closed_output"]:
        os.close(1)
    for name, value in request["environment"].items():
        os.environ[name] = value
    for name in request["unset"]:
        os.environ.pop(name, None)
    os.chdir(ROOT)
    for name in request["ignored_signals"]:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash leaves no file of gigabytes
    for name, value in request["limits"].items():
        number = getattr(resource, f"RLIMIT_{name}")
        resource.setrlimit(number, (value, value))
    program, arguments = request["program"], request["arguments"]
    if request["anew"]:
        # Python ignores SIGPIPE and SIGXFSZ, and what is ignored stays so over an exec.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        os.execve(sys.executable, [sys.executable, program, *arguments], os.environ)
    _renew_standard_streams()
    sys.argv = [program, *arguments]
    runpy.run_path(str(ROOT / program), run_name="__main__")


def kill_descendants(limit_s: float = 10.0) -> list[int]:
    """Kill everything that this process has started, until nothing is left; return the pids."""
    killed: set[int] = set()
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        children = psutil.Process().children(recursive=True)
        if not children:
            break
        for child in children:
            with contextlib.suppress(psutil.Error):
                child.kill()
            killed.add(child.pid)
        _reap()
        time.sleep(POLL_S)
    return sorted(killed)


def _reap() -> list[tuple[int, int]]:
    """Return (pid, exit status) of each child that has ended; minus the number of a signal."""
    ended = []
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended.append((pid, os.waitstatus_to_exitcode(status)))
    return ended


def _own_shared_memory() -> bool:
    """Give this process and its children a /dev/shm of their own; return whether that worked."""
    try:
        kernel.own_mounts(follow_others=True)
        kernel.mount_tmpfs(Path("/dev/shm"), "size=1g")
    except OSError:
        return False
    return True


def _renew_standard_streams() -> None:
    """Open Python's own streams on the descriptors anew, as a new interpreter would."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        try:
            is_terminal = os.isatty(number)
            stream = open(  # noqa: SIM115 - lives as long as the process
                number, "w", buffering=1 if is_terminal or number == 2 else -1,
                encoding="utf-8", closefd=False,
            )  # fmt: skip
        except OSError:
            stream = None  # closed: Python sets it to None as well
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def main() -> None:
    """Import everything, then serve on the socket that is given as a descriptor."""
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in (*PRELOADED, *PRELOADED_OURS) if sys.argv[2:] != ["--bare"] else ():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    child = serve(control)
    if child is not None:
        become(*child)


if __name__ == "__main__":
    main()
