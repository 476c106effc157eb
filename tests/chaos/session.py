"""One session of main.py under chaos: it is begun, waited for, and looked at from outside."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import torch

from ritornello.agent.stored.checkpoint_tree import first_not_finite
from tests.deadlines import HANGS_S
from tests.house import ROOT

MARK = "CHAOS_MARK"  # environment variable of all processes of a scenario
POLL_S = 0.05


class Stuck(Exception):
    """Something did not happen in time."""


class Session:
    """A process of main.py and its run folder. Used by one thread."""

    def __init__(self, folder, number, flags):
        """Begin it.

        Args:
          folder: of the scenario; the results lie in it.
          number: of the session in its scenario, from 1.
          flags: of main.py.
        """
        self.results = folder / "results"
        self.number = number
        self.mark = f"{folder.name}-{os.getpid()}"
        self.output = folder / f"output_{number}.txt"
        self._reader, writer = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "main.py", *flags, f"--results_dir={self.results}"],
            cwd=ROOT, stdout=writer, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, MARK: self.mark, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        os.close(writer)
        self.pid = self._process.pid
        self._copier = threading.Thread(target=self._copy, daemon=True)
        self._copier.start()

    def _copy(self):
        with self.output.open("wb") as file, contextlib.suppress(OSError):
            while chunk := os.read(self._reader, 65536):
                file.write(chunk)
                file.flush()

    # --- what can be done to it --------------------------------------------------------------

    def send(self, number):
        self._process.send_signal(number)

    def close_output(self):
        """Close the reading end of its output: the next line that it writes fails."""
        os.close(self._reader)

    def pause(self, seconds):
        threading.Event().wait(seconds)

    def processes(self):
        """Return the living processes of the scenario, known by the mark that they inherit."""
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for pid in psutil.pids():
            with contextlib.suppress(OSError, psutil.Error):
                if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    process = psutil.Process(pid)
                    if process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
        return found

    # --- what is waited for --------------------------------------------------------------------

    def wait_updates(self, updates):
        """Wait until a record says so many updates, or the program has ended."""
        self._wait(lambda: self.updates() >= updates, f"update {updates}")

    def wait_checkpoint(self, updates):
        """Wait until an update so late is saved, or the program has ended."""
        saved = lambda: max(map(updates_of, self.checkpoints()), default=0)  # noqa: E731
        self._wait(lambda: saved() >= updates, f"a checkpoint of update {updates}")

    def wait_folder(self):
        """Wait until the run folder is there, or the program has ended."""
        self._wait(lambda: bool(self.folders()), "a run folder")

    def _wait(self, is_so, what):
        deadline = time.monotonic() + HANGS_S
        while not is_so() and self._process.poll() is None:
            if time.monotonic() > deadline:
                raise Stuck(f"{what} did not come within {HANGS_S:.0f} s")
            self.pause(POLL_S)

    def status(self):
        """Wait for the end; return the exit status, negative for a signal."""
        try:
            return self._process.wait(HANGS_S)
        except subprocess.TimeoutExpired:
            raise Stuck(f"it did not end within {HANGS_S:.0f} s") from None

    def left_behind(self, limit_s=30.0):
        """Return the processes that are still there some time after the end."""
        deadline = time.monotonic() + limit_s
        while (left := self.processes()) and time.monotonic() < deadline:
            self.pause(POLL_S)
        names = []
        for process in left:
            with contextlib.suppress(psutil.Error):
                names.append(f"{process.pid} {' '.join(process.cmdline())[-100:]}")
        return names

    def kill(self):
        """End whatever is left of the scenario."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)

    # --- what its files say ----------------------------------------------------------------------

    def folders(self):
        return sorted(path for path in self.results.glob("*") if path.is_dir())

    @property
    def run(self):
        return self.folders()[0]

    def records(self):
        """Return the complete records, read by nothing but their format."""
        return [record for folder in self.folders() for record in self.records_of(folder)]

    def records_of(self, run):
        """Return the complete records of one run folder."""
        found = []
        with contextlib.suppress(OSError):
            for line in (run / "metrics.jsonl").read_bytes().split(b"\n")[:-1]:
                with contextlib.suppress(ValueError):
                    found.append(json.loads(line))
        return found

    def updates(self):
        """Return the updates of the last record."""
        return max((record["updates"] for record in self.records()), default=0)

    def checkpoints(self):
        """Return the regular checkpoints, the oldest first."""
        return sorted(
            path for run in self.folders() for path in run.glob("checkpoints/update_*.pt")
        )


def updates_of(path):
    """Return the number in the name of a regular checkpoint."""
    return int(path.stem.partition("_")[2])


def damage_of(path):
    """Return why a checkpoint cannot be used; "" if it can and all its numbers are finite."""
    try:
        tree = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:
        return f"{path.name} cannot be loaded: {error!r}"
    bad = first_not_finite(tree)
    return f"{path.name}: {bad}" if bad else ""


def is_temporary(path):
    """Whether a file is one that a save renames when it is complete."""
    return path.name.endswith((".tmp", ".part")) or (path.name[0] == "." and "tmp" in path.name)
