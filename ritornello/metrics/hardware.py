"""What the machine does while a run trains: processor, memory, disk, temperature, GPU, energy.

`Hardware` is read with each record. It looks at the run's own processes and at a few small files of
the kernel, never at all processes of the machine, and it asks nothing that may have to wait: the
room on the disk is found out by the thread that writes there (agent/run/status_files.py). What
cannot be read is missing in the record and said once in the log. Nothing is ever estimated.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import psutil

from ritornello.metrics.energy import EnergyBook, ProcessorEnergy
from ritornello.metrics.gpu import Gpu
from ritornello.metrics.machine_share import MachineShare, ProcessUse
from ritornello.metrics.record import Record

# The kernel walks through all pages of a process to share out what several of them map: some
# milliseconds for each gigabyte. So it is asked now and then, and not with each record.
PSS_INTERVAL_S = 15.0
MAX_CORES_SHOWN = 64  # on larger machines a record would be longer than all the rest of it
# Drivers of the sensors inside processors: Intel, AMD, and the boards of Arm.
PROCESSOR_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "soc_thermal")
PROCESSOR_ZONES = ("x86_pkg_temp", "cpu-thermal", "cpu_thermal", "soc-thermal")
OTHERS = "others"  # of the run's processes: those that environments start, and wardens


class Hardware:
    """Measures since its last reading. One thread reads it, every few seconds."""

    def __init__(
        self,
        earlier: Iterable[Record] = (),
        *,
        root: Path = Path("/"),
        gpu: Gpu | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin a first interval.

        Args:
          earlier: records of the run's earlier sessions, for the energy per step.
          root: root of the file system.
          gpu: the GPU; None: the one that torch will use in this process, if any.
          clock: seconds.
        """
        self.energy = EnergyBook(earlier)
        self._share = MachineShare()
        self._processor = ProcessorEnergy(root, clock)
        self._gpu = gpu or Gpu()
        self._temperatures = _temperature_files(root)
        self._proc = root / "proc"
        self._clock = clock
        self._pss_at_s: float | None = None  # None: not yet
        self._no_pss = ""
        self._said: set[str] = set()

    @property
    def processes(self) -> Mapping[int, ProcessUse]:
        """What each process of the run takes, by process id, as of the last reading."""
        return self._share.processes

    def read(self, agent_steps: int, parts: Mapping[int, str] | None = None) -> dict[str, float]:
        """Return the values for a Record and start a new interval.

        Args:
          agent_steps: of the run so far.
          parts: process id -> the part of the run that the process is ("learner", "workers").
        """
        values = self._share.read()
        cores: dict[str, float] = defaultdict(float)
        for pid, use in self.processes.items():
            cores[(parts or {}).get(pid, OTHERS)] += use.cores
        values |= {f"system/cores_{part}": used for part, used in cores.items()}
        if len(self._share.core_percent) <= MAX_CORES_SHOWN:
            values |= {
                f"system/core_percent_{core}": percent
                for core, percent in self._share.core_percent.items()
            }
        values |= self._memory()
        hottest_c = _hottest(self._temperatures)
        if hottest_c is not None:
            values["system/cpu_temperature_c"] = hottest_c
        return values | self._read_energy(agent_steps)

    def new_notes(self) -> list[str]:
        """Return what cannot be measured, as sentences that were not returned before."""
        notes = [self._processor.note, self._no_pss, *self._gpu.notes]
        new = [note for note in notes if note and note not in self._said]
        self._said.update(new)
        return new

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

    def _memory(self) -> dict[str, float]:
        values = {"system/memory_available_mb": psutil.virtual_memory().available / 1e6}
        values["system/swap_mb"] = _swap_used_mb(self._proc)
        now_s = self._clock()
        is_due = self._pss_at_s is None or now_s - self._pss_at_s >= PSS_INTERVAL_S
        if is_due and not self._no_pss:
            self._pss_at_s = now_s
            pss_mb = self._pss_mb()
            if pss_mb is not None:
                values["system/pss_mb"] = pss_mb
        return values

    def _pss_mb(self) -> float | None:
        """Return the memory of the run's processes, with what they share shared out among them."""
        total = 0.0
        for pid in self.processes:
            try:
                text = (self._proc / str(pid) / "smaps_rollup").read_text(encoding="ascii")
                total += _kilobytes(text, "Pss:") / 1e3
            except (FileNotFoundError, ProcessLookupError):
                if not (self._proc / str(pid)).exists():
                    continue  # it has just ended
                self._no_pss = "system/pss_mb is not measured: this system has no smaps_rollup"
                return None
            except (OSError, ValueError) as error:
                self._no_pss = f"system/pss_mb is not measured: {error}"
                return None
        return total if total else None


def _swap_used_mb(proc: Path) -> float:
    """Return how much of the swap space is used, by whomever; NaN where that is not known."""
    try:
        text = (proc / "meminfo").read_text(encoding="ascii")
        return (_kilobytes(text, "SwapTotal:") - _kilobytes(text, "SwapFree:")) / 1e3
    except (OSError, ValueError):
        return float("nan")  # no record keeps it


def _kilobytes(text: str, name: str) -> float:
    """Return the number of a line "name 123 kB", thousands of bytes; ValueError without one."""
    for line in text.splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1.024
    raise ValueError(f"no line {name}")


def _temperature_files(root: Path) -> list[Path]:
    """Return the files of the sensors in the processor, which hold thousandths of a degree."""
    files: list[Path] = []
    for chip in sorted((root / "sys/class/hwmon").glob("hwmon*")):
        if _word(chip / "name") in PROCESSOR_SENSORS:
            files += sorted(chip.glob("temp*_input"))
    if files:
        return files
    zones = sorted((root / "sys/class/thermal").glob("thermal_zone*"))
    return [zone / "temp" for zone in zones if _word(zone / "type") in PROCESSOR_ZONES]


def _hottest(files: Iterable[Path]) -> float | None:
    """Return the highest temperature in °C, None if no sensor answers."""
    degrees = []
    for file in files:
        word = _word(file)
        if word.lstrip("-").isdecimal():
            degrees.append(int(word) / 1e3)
    return max(degrees, default=None)


def _word(file: Path) -> str:
    """Return the text of a small system file, "" if it cannot be read."""
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
