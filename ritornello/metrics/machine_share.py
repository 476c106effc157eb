"""How much of the machine a run had to itself: its own share, everybody's, and its memory.

A run beside other work looks as a slow program does. Two figures tell them apart:
`system/cpu_percent` is what all processes used, `system/own_cpu_share` what this run did, and what
lies between them is others' (or the kernel's).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from ritornello.metrics.record import Record

# More than this share of the machine in other hands, and a record is disturbed: minutes that it is
# part of compare with nothing. The system itself takes a few hundredths.
OTHERS_ALLOWED = 0.1


@dataclass(frozen=True)
class ProcessUse:
    """What one process of the run takes."""

    cores: float  # processor time per second, since the reading before
    memory_mb: float  # resident


class MachineShare:
    """Measures since its last reading. One thread reads it, every few seconds."""

    def __init__(self) -> None:
        """Begin a first interval."""
        self.processes: dict[int, ProcessUse] = {}  # by process id, as of the last reading
        self.core_percent: dict[int, float] = {}  # use of each core by all processes, likewise
        self._used_s: dict[int, tuple[float, float]] = {}  # processor seconds, resident MB
        self._cores = usable_cores()
        self._own_s: dict[int, float] = {}
        self._measure_own()
        self._machine = _machine_seconds(self._cores)
        self._since_s = time.monotonic()

    def read(self) -> dict[str, float]:
        """Return the values for a Record and start a new interval.

        `system/own_cpu_share` and `system/cpu_percent` are of the cores that this process may use.
        """
        self._measure_own()
        machine, before = _machine_seconds(self._cores), self._machine
        now_s = time.monotonic()
        passed_s = now_s - self._since_s
        self._machine, self._since_s = machine, now_s
        used = self._used_s.values()
        values = {"system/memory_mb": sum(memory for _, memory in used), **_accelerator_memory()}
        if passed_s > 0:
            own_s = sum(seconds for seconds, _ in used)
            values["system/own_cpu_share"] = own_s / (passed_s * len(self._cores))
            self.processes = {
                pid: ProcessUse(seconds / passed_s, memory)
                for pid, (seconds, memory) in self._used_s.items()
            }
        grown = {
            core: (machine[core][0] - busy, machine[core][1] - whole)
            for core, (busy, whole) in before.items()
            if core in machine
        }
        # The kernel counts in hundredths of a second.
        self.core_percent = {
            c: _percent(*seconds) for c, seconds in grown.items() if seconds[1] > 0
        }
        busy_s, whole_s = (sum(seconds[part] for seconds in grown.values()) for part in (0, 1))
        if whole_s > 0:
            values["system/cpu_percent"] = _percent(busy_s, whole_s)
        return values

    def _measure_own(self) -> None:
        """Measure the run's processes since the last call.

        What a process that has ended did after the last call is not known any more.
        """
        self._used_s = {}
        total_s: dict[int, float] = {}
        for pid in [os.getpid(), *descendants(os.getpid())]:
            try:
                process = psutil.Process(pid)
                used = process.cpu_times()
                total = used.user + used.system
                memory_mb = process.memory_info().rss / 1e6
            except psutil.Error:
                continue  # it has just ended
            # Of a number that went to a new process, all is new.
            before = self._own_s.get(pid, 0.0)
            self._used_s[pid] = (total - before if total >= before else total, memory_mb)
            total_s[pid] = total
        self._own_s = total_s


def undisturbed_share(records: Iterable[Record]) -> float | None:
    """Return the share of a run's time in which others left the machine alone; None: not known.

    Args:
      records: of one run in order, sessions one after the other.
    """
    known = undisturbed = last_s = 0.0
    for record in records:
        # Where the run went back to a checkpoint, nobody knows when this record began.
        passed_s = max(0.0, record.wall_s - last_s)
        last_s = record.wall_s
        own = record.values.get("system/own_cpu_share")
        everybody = record.values.get("system/cpu_percent")
        if own is not None and everybody is not None:
            known += passed_s
            undisturbed += passed_s if everybody / 100.0 - own <= OTHERS_ALLOWED else 0.0
    return undisturbed / known if known else None


def load() -> str:
    """Return how many programs want to compute, as a sentence's end; empty where nobody counts."""
    try:
        waiting = os.getloadavg()[0]
    except (AttributeError, OSError):
        return ""
    return f"on {len(usable_cores())} cores, {waiting:.1f} threads wanted to compute (load average)"


def usable_cores() -> tuple[int, ...]:
    """Return the numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def descendants(pid: int) -> list[int]:
    """Return the processes that a process started, and theirs, in no order.

    Linux keeps a list with each thread; elsewhere every process of the machine is looked at.
    """
    if not sys.platform.startswith("linux") or not Path("/proc/self/task").exists():
        return _descendants_by_search(pid)
    found: list[int] = []
    waiting = [pid]
    while waiting:
        folder = Path("/proc", str(waiting.pop()), "task")
        try:
            lists = [(thread / "children").read_text() for thread in folder.iterdir()]
        except FileNotFoundError:
            if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
                return _descendants_by_search(pid)  # a kernel that keeps no such lists
            continue  # a thread or a process has just ended
        except OSError:
            continue
        children = [int(child) for text in lists for child in text.split()]
        found += children
        waiting += children
    return found


def _descendants_by_search(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []


def _percent(busy_s: float, whole_s: float) -> float:
    return 100.0 * min(1.0, max(0.0, busy_s / whole_s))


def _machine_seconds(cores: Iterable[int]) -> dict[int, tuple[float, float]]:
    """Return (busy, all) seconds of each of some cores since the machine started.

    Time that a hypervisor gave to somebody else ("steal") is busy: it was not there to be had.
    """
    times = psutil.cpu_times(percpu=True)
    seconds = {}
    for core in cores:
        if core >= len(times):  # taken offline, or a container that shows fewer
            continue
        each = times[core]._asdict()
        # Guests are counted in user and nice already.
        whole = sum(seconds for name, seconds in each.items() if not name.startswith("guest"))
        seconds[core] = (whole - each["idle"] - each.get("iowait", 0.0), whole)
    return seconds


def _accelerator_memory() -> dict[str, float]:
    """Return the memory that torch holds on the GPU, if this process uses one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return {}
    return {"system/gpu_memory_mb": torch.cuda.memory_allocated() / 1e6}
