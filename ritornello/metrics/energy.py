"""Energy of the processor from the kernel's own counters, and joules per million agent steps.

Linux shows the energy counters of a processor as files:

    /sys/class/powercap/intel-rapl:0/name                  package-0
    /sys/class/powercap/intel-rapl:0/energy_uj             microjoules, starts again at 0 ...
    /sys/class/powercap/intel-rapl:0/max_energy_range_uj   ... after this many
    /sys/class/powercap/intel-rapl:0:2/name                dram

(AMD's processors have the same files.) A package includes its cores and its graphics; the memory of
a server has a counter of its own. These are the counters that are added up. `psys` is not added,
because it includes the packages, and `intel-rapl-mmio` is not, because it shows the same package
again. The counters know no processes: they include what other programs do, and what an idle
processor takes. On most systems only root may read them. What cannot be read is said once and is
never estimated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ritornello.metrics.record import Record

POWERCAP = Path("sys/class/powercap")
CONTROL_TYPE = "intel-rapl:"  # of the zones; `intel-rapl-mmio:` would count packages twice
COUNTED = ("package", "dram")  # beginnings of the names of zones
# No zone takes as much. A reading that says so is of a counter that was set back, and an interval
# in which so much power would go round the whole counter cannot be told from a shorter one.
MAX_POWER_W = 1000.0


@dataclass
class _Zone:
    """One counter."""

    file: Path
    range_j: float  # where it starts again at 0
    last_j: float


class ProcessorEnergy:
    """Measures since its last reading. One thread reads it."""

    def __init__(self, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        """Find the counters and begin a first interval.

        Args:
          root: the root of the file system.
          clock: seconds, which go on while the machine computes.
        """
        self.note = ""  # why there is no energy, for the log; "" if there is
        self._clock = clock
        self._zones: list[_Zone] = []
        self._since_s = clock()
        try:
            self._zones = _find_zones(root / POWERCAP)
        except OSError as error:
            self._give_up(error)
        if not self._zones and not self.note:
            self.note = (
                f"no energy is measured: this system shows no energy counters of its processor in "
                f"/{POWERCAP}"
            )

    def read(self) -> tuple[float, float] | None:
        """Return (joules, seconds) since the last reading; None if they are not known."""
        now_s = self._clock()
        passed_s, self._since_s = now_s - self._since_s, now_s
        joules: float | None = 0.0
        for zone in self._zones:
            try:
                used_j = _advance(zone, passed_s)
            except (OSError, ValueError) as error:
                self._give_up(error)
                return None
            joules = None if joules is None or used_j is None else joules + used_j
        if not self._zones or joules is None or passed_s <= 0:
            return None
        return joules, passed_s

    def _give_up(self, error: Exception) -> None:
        """Measure no more: a sum without one of its parts would be an estimate."""
        self._zones = []
        reason = getattr(error, "strerror", None) or error
        self.note = (
            f"no energy is measured: the counters in /{POWERCAP} cannot be read ({reason}). If you "
            f"may change that: sudo chmod a+r /{POWERCAP}/*/energy_uj"
        )


def _find_zones(powercap: Path) -> list[_Zone]:
    """Return the counters to add up, none if there are none; OSError if one cannot be read."""
    zones = []
    for folder in sorted(powercap.glob(f"{CONTROL_TYPE}*")):
        name = (folder / "name").read_text(encoding="ascii").strip()
        if name.startswith(COUNTED):
            file = folder / "energy_uj"
            zones.append(_Zone(file, _joules(folder / "max_energy_range_uj"), _joules(file)))
    return zones


def _advance(zone: _Zone, passed_s: float) -> float | None:
    """Read a counter; return the joules since it was read last, None if they cannot be known."""
    before_j, zone.last_j = zone.last_j, _joules(zone.file)
    used_j = zone.last_j - before_j
    if used_j < 0:
        used_j += zone.range_j  # it has started again at 0
    longest_j = MAX_POWER_W * max(passed_s, 1.0)  # counters move in jumps
    return used_j if 0 <= used_j <= longest_j < zone.range_j else None


def _joules(file: Path) -> float:
    try:
        return int(file.read_text(encoding="ascii")) / 1e6
    except ValueError as error:
        raise OSError(f"{file} does not hold a number") from error


class EnergyBook:
    """Adds up the energy of a run over its sessions, and the agent steps that it was used for."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        """Start with what the records of earlier sessions say.

        Args:
          records: of the run, oldest first.
        """
        self.joules = 0.0
        self.steps = 0  # agent steps during which energy was measured
        self._joules_of_steps = 0.0  # what was used in these
        # The first record says how much was used, but not since which step: a run that was resumed
        # into another folder has the steps of before.
        self._last_steps: int | None = None
        for record in records:
            self.add(record.values.get("system/energy_j"), record.agent_steps)

    def add(self, joules: float | None, agent_steps: int) -> None:
        """Book the time since the last call.

        Args:
          joules: energy used in it; None: it was not measured.
          agent_steps: of the run at its end.
        """
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
