"""Environments that do what environments should not, for the tests of processes.

They play CountingEnv's game (tests/fakes.py) until it happens. Where to leave traces is in the
environment variable TROUBLE_DIR, a folder that a test makes: whoever makes a file there first has
the trouble, so that it comes once in a run, and the successor plays on.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from ritornello.core.process_death import FAMILY
from tests.deadlines import wait_until
from tests.fakes import CountingEnv, register
from tests.troubles import hang_in_c

STEPS_BEFORE = 30  # a few unrolls, and more than are tried before a run begins


def first_to_claim(name):
    """Whether nobody has claimed this before, in any process of the test."""
    try:
        (Path(os.environ["TROUBLE_DIR"]) / name).open("x").close()
    except FileExistsError:
        return False
    return True


class HangingEnv(CountingEnv):
    """Hangs in C code, once per run, after some steps."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == STEPS_BEFORE and first_to_claim("hangs"):
            hang_in_c()
        return super().step(action)


class ExitingEnv(CountingEnv):
    """Ends the program in its fourth step: the first is tried before a run begins."""

    def step(self, action):
        if self.t == 3:
            sys.exit(0)
        return super().step(action)


class InterruptingEnv(CountingEnv):
    """The same by other means."""

    def step(self, action):
        if self.t == 3:
            raise KeyboardInterrupt
        return super().step(action)


class OwningEnv(CountingEnv):
    """Owns a process in a session of its own, as simulators do; close() ends it."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.simulator = subprocess.Popen(["sleep", "3600"], start_new_session=True)
        # Linux shows no environment of a program that is being started at this moment.
        shown = Path(f"/proc/{self.simulator.pid}/environ")
        wait_until(lambda: not shown.exists() or shown.read_bytes())
        name = f"simulator_{self.simulator.pid}"
        (Path(os.environ["TROUBLE_DIR"]) / name).touch()

    def close(self):
        self.simulator.kill()
        self.simulator.wait()
        (Path(os.environ["TROUBLE_DIR"]) / f"closed_{self.simulator.pid}").touch()


class CarelessEnv(OwningEnv):
    """Forgets its process, but not in the process of a test."""

    def close(self):
        if FAMILY not in os.environ:
            super().close()


class OwningAndHangingEnv(OwningEnv):
    """Hangs for good, in every life, with a process of its own, and ignores SIGTERM."""

    def step(self, action):
        if self.t == 3:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            first_to_claim("hangs")
            hang_in_c()
        return super().step(action)


def simulators(folder):
    """Process ids of the simulators that were ever started."""
    return {int(path.name.partition("_")[2]) for path in Path(folder).glob("simulator_*")}


def closed(folder):
    """Those that were closed in order."""
    return {int(path.name.partition("_")[2]) for path in Path(folder).glob("closed_*")}


register(HangingEnv, ExitingEnv, InterruptingEnv, OwningEnv, CarelessEnv, OwningAndHangingEnv)


def lives(pid):
    """Whether there is such a process, and it has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
