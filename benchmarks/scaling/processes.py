"""Whose processor time it was: all processes of a benchmark, by what they are for."""

from __future__ import annotations

import psutil

CLASSES = ("consumer", "gateway", "hosts", "workers", "daemons", "other")
DAEMONS = ("gcs_server", "raylet", "/ray/", "ray::")  # what Ray starts for itself


class Processes:
    """Processor time of a process and of all that it has started, also of those that ended."""

    def __init__(self, *, has_gateway: bool, owner: int | None = None) -> None:
        """Nothing is known yet.

        Args:
          has_gateway: workers that the process has started itself are gateways.
          owner: id of the process that consumes unrolls; None: this one.
        """
        self._has_gateway = has_gateway
        self._owner = psutil.Process(owner)
        self._seen: dict[tuple[int, float], tuple[str, float]] = {}

    def cpu_s(self) -> dict[str, float]:
        """Return processor seconds so far of each class, of all processes seen by any call."""
        for process in [self._owner, *self._owner.children(recursive=True)]:
            try:
                times = process.cpu_times()
                key = (process.pid, process.create_time())
                kind = self._seen[key][0] if key in self._seen else self._class_of(process)
            except psutil.Error:
                continue
            self._seen[key] = kind, times.user + times.system
        sums = dict.fromkeys(CLASSES, 0.0)
        for kind, seconds in self._seen.values():
            sums[kind] += seconds
        return sums

    def _class_of(self, process: psutil.Process) -> str:
        if process.pid == self._owner.pid:
            return "consumer"
        words = process.cmdline()
        line = " ".join(words)
        if words and words[0].startswith("ray::Host"):
            return "hosts"
        if "spawn_main" in line:
            is_gateway = self._has_gateway and process.ppid() == self._owner.pid
            return "gateway" if is_gateway else "workers"
        if any(word in line for word in DAEMONS):
            return "daemons"
        return "other"


def difference(after: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    """Return what was used in between."""
    return {kind: after[kind] - before[kind] for kind in after}
