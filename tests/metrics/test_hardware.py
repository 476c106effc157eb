"""A machine of files: counters of energy, sensors and processes, and a false library of the GPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ritornello.metrics import hardware, machine_share
from ritornello.metrics.energy import MAX_POWER_W, EnergyBook, ProcessorEnergy
from ritornello.metrics.gpu import Gpu
from ritornello.metrics.hardware import Hardware
from ritornello.metrics.record import METRICS, Record, check_declared

RANGE_J = 262_143.0


class Tree:
    """The root of a file system with what a kernel shows there."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: object) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
        return file

    def zone(self, zone: str, name: str, joules: float, range_j: float = RANGE_J) -> Path:
        folder = f"sys/class/powercap/{zone}"
        self.write(f"{folder}/name", name)
        self.write(f"{folder}/max_energy_range_uj", round(range_j * 1e6))
        return self.write(f"{folder}/energy_uj", round(joules * 1e6))

    def process(self, pid: int, pss_kb: int) -> None:
        self.write(
            f"proc/{pid}/smaps_rollup", f"00-ff ---p\nRss: 9 kB\nPss: {pss_kb} kB\nPss_Anon: 1 kB"
        )


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture
def clock() -> Clock:
    return Clock()


# --- energy --------------------------------------------------------------------------------------


def test_packages_and_memory_are_added_up_and_nothing_is_counted_twice(
    tree: Tree, clock: Clock
) -> None:
    zones = {
        "intel-rapl:0": ("package-0", 10.0),
        "intel-rapl:0:0": ("core", 0.0),  # part of the package
        "intel-rapl:0:1": ("dram", 1.0),
        "intel-rapl:1": ("package-1", 20.0),
        "intel-rapl:2": ("psys", 0.0),  # holds the packages
        "intel-rapl-mmio:0": ("package-0", 0.0),  # the first package once more
        "dtpm:0": ("package", 0.0),
    }
    for zone, (name, joules) in zones.items():
        tree.zone(zone, name, joules)
    energy = ProcessorEnergy(tree.root, clock)
    for zone, (name, joules) in zones.items():
        tree.zone(zone, name, joules + 100.0)
    clock.now_s += 5.0
    assert energy.read() == (pytest.approx(300.0), pytest.approx(5.0))
    assert energy.note == ""


def test_a_counter_that_starts_again_at_zero_goes_on(tree: Tree, clock: Clock) -> None:
    tree.zone("intel-rapl:0", "package-0", RANGE_J - 30.0)
    energy = ProcessorEnergy(tree.root, clock)
    tree.zone("intel-rapl:0", "package-0", 20.0)
    clock.now_s += 5.0
    assert energy.read() == (pytest.approx(50.0), pytest.approx(5.0))
    tree.zone("intel-rapl:0", "package-0", 25.0)
    clock.now_s += 1.0
    assert energy.read() == (pytest.approx(5.0), pytest.approx(1.0))


def test_a_counter_that_may_have_gone_round_unseen_or_was_set_back_says_nothing(
    tree: Tree, clock: Clock
) -> None:
    tree.zone("intel-rapl:0", "package-0", 1000.0)
    energy = ProcessorEnergy(tree.root, clock)
    clock.now_s += RANGE_J / MAX_POWER_W + 1.0  # the computer slept, or the run was stopped
    tree.zone("intel-rapl:0", "package-0", 1010.0)
    assert energy.read() is None
    clock.now_s += 5.0
    tree.zone("intel-rapl:0", "package-0", 3.0)  # not a wrap: that would be 50 kW
    assert energy.read() is None
    clock.now_s += 5.0
    tree.zone("intel-rapl:0", "package-0", 13.0)
    assert energy.read() == (pytest.approx(10.0), pytest.approx(5.0))
    assert energy.note == ""


@pytest.mark.parametrize("when", ["at first", "later"])
def test_counters_that_only_root_may_read_are_said_and_never_estimated(
    tree: Tree, clock: Clock, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.zone("intel-rapl:0", "package-0", 1.0)
    secret = tree.zone("intel-rapl:1", "package-1", 1.0)
    read = Path.read_text

    def read_text(path: Path, **options: Any) -> str:
        if path == secret:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path, **options)

    if when == "at first":
        monkeypatch.setattr(Path, "read_text", read_text)
    energy = ProcessorEnergy(tree.root, clock)
    monkeypatch.setattr(Path, "read_text", read_text)
    clock.now_s += 5.0
    assert energy.read() is None  # and not what one of the two packages has used
    assert "Permission denied" in energy.note
    assert "chmod a+r" in energy.note
    monkeypatch.undo()
    clock.now_s += 5.0
    assert energy.read() is None  # an interval is missing: the rest would pass for the whole


