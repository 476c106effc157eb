"""What the machine does while a run trains: processor, memory, temperature, GPU, energy.

`Hardware` is read with each record. What cannot be read is missing in the record and said once in
the log; nothing is ever estimated. The room on the disk is found out by the thread that writes
there (agent/run/status.py). The metrics are described in metrics/metrics.csv.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from statistics import fmean
from typing import Any

import psutil

from ritornello.core.project import install_extra
from ritornello.metrics.energy import EnergyBook, ProcessorEnergy
from ritornello.metrics.record import Record

# The kernel walks through all pages of a process to share out what several of them map: some
# milliseconds for each gigabyte. So it is asked now and then, and not with each record.
PSS_INTERVAL_S = 15.0
MAX_CORES_SHOWN = 64  # on larger machines a record would be longer than all the rest of it
PROCESSOR_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "soc_thermal")
OTHERS = "others"  # of the run's processes: those that environments start
ENERGY = "energy"  # of a reading; the sum since the driver was loaded, in joules


class Hardware:
    """Measures since its last reading. One thread reads it, every few seconds."""

    def __init__(self, earlier: Iterable[Record]) -> None:
        """Begin a first interval.

        `earlier` are the records of the run's earlier sessions, for the energy per step.
        """
        self.energy = EnergyBook(earlier)
        self._processor = ProcessorEnergy()
        self._gpu = Gpu()
        self._cores = usable_cores()
        self._said: set[str] = set()
        self._since_s = time.monotonic()
        self._pss_at_s = self._since_s - PSS_INTERVAL_S
        self._own = _own_processes()
        psutil.cpu_percent(percpu=True)  # counts from its last call

    def read(self, agent_steps: int, parts: Mapping[int, str] | None = None) -> dict[str, float]:
        """Return the values for a Record and start a new interval.

        `parts` has process id -> the part of the run that the process is ("learner", "workers").
        """
        now_s = time.monotonic()
        passed_s, self._since_s = now_s - self._since_s, now_s
        values = self._read_own(passed_s, parts or {}) | self._read_everybody()
        values["system/memory_available_mb"] = psutil.virtual_memory().available / 1e6
        values["system/swap_mb"] = psutil.swap_memory().used / 1e6
        if now_s - self._pss_at_s >= PSS_INTERVAL_S:
            self._pss_at_s = now_s
            values |= _shared_out_memory(self._own)
        return values | _temperature() | self._read_energy(agent_steps)

    def new_notes(self) -> list[str]:
        """Return what cannot be measured, as sentences that were not returned before."""
        notes = [self._processor.note, *self._gpu.notes]
        new = [note for note in notes if note and note not in self._said]
        self._said.update(new)
        return new

    def _read_own(self, passed_s: float, parts: Mapping[int, str]) -> dict[str, float]:
        """Return processor time and memory of the run's processes since the last reading.

        The use of a process that has ended since then is lost.
        """
        before, self._own = self._own, _own_processes()
        values = {"system/memory_mb": sum(memory for _, memory in self._own.values())}
        if passed_s <= 0:
            return values
        cores: dict[str, float] = defaultdict(float)
        for pid, (total_s, _) in self._own.items():
            since_s, _ = before.get(pid, (0.0, 0.0))
            # Of a number that went to a new process, all is new.
            used_s = total_s - since_s if total_s >= since_s else total_s
            cores[f"system/cores_{parts.get(pid, OTHERS)}"] += used_s / passed_s
        values["system/own_cpu_share"] = sum(cores.values()) / len(self._cores)
        return values | cores

    def _read_everybody(self) -> dict[str, float]:
        """Return how busy the cores were that this process may use.

        Time that a hypervisor gave to others counts as busy: this process could not have it.
        """
        every = psutil.cpu_percent(percpu=True)
        used = {core: every[core] for core in self._cores if core < len(every)}  # some are offline
        shown = used if len(used) <= MAX_CORES_SHOWN else {}
        values = {f"system/core_percent_{core}": percent for core, percent in shown.items()}
        return values | ({"system/cpu_percent": fmean(used.values())} if used else {})

    def _read_energy(self, agent_steps: int) -> dict[str, float]:
        processor = self._processor.read()
        values, gpu_j = self._gpu.read()
        joules = None
        if processor is not None:
            joules, passed_s = processor
            values["system/cpu_power_w"] = joules / passed_s
            if self._gpu.is_used:  # without its part the sum would be an estimate
                joules = None if gpu_j is None else joules + gpu_j
        self.energy.add(joules, agent_steps)
        if joules is not None:
            values["system/energy_j"] = joules
        if self.energy.joules_per_million_steps is not None:
            values["system/joules_per_million_steps"] = self.energy.joules_per_million_steps
        return values


def _own_processes() -> dict[int, tuple[float, float]]:
    """Return (processor seconds since its start, resident MB) of each process of the run."""
    found = {}
    this = psutil.Process(os.getpid())
    with suppress(psutil.Error):
        for process in (this, *this.children(recursive=True)):
            with suppress(psutil.Error):  # it has just ended
                used = process.cpu_times()
                memory_mb = process.memory_info().rss / 1e6
                found[process.pid] = (used.user + used.system, memory_mb)
    return found


def _shared_out_memory(pids: Iterable[int]) -> dict[str, float]:
    """Return the memory of processes, with what they share shared out among them (Linux)."""
    total = 0.0
    for pid in pids:
        with suppress(psutil.Error, AttributeError):  # it has just ended; no PSS on this system
            total += psutil.Process(pid).memory_full_info().pss / 1e6
    return {"system/pss_mb": total} if total else {}


def _temperature() -> dict[str, float]:
    """Return the highest temperature of the sensors in the processor, in °C, if one answers."""
    with suppress(AttributeError, OSError, ValueError):  # systems without sensors
        chips = psutil.sensors_temperatures()
        degrees = [each.current for name in PROCESSOR_SENSORS for each in chips.get(name, ())]
        if degrees:
            return {"system/cpu_temperature_c": max(degrees)}
    return {}


def uuid_in_use() -> str | None:
    """Return the driver's name of the GPU that torch computes on in this process, if any."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"


