"""What this machine and this version of the program allow to be tested."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from ritornello.flags.options import Flags
from tests.chaos import kernel

# Why a fault is passed over when what it needs is not there.
REASONS = {
    "mounts": "no small file system can be mounted here (that needs root)",
    "worker_timeout": "main.py has no --worker_timeout",
    "fault points": "main.py has no --debug_faults",
}


@dataclass(frozen=True)
class Machine:
    """What can be done here."""

    abilities: frozenset[str]
    flags: frozenset[str]  # that main.py knows

    def missing(self, needs: tuple[str, ...]) -> str:
        """Return why a fault with these needs cannot be injected; "" if it can."""
        return "; ".join(REASONS[need] for need in needs if need not in self.abilities)

    def flag(self, stem: str, value: object) -> tuple[str, ...]:
        """Return the option whose name begins with `stem`, if main.py has one."""
        names = sorted(name for name in self.flags if name.startswith(stem))
        return (f"--{names[0]}={value}",) if names else ()


def look_around() -> Machine:
    """Find out, and give this process mounts of its own where that is possible.

    To be called before any thread is started: only the thread that asks gets its own mounts, and
    those that it starts later.
    """
    flags = frozenset(Flags.model_fields)
    abilities = set()
    if sys.platform.startswith("linux") and os.geteuid() == 0:
        try:
            kernel.own_mounts()
            abilities.add("mounts")
        except OSError:
            pass
    if any(name.startswith("worker_timeout") for name in flags):
        abilities.add("worker_timeout")
    if "debug_faults" in flags:
        abilities.add("fault points")
    return Machine(frozenset(abilities), flags)
