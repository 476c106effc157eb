"""A machine of files: counters of energy, sensors and processes, and a false library of the GPU."""

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from psutil import NoSuchProcess

from ritornello.metrics import energy, hardware
from ritornello.metrics.curve import undisturbed_share
from ritornello.metrics.energy import MAX_POWER_W, EnergyBook, ProcessorEnergy
from ritornello.metrics.hardware import Gpu, Hardware
from ritornello.metrics.record import Record, check_declared

RANGE_J = 262_143.0


@pytest.fixture
def zone(tmp_path, monkeypatch):
    """Make a counter of energy, or set it; returns its file."""
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)

    def counter(zone, name, joules):
        folder = tmp_path / zone
        folder.mkdir(exist_ok=True)
        texts = {"name": name, "max_energy_range_uj": round(RANGE_J * 1e6)}
        for file, text in {**texts, "energy_uj": round(joules * 1e6)}.items():
            (folder / file).write_text(f"{text}\n")
        return folder / "energy_uj"

    return counter


def test_packages_and_memory_are_added_up_and_nothing_is_counted_twice(zone, clock):
    zones = {
        "intel-rapl:0": ("package-0", 10.0),
        "intel-rapl:0:0": ("core", 0.0),  # part of the package
        "intel-rapl:0:1": ("dram", 1.0),
        "intel-rapl:1": ("package-1", 20.0),
        "intel-rapl:2": ("psys", 0.0),  # holds the packages
        "intel-rapl-mmio:0": ("package-0", 0.0),  # the first package once more
        "dtpm:0": ("package", 0.0),
    }
    for place, (name, joules) in zones.items():
        zone(place, name, joules)
    processor = ProcessorEnergy()
    for place, (name, joules) in zones.items():
        zone(place, name, joules + 100.0)
    clock.now_s += 5.0
    assert processor.read() == (pytest.approx(300.0), pytest.approx(5.0))
    assert processor.note == ""


def test_a_counter_that_starts_again_goes_on_but_not_if_it_was_unseen_or_set_back(zone, clock):
    zone("intel-rapl:0", "package-0", RANGE_J - 30.0)
    processor = ProcessorEnergy()
    zone("intel-rapl:0", "package-0", 20.0)
    clock.now_s += 5.0
    assert processor.read() == (pytest.approx(50.0), pytest.approx(5.0))
    clock.now_s += RANGE_J / MAX_POWER_W + 1.0  # the computer slept, or the run was stopped
    zone("intel-rapl:0", "package-0", 1010.0)
    assert processor.read() is None
    clock.now_s += 5.0
    zone("intel-rapl:0", "package-0", 3.0)  # not a wrap: that would be 50 kW
    assert processor.read() is None
    clock.now_s += 5.0
    zone("intel-rapl:0", "package-0", 13.0)
    assert processor.read() == (pytest.approx(10.0), pytest.approx(5.0))
    assert processor.note == ""


def test_counters_that_cannot_be_read_are_said_and_never_estimated(zone, clock):
    assert (ProcessorEnergy().read(), ProcessorEnergy().note) == (None, "")  # there are none
    zone("intel-rapl:0", "package-0", 1.0)
    secret = zone("intel-rapl:1", "package-1", 1.0)
    processor = ProcessorEnergy()
    secret.unlink()
    for _ in range(2):
        clock.now_s += 5.0
        assert processor.read() is None  # and not what one of the two packages has used
        assert "chmod a+r" in processor.note
        # An interval is missing: the rest would pass for the whole.
        zone("intel-rapl:1", "package-1", 1.0)
    secret.write_text("no number")
    assert "chmod a+r" in ProcessorEnergy().note


def test_energy_per_step_is_over_the_steps_in_which_it_was_measured_and_over_sessions():
    used = {"system/energy_j": 50.0}
    records = [
        # Since which step is not known: the run may have been resumed into another folder.
        Record(agent_steps=10_000_000, values={"system/energy_j": 70.0}),
        Record(agent_steps=10_001_000, values=used),
        Record(agent_steps=10_003_000),  # not measured
        Record(agent_steps=10_004_000, values=used),
    ]
    book = EnergyBook(records)
    assert book.joules_per_million_steps == pytest.approx(50_000.0)
    book.add(200.0, 10_005_000)
    assert (book.joules, book.steps) == (370.0, 3000)
    assert book.joules_per_million_steps == pytest.approx(100_000.0)
    assert EnergyBook(records[:1]).joules_per_million_steps is None
    assert EnergyBook([]).joules_per_million_steps is None


class FalseNvml:
    """A library that knows one GPU; what is in `untold` this GPU does not tell."""

    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM = 0, 1

    def __init__(self, *untold):
        self.energy_mj = 5_000_000
        self.untold = untold
        self.started = 0

    def nvmlInit(self):
        self.started += 1

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid != "GPU-1":
            raise RuntimeError("Not Found")
        return f"handle of {uuid}"

    def __getattr__(self, name):
        answers: dict[str, Any] = {
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=87),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=3_000_000_000),
            "nvmlDeviceGetPowerUsage": 250_500,
            "nvmlDeviceGetTemperature": 61,
            "nvmlDeviceGetClockInfo": 1410,
            "nvmlDeviceGetTotalEnergyConsumption": self.energy_mj,
        }

        def answer(handle, *_):
            assert handle == "handle of GPU-1"
            if name in self.untold:
                raise RuntimeError("Not Supported")
            return answers[name]

        return answer


