"""The processes of a session and what they hold: found by marks, so that nobody else's are met."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

MARK = "CHAOS_SESSION"  # in the environment of everything that a session starts


def processes_of(marks: Iterable[str], session_ids: Iterable[int]) -> list[psutil.Process]:
    """Return the living processes of sessions: by their session id, or by their environment.

    The environment finds those that made a session of their own, and orphans; the session id finds
    forks, whose environment the system shows as it was before the fork.
    """
    wanted = {f"{MARK}={mark}".encode() for mark in marks}
    ids = set(session_ids)
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(pid) in ids or not wanted.isdisjoint(_environment(pid)):
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
    return found


def end_processes(processes: list[psutil.Process]) -> None:
    """Kill processes that `processes_of` found, and wait for them."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=5)


def describe(processes: list[psutil.Process]) -> list[str]:
    """Return a line on each process that is still there."""
    lines = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            lines.append(f"{process.pid} {' '.join(process.cmdline())[-100:]}")
    return lines


def stack_text(processes: list[psutil.Process]) -> str:
    """Return where the threads of processes wait in the kernel, as far as we may know."""
    parts = []
    for process in processes:
        parts += describe([process])
        for task in sorted(Path(f"/proc/{process.pid}/task").glob("*")):
            for name in ("comm", "wchan", "syscall", "stack"):
                with contextlib.suppress(OSError):
                    parts.append(f"  {task.name} {name}: {(task / name).read_text().strip()}")
    return "\n".join(parts) + "\n"


def writers(processes: list[psutil.Process], name: str = "metrics.jsonl") -> dict[str, set[int]]:
    """Return which processes have files of this name open for writing, by path."""
    found: dict[str, set[int]] = {}
    for process in processes:
        for path in _written_files(process.pid):
            if path.endswith(f"/{name}"):
                found.setdefault(path, set()).add(process.pid)
    return found


def held_locks(folder: Path) -> list[str]:
    """Return the lock files in a run folder that somebody still holds."""
    held = []
    for file in folder.glob("*lock*"):
        with contextlib.suppress(OSError), file.open("rb") as opened:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held.append(file.name)
    return held


def _environment(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def _written_files(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for entry in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError, StopIteration, ValueError):
                info = Path(f"/proc/{pid}/fdinfo/{entry}").read_text()
                flags = next(x for x in info.splitlines() if x.startswith("flags:"))
                if int(flags.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY:
                    yield os.readlink(f"/proc/{pid}/fd/{entry}")
