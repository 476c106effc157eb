"""`cpu_quota` and `container_free_bytes`: what Linux control groups (v1, v2) allow a container.

A limit may be set on any of the groups that this process is in, each part of the next one, and the
tightest of them counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
MEMORY_FILES = {  # controller -> limit, use, statistics
    "": ("memory.max", "memory.current", "memory.stat"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat"),
}
CPU_CONTROLLERS = ("cpu", "cpu,cpuacct")  # of version 1


def container_free_bytes() -> int | None:
    """Return how many bytes of memory this container may still take; None: it has no limit."""
    free: list[int] = []
    for controller, names in MEMORY_FILES.items():
        for folder in _own_folders(controller):
            limit, used, statistics = (lines_of(folder / name) for name in names)
            if "".join(limit).isdigit() and "".join(used).isdigit():
                # Pages of files that were read once count as used, but are dropped when needed.
                cached = sum(
                    int(s.split()[1]) for s in statistics if s.startswith("inactive_file ")
                )
                free.append(max(0, int("".join(limit)) - int("".join(used)) + cached))
    return min(free, default=None)


def container_limit_bytes() -> int | None:
    """Return how many bytes of memory this container may take in all; None: it has no limit."""
    limits = [
        "".join(lines_of(folder / names[0]))
        for controller, names in MEMORY_FILES.items()
        for folder in _own_folders(controller)
    ]
    return min((int(limit) for limit in limits if limit.isdigit()), default=None)


def cpu_quota() -> int | None:
    """Return how many cores' time this container may use, rounded up; None: it has no quota.

    `docker --cpus=4` and the CPU limits of Kubernetes set a quota, and leave the affinity alone.
    """
    pairs = ["".join(lines_of(folder / "cpu.max")).split() for folder in _own_folders("")]
    for controller in CPU_CONTROLLERS:
        for folder in _own_folders(controller):
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            pairs.append(["".join(lines_of(folder / name)) for name in names])
    quotas = [
        math.ceil(int(pair[0]) / int(pair[1]))
        for pair in pairs
        # "max", or -1 in version 1: no quota.
        if len(pair) == 2 and all(number.isdigit() and int(number) > 0 for number in pair)
    ]
    return min(quotas, default=None)


def _own_folders(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's groups, and of those around them, once each."""
    root = CGROUPS / controller
    own = {"", *(ln.split(":", 2)[2].strip("/") for ln in lines_of(OWN_CGROUPS) if ":" in ln)}
    paths = [root / path for path in own]
    yield from {
        folder for path in paths for folder in (path, *path.parents) if folder.is_relative_to(root)
    }


def lines_of(path: Path) -> list[str]:
    """Return the lines of a small system file; none where it does not exist."""
    try:
        # A group of processes may be named after anybody, in any bytes.
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
