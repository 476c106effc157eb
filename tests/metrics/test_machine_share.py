from __future__ import annotations

import os
import subprocess
import sys
from collections import namedtuple
from types import SimpleNamespace

import psutil
import pytest

from ritornello.metrics import machine_share
from ritornello.metrics.machine_share import (
    MachineShare,
    descendants,
    undisturbed_share,
    usable_cores,
)
from ritornello.metrics.record import Record, check_declared
from tests.house import ROOT

Times = namedtuple("Times", "user nice system idle iowait steal guest")
Used = namedtuple("Used", "user system")


class Machine:
    """Two cores and some processes, whose clocks stand until a test moves them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.cores = [dict.fromkeys(Times._fields, 50.0) for _ in range(3)]
        self.used = {os.getpid(): 7.0}
        monkeypatch.setattr(machine_share, "usable_cores", lambda: (0, 2))
        monkeypatch.setattr(machine_share, "descendants", lambda pid: [*self.used][1:])
        monkeypatch.setattr(machine_share.time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(
            machine_share.psutil, "cpu_times", lambda percpu: [Times(**core) for core in self.cores]
        )
        monkeypatch.setattr(machine_share.psutil, "Process", self.process)

    def process(self, pid: int) -> SimpleNamespace:
        def read() -> Used:
            if pid not in self.used:
                raise psutil.NoSuchProcess(pid)
            return Used(self.used[pid] / 2, self.used[pid] / 2)

        return SimpleNamespace(
            cpu_times=read, memory_info=lambda: SimpleNamespace(rss=1_000_000 * (pid % 7 + 1))
        )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_own_share_and_everybodys_are_of_the_cores_that_may_be_used(machine: Machine) -> None:
    share = MachineShare()
    machine.now_s += 10.0
    machine.used[os.getpid()] += 3.0
    machine.used[11] = 5.0  # a worker, started meanwhile
    machine.cores[0]["user"] += 9.0
    machine.cores[0]["idle"] += 1.0
    machine.cores[1]["user"] += 10.0  # not ours to use
    machine.cores[2]["steal"] += 2.0
    machine.cores[2]["system"] += 1.0
    machine.cores[2]["guest"] += 1.0  # counted in user already
    machine.cores[2]["iowait"] += 3.0
    machine.cores[2]["idle"] += 4.0
    values = share.read()
    assert values["system/own_cpu_share"] == pytest.approx(8.0 / 20.0)
    assert values["system/cpu_percent"] == pytest.approx(100 * 12.0 / 20.0)
    assert values["system/memory_mb"] == pytest.approx(os.getpid() % 7 + 1 + 11 % 7 + 1)
    for name in values:
        check_declared(name)


def test_a_second_reading_is_of_what_came_since(machine: Machine) -> None:
    machine.used[11] = 1.0
    share = MachineShare()
    for _ in range(2):
        machine.now_s += 5.0
        machine.used[os.getpid()] += 1.0
        machine.used[11] += 1.0
        machine.cores[0]["idle"] += 5.0
        machine.cores[2]["user"] += 5.0
        values = share.read()
        assert values["system/own_cpu_share"] == pytest.approx(0.2)
        assert values["system/cpu_percent"] == pytest.approx(50.0)


def test_a_worker_that_ends_or_whose_number_is_given_again_does_no_harm(machine: Machine) -> None:
    machine.used[11] = 100.0
    share = MachineShare()
    machine.now_s += 5.0
    machine.used[11] = 2.0  # another process by the same number
    assert share.read()["system/own_cpu_share"] == pytest.approx(0.2)
    machine.now_s += 5.0
    del machine.used[11]
    assert share.read()["system/own_cpu_share"] == 0.0
    machine.now_s += 5.0
    machine.used[11] = 4.0
    assert share.read()["system/own_cpu_share"] == pytest.approx(0.4)


def test_readings_without_time_between_say_nothing_of_shares(machine: Machine) -> None:
    share = MachineShare()
    assert set(share.read()) == {"system/memory_mb"}


def test_memory_of_the_gpu_is_told_only_where_one_is_used(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = SimpleNamespace(is_initialized=lambda: False, memory_allocated=lambda: 3_000_000)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    share = MachineShare()
    assert "system/gpu_memory_mb" not in share.read()
    cuda.is_initialized = lambda: True
    assert share.read()["system/gpu_memory_mb"] == 3.0


FAMILY = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import subprocess, sys; "
    "p = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE); "
    "print('ready', flush=True); sys.stdin.read(); p.communicate()"], stdin=subprocess.PIPE)
sys.stdin.read()
child.communicate()
"""


@pytest.mark.process
def test_descendants_are_those_that_a_search_of_all_processes_finds() -> None:
    family = subprocess.Popen(
        [sys.executable, "-c", FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    try:
        assert family.stdout is not None
        assert family.stdout.readline() == b"ready\n"  # the grandchild is there
        searched = {each.pid for each in psutil.Process(family.pid).children(recursive=True)}
        assert len(searched) == 2
        assert set(descendants(family.pid)) == searched
        assert searched < set(descendants(os.getpid()))
        assert machine_share._descendants_by_search(family.pid) == descendants(family.pid)
    finally:
        family.communicate()
    assert descendants(family.pid) == []


def test_a_real_reading_is_of_this_process_and_within_the_machine() -> None:
    share = MachineShare()
    total = 0
    while "system/cpu_percent" not in (values := share.read()):
        total += sum(range(100_000))  # until the kernel's clock has moved
    assert 0.0 <= values["system/cpu_percent"] <= 100.0
    assert values["system/own_cpu_share"] >= 0.0
    assert values["system/memory_mb"] > 1.0
    assert len(usable_cores()) >= 1


def record(wall_s: float, own: float | None = None, everybody: float = 0.0) -> Record:
    values = {}
    if own is not None:
        values = {"system/own_cpu_share": own, "system/cpu_percent": everybody}
    return Record(wall_s=wall_s, values=values)


def test_the_undisturbed_share_is_of_time_not_of_records() -> None:
    assert undisturbed_share([]) is None
    assert undisturbed_share([record(5), record(10)]) is None
    records = [record(2), record(10, 0.9, 95), record(11, 0.5, 95), record(12, 0.85, 96)]
    assert undisturbed_share(records) == pytest.approx(8 / 10)
    # Resumed in another folder from a checkpoint of 7 s: the time until then counts once.
    later = [record(8, 0.1, 90), record(12, 0.9, 95)]
    assert undisturbed_share([*records, *later]) == pytest.approx(12 / 14)
