"""Energy of the processor from the kernel's own counters, and joules per million agent steps.

Linux shows the energy counters of a processor as files (Intel's and AMD's alike):

    /sys/class/powercap/intel-rapl:0/name                  package-0
    /sys/class/powercap/intel-rapl:0/energy_uj             microjoules, starts again at 0 ...
    /sys/class/powercap/intel-rapl:0/max_energy_range_uj   ... after this many

Packages and the memory of servers (dram) are added up; `psys` includes the packages, and
`intel-rapl-mmio` shows them again. The counters include what other programs do, and what an idle
processor takes. On most systems only root may read them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from ritornello.metrics.record import Record

POWERCAP = Path("/sys/class/powercap")
COUNTED = ("package", "dram")  # beginnings of the names of counters
# No counter moves as fast. A reading that says so is of one that was set back.
MAX_POWER_W = 1000.0


class ProcessorEnergy:
    """Measures since its last reading. One thread reads it."""

    def __init__(self) -> None:
        """Find the counters, and begin a first interval."""
        self.note = ""  # for the log: counters that are there and cannot be read
        self._since_s = time.monotonic()
        self._last_j: dict[Path, float] = {}  # by folder of the counter
        try:
            for folder in sorted(POWERCAP.glob("intel-rapl:*")):
                if (folder / "name").read_text(encoding="ascii").startswith(COUNTED):
                    self._last_j[folder] = _joules(folder / "energy_uj")
        except (OSError, ValueError) as error:
            self._give_up(error)

    def read(self) -> tuple[float, float] | None:
        """Return (joules, seconds) since the last reading; None if they are not known."""
        now_s = time.monotonic()
        passed_s, self._since_s = now_s - self._since_s, now_s
        longest_j = MAX_POWER_W * max(passed_s, 1.0)  # counters move in jumps
        used: list[float] = []
        try:
            for folder, before_j in self._last_j.items():
                self._last_j[folder] = now_j = _joules(folder / "energy_uj")
                around_j = _joules(folder / "max_energy_range_uj")
                moved_j = now_j - before_j if now_j >= before_j else now_j - before_j + around_j
                # In so long an interval it may have gone around unseen.
                used.append(moved_j if longest_j < around_j else float("nan"))
        except (OSError, ValueError) as error:
            self._give_up(error)
            return None
        is_known = bool(used) and passed_s > 0 and all(0 <= each <= longest_j for each in used)
        return (sum(used), passed_s) if is_known else None

    def _give_up(self, error: Exception) -> None:
        """Measure no more: a sum without one of its parts would be an estimate."""
        self._last_j = {}
        reason = getattr(error, "strerror", None) or error
        self.note = (
            f"no energy is measured: the counters in {POWERCAP} cannot be read ({reason}). If you "
            f"may change that: sudo chmod a+r {POWERCAP}/*/energy_uj"
        )


def _joules(file: Path) -> float:
    return int(file.read_text(encoding="ascii")) / 1e6


class EnergyBook:
    """Adds up the energy of a run over its sessions, and the agent steps that it was used for."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        """Start with the energy in the records of earlier sessions, the oldest first."""
        self.joules = 0.0
        self.steps = 0  # agent steps during which energy was measured
        self._joules_of_steps = 0.0  # what was used in these
        # The first record says how much was used, but not since which step: a run that was resumed
        # into another folder has the steps of before.
        self._last_steps: int | None = None
        for record in records:
            self.add(record.values.get("system/energy_j"), record.agent_steps)

    def add(self, joules: float | None, agent_steps: int) -> None:
        """Book the joules used since the last call (None: not measured), and the run's steps."""
        if joules is not None:
            self.joules += joules
            if self._last_steps is not None:
                self._joules_of_steps += joules
                self.steps += max(0, agent_steps - self._last_steps)
        self._last_steps = agent_steps

    @property
    def joules_per_million_steps(self) -> float | None:
        """Energy per million agent steps; None if none was measured."""
        return 1e6 * self._joules_of_steps / self.steps if self.steps else None