class Gpu:
    """Measures the GPU of the learner, from the moment at which one is in use.

    The driver is asked through NVIDIA's library NVML (package nvidia-ml-py, extra gpu), imported
    when torch has begun to use a GPU. A value that a GPU does not give is left out, and reported
    once.
    """

    def __init__(self) -> None:
        """Look at nothing yet."""
        self.is_used = False
        self.notes: list[str] = []  # what cannot be measured, each once
        self._ask: dict[str, Callable[[], float]] = {}  # by name of the metric
        self._last_j: float | None = None  # the driver's counter at the last reading

    def read(self) -> tuple[dict[str, float], float | None]:
        """Return (values for a Record, joules since the last reading or None)."""
        if not self.is_used:
            self._find()
        values = {}
        for name, ask in list(self._ask.items()):
            try:
                values[name] = float(ask())
            except Exception as error:  # one that this GPU or driver does not tell
                del self._ask[name]
                self.notes.append(f"the GPU does not tell {name.split('/')[-1]}: {error}")
        before_j, self._last_j = self._last_j, values.pop(ENERGY, None)
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            values["system/gpu_memory_mb"] = torch.cuda.memory_allocated() / 1e6
        if before_j is None or self._last_j is None or self._last_j < before_j:
            return values, None  # the first reading, or its driver was loaded anew
        return values, self._last_j - before_j

    def _find(self) -> None:
        """Find out which values the GPU gives, once one is used."""
        uuid = uuid_in_use()
        if uuid is None:
            return
        self.is_used = True
        try:
            nvml: Any = importlib.import_module("pynvml")
            nvml.nvmlInit()
            gpu = nvml.nvmlDeviceGetHandleByUUID(uuid)
            core = nvml.NVML_TEMPERATURE_GPU
        except ImportError:
            why = f"the package nvidia-ml-py is missing ({install_extra('gpu')})"
            self.notes.append(f"the GPU is not measured: {why}")
            return
        except Exception as error:  # whatever the driver says: training needs none of it
            self.notes.append(f"the GPU is not measured: its driver says {error}")
            return
        self._ask = {
            "system/gpu_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
            "system/gpu_used_mb": lambda: nvml.nvmlDeviceGetMemoryInfo(gpu).used / 1e6,
            "system/gpu_power_w": lambda: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
            "system/gpu_temperature_c": lambda: nvml.nvmlDeviceGetTemperature(gpu, core),
            "system/gpu_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
            ENERGY: lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3,
        }


def load() -> str:
    """Return how many programs want to compute, as a sentence's end; "" if it is not known."""
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