@pytest.fixture
def gpu_in_use(monkeypatch):
    """Put a library and the name of a GPU in the places of the real ones."""

    def use(nvml, uuid="GPU-1"):
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        monkeypatch.setattr(hardware, "uuid_in_use", lambda: uuid)

    return use


def test_a_gpu_is_measured_from_the_moment_at_which_it_is_used(gpu_in_use):
    nvml, gpu = FalseNvml(), Gpu()
    gpu_in_use(nvml, None)
    assert gpu.read() == ({}, None)
    assert not nvml.started
    gpu_in_use(nvml)
    gpu.read()
    nvml.energy_mj += 1_250_000
    values, joules = gpu.read()
    assert values == {
        "system/gpu_percent": 87.0,
        "system/gpu_used_mb": 3000.0,
        "system/gpu_power_w": 250.5,
        "system/gpu_temperature_c": 61.0,
        "system/gpu_clock_mhz": 1410.0,
    }
    assert joules == pytest.approx(1250.0)
    nvml.energy_mj = 10  # its driver was loaded anew
    assert gpu.read()[1] is None
    assert (nvml.started, gpu.notes) == (1, [])


def test_what_a_gpu_does_not_tell_is_left_out_and_said_once(gpu_in_use):
    gpu_in_use(FalseNvml("nvmlDeviceGetPowerUsage"))
    gpu = Gpu()
    for _ in range(3):
        values, _joules = gpu.read()
        assert "system/gpu_power_w" not in values
        assert values["system/gpu_percent"] == 87.0
    (note,) = gpu.notes
    assert note.startswith("the GPU does not tell gpu_power_w")
    gpu_in_use(FalseNvml(), "GPU-2")
    unknown = Gpu()
    assert [unknown.read(), unknown.read()] == [({}, None), ({}, None)]
    (note,) = unknown.notes
    assert "its driver says Not Found" in note


class FalseProcesses:
    """Two cores (0 and 2) and some processes, whose clocks stand until a test moves them."""

    def __init__(self, monkeypatch):
        self.used = {os.getpid(): 7.0, 7: 1.0, 8: 1.0}  # 8 is what an environment started
        monkeypatch.setattr(hardware, "usable_cores", lambda: (0, 2))
        psutil = hardware.psutil
        monkeypatch.setattr(psutil, "cpu_percent", lambda percpu: [75.0, 10.0, 50.0])
        monkeypatch.setattr(psutil, "Process", self.process)

    def process(self, pid):
        def times():
            if pid not in self.used:
                raise NoSuchProcess(pid)
            return SimpleNamespace(user=self.used[pid], system=0.0)

        return SimpleNamespace(
            pid=pid,
            cpu_times=times,
            memory_info=lambda: SimpleNamespace(rss=2e6),
            memory_full_info=lambda: SimpleNamespace(pss=1e6),
            children=lambda recursive: [self.process(each) for each in (7, 8)],
        )


@pytest.fixture
def processes(monkeypatch):
    return FalseProcesses(monkeypatch)


def test_a_machine_with_everything_is_measured_and_each_metric_is_declared(
    processes, zone, gpu_in_use, clock
):
    zone("intel-rapl:0", "package-0", 1.0)
    gpu_in_use(FalseNvml())
    measured = Hardware([])
    measured.read(0)
    clock.now_s += 20.0
    zone("intel-rapl:0", "package-0", 401.0)
    processes.used[os.getpid()] += 6.0
    processes.used[7] = 0.5  # a new process has the number
    del processes.used[8]
    values = measured.read(1000, {os.getpid(): "learner", 7: "workers"})
    assert values["system/cpu_power_w"] == pytest.approx(20.0)
    assert values["system/energy_j"] == pytest.approx(400.0)
    assert values["system/joules_per_million_steps"] == pytest.approx(400_000.0)
    assert values["system/cores_learner"] == pytest.approx(0.3)
    assert values["system/cores_workers"] == pytest.approx(0.025)
    assert values["system/own_cpu_share"] == pytest.approx(6.5 / 40)
    assert values["system/core_percent_0"] == pytest.approx(75.0)
    assert values["system/cpu_percent"] == pytest.approx(62.5)
    assert values["system/memory_mb"] == pytest.approx(4.0)
    assert values["system/pss_mb"] == pytest.approx(2.0)
    clock.now_s += 1.0
    assert "system/pss_mb" not in measured.read(1000), "every 15 seconds"
    assert measured.new_notes() == []
    for name in values:
        check_declared(name)


def record(wall_s, own=None, everybody=0.0):
    values = {}
    if own is not None:
        values = {"system/own_cpu_share": own, "system/cpu_percent": everybody}
    return Record(wall_s=wall_s, values=values)


def test_the_undisturbed_share_is_of_time_not_of_records():
    assert undisturbed_share([]) is None
    assert undisturbed_share([record(5), record(10)]) is None
    records = [record(2), record(10, 0.9, 95), record(11, 0.5, 95), record(12, 0.85, 96)]
    assert undisturbed_share(records) == pytest.approx(8 / 10)
    # Resumed in another folder from a checkpoint of 7 s: the time until then counts once.
    later = [record(8, 0.1, 90), record(12, 0.9, 95)]
    assert undisturbed_share([*records, *later]) == pytest.approx(12 / 14)