@pytest.mark.parametrize("text", ["", "many", "12.5"])
def test_a_counter_that_is_no_number_is_not_believed(tree: Tree, clock: Clock, text: str) -> None:
    tree.zone("intel-rapl:0", "package-0", 1.0)
    tree.write("sys/class/powercap/intel-rapl:0/energy_uj", text)
    energy = ProcessorEnergy(tree.root, clock)
    assert energy.read() is None
    assert "does not hold a number" in energy.note


def test_a_machine_without_counters_says_so(tree: Tree, clock: Clock) -> None:
    energy = ProcessorEnergy(tree.root, clock)
    clock.now_s += 1.0
    assert energy.read() is None
    assert energy.note.startswith("no energy is measured: this system shows no energy counters")


def test_energy_per_step_is_over_the_steps_in_which_it_was_measured_and_over_sessions() -> None:
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
    assert EnergyBook().joules_per_million_steps is None


# --- the GPU -------------------------------------------------------------------------------------


class FalseNvml:
    """A library that knows one GPU; what is in `untold` this GPU does not tell."""

    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM = 0, 1

    def __init__(self, *untold: str) -> None:
        self.energy_mj = 5_000_000
        self.untold = untold
        self.started = 0

    def nvmlInit(self) -> None:
        self.started += 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != "GPU-1":
            raise RuntimeError("Not Found")
        return f"handle of {uuid}"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        answers: dict[str, Any] = {
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=87),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=3_000_000_000),
            "nvmlDeviceGetPowerUsage": 250_500,
            "nvmlDeviceGetTemperature": 61,
            "nvmlDeviceGetClockInfo": 1410,
            "nvmlDeviceGetTotalEnergyConsumption": self.energy_mj,
        }

        def answer(handle: str, *_: int) -> Any:
            assert handle == "handle of GPU-1"
            if name in self.untold:
                raise RuntimeError("Not Supported")
            return answers[name]

        return answer


def test_a_gpu_is_measured_from_the_moment_at_which_it_is_used() -> None:
    nvml, used = FalseNvml(), []
    gpu = Gpu(lambda: nvml, lambda: used[0] if used else None)
    assert gpu.read() == ({}, None)
    assert not nvml.started
    used.append("GPU-1")
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


def test_what_a_gpu_does_not_tell_is_left_out_and_said_once() -> None:
    nvml = FalseNvml("nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEnergyConsumption")
    gpu = Gpu(lambda: nvml, lambda: "GPU-1")
    for _ in range(3):
        values, joules = gpu.read()
        assert "system/gpu_power_w" not in values
        assert values["system/gpu_percent"] == 87.0
        assert joules is None
    assert [note.split(":")[0] for note in gpu.notes] == [
        "the GPU does not tell energy", "the GPU does not tell gpu_power_w",
    ]  # fmt: skip


def missing() -> Any:
    raise ImportError("No module named 'pynvml'")


@pytest.mark.parametrize(
    ("load", "uuid", "said"),
    [
        (missing, "GPU-1", "nvidia-ml-py is missing"),
        (FalseNvml, "GPU-2", "its driver says Not Found"),
    ],
)
def test_a_gpu_that_cannot_be_asked_is_said_once(
    load: Callable[[], Any], uuid: str, said: str
) -> None:
    gpu = Gpu(load, lambda: uuid)
    assert [gpu.read(), gpu.read()] == [({}, None), ({}, None)]
    (note,) = gpu.notes
    assert said in note


def test_without_torch_nothing_is_imported() -> None:
    gpu = Gpu(missing)  # the tests use no GPU
    assert gpu.read() == ({}, None)
    assert gpu.notes == []


# --- all of it -----------------------------------------------------------------------------------


@pytest.fixture
def machine(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A machine with everything: this process, a worker (7), and what its environment started."""
    tree.zone("intel-rapl:0", "package-0", 1.0)
    tree.write("sys/class/hwmon/hwmon0/name", "nvme")
    tree.write("sys/class/hwmon/hwmon0/temp1_input", 99_000)
    tree.write("sys/class/hwmon/hwmon1/name", "coretemp")
    tree.write("sys/class/hwmon/hwmon1/temp1_input", 51_500)
    tree.write("sys/class/hwmon/hwmon1/temp2_input", 64_250)
    tree.write("sys/class/hwmon/hwmon1/temp3_input", "")
    tree.write("proc/meminfo", "MemTotal: 9 kB\nSwapTotal: 3000000 kB\nSwapFree: 1000000 kB")
    for pid, kilobytes in ((os.getpid(), 300_000), (7, 100_000), (8, 50_000)):
        tree.process(pid, kilobytes)
    used = SimpleNamespace(user=0.0, system=0.0)
    monkeypatch.setattr(machine_share, "descendants", lambda pid: [7, 8])
    monkeypatch.setattr(
        machine_share.psutil,
        "Process",
        lambda pid: SimpleNamespace(
            cpu_times=lambda: used, memory_info=lambda: SimpleNamespace(rss=2e6)
        ),
    )
    return tree


def read_until_all_is_there(hardware: Hardware, clock: Clock, tree: Tree) -> dict[str, float]:
    """A reading after the first one, over which the clock of this machine's kernel has moved.

    The first one knows no energy per step: nobody knows since which step its energy was used.
    """
    values: dict[str, float] = {}
    joules = 1.0
    hardware.read(0)
    while "system/cpu_percent" not in values:
        sum(range(100_000))
        clock.now_s += 20.0
        joules += 400.0
        tree.zone("intel-rapl:0", "package-0", joules)
        parts = {os.getpid(): "learner", 7: "workers"}
        values = hardware.read(round(clock.now_s) * 100, parts)
    return values


def test_a_machine_with_everything_is_measured_and_each_metric_is_declared(
    machine: Tree, clock: Clock
) -> None:
    nvml = FalseNvml()
    gpu = Gpu(lambda: nvml, lambda: "GPU-1")
    gpu.read()
    hardware = Hardware(root=machine.root, gpu=gpu, clock=clock)
    values = read_until_all_is_there(hardware, clock, machine)
    assert values["system/cpu_temperature_c"] == 64.25
    assert values["system/cpu_power_w"] == pytest.approx(20.0)
    assert values["system/energy_j"] == pytest.approx(400.0)
    assert values["system/joules_per_million_steps"] > 0
    assert values["system/swap_mb"] == pytest.approx(2048.0)
    assert values["system/pss_mb"] == pytest.approx(450 * 1.024)
    assert values["system/memory_available_mb"] > 0
    assert {"system/cores_learner", "system/cores_workers", "system/cores_others"} <= set(values)
    assert any(name.startswith("system/core_percent_") for name in values)
    assert hardware.new_notes() == []
    for name in values:
        check_declared(name)
    elsewhere = {
        "system/gpu_memory_mb",  # tests/metrics/test_machine_share.py
        "system/disk_free_mb",  # tests/agent/test_status.py
    }
    patterns = {name for name in METRICS if name.startswith("system/")}
    written = {p for p in patterns for name in values if check_declared(name) is METRICS[p]}
    assert patterns - written == elsewhere


def test_a_sum_without_the_part_of_the_gpu_is_not_written(machine: Tree, clock: Clock) -> None:
    nvml = FalseNvml("nvmlDeviceGetTotalEnergyConsumption")
    hardware = Hardware(root=machine.root, gpu=Gpu(lambda: nvml, lambda: "GPU-1"), clock=clock)
    values = read_until_all_is_there(hardware, clock, machine)
    assert values["system/cpu_power_w"] == pytest.approx(20.0)
    assert "system/energy_j" not in values
    assert "system/joules_per_million_steps" not in values
    assert [note.split(":")[0] for note in hardware.new_notes()] == ["the GPU does not tell energy"]
    assert hardware.new_notes() == []


def test_what_processes_share_is_measured_now_and_then_and_only_if_all_of_it_can_be(
    machine: Tree, clock: Clock
) -> None:
    hardware = Hardware(root=machine.root, gpu=Gpu(missing, lambda: None), clock=clock)
    clock.now_s += 1.0
    assert "system/pss_mb" in hardware.read(0)
    clock.now_s += 1.0
    assert "system/pss_mb" not in hardware.read(0)
    (machine.root / "proc/8/smaps_rollup").unlink()
    (machine.root / "proc/8").rmdir()  # it has ended
    clock.now_s += 20.0
    assert hardware.read(0)["system/pss_mb"] == pytest.approx(400 * 1.024)
    machine.write("proc/7/smaps_rollup", "nothing")
    for _ in range(2):
        clock.now_s += 20.0
        assert "system/pss_mb" not in hardware.read(0)
    (note,) = [note for note in hardware.new_notes() if "pss" in note]
    assert "no line Pss:" in note


def test_on_a_large_machine_cores_are_not_shown_one_by_one(
    machine: Tree, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "MAX_CORES_SHOWN", 0)
    measured = Hardware(root=machine.root, gpu=Gpu(missing, lambda: None), clock=clock)
    values = read_until_all_is_there(measured, clock, machine)
    assert not any(name.startswith("system/core_percent_") for name in values)


def test_this_machine_as_it_is() -> None:
    measured = Hardware()
    values = measured.read(0, {os.getpid(): "learner"})
    assert values["system/memory_mb"] > 1.0
    for name in values:
        check_declared(name)
    Record(values=values)
