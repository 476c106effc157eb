"""A network of limited bandwidth between two nodes of a Ray cluster, on one machine.

Two network namespaces are joined by a pair of virtual devices, and a token bucket at each end lets
through so many bits per second. The learner and the head are in one, a node with all workers in the
other. Namespaces belong to a process that sleeps and vanish with it. This needs Linux and root.

The kernel adds no latency here: what is measured is bandwidth.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.programs import undisturbed
from benchmarks.scaling.ray_cluster import STORE_BYTES, end_all, give_token

NEAR, FAR, PORT = "10.77.0.1", "10.77.0.2", 6379
BURST_KB = 256
MOST_S = 1800  # everything ends by itself after this, also if this process is killed
START_S = 120.0
PROGRAMS = ("unshare", "nsenter", "ip", "tc", "timeout")


class Link:
    """A context manager: two namespaces, a link, and a Ray cluster with a node in each."""

    def __init__(self, mbit: float, workers: int) -> None:
        """Start nothing yet.

        Args:
          mbit: megabits per second, in each direction.
          workers: that fit on the node at the far end.
        """
        self._mbit, self._workers = mbit, workers
        self._started: list[subprocess.Popen[bytes]] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.address = f"{NEAR}:{PORT}"

    def __enter__(self) -> Link:
        """Make the namespaces, then start Ray in both.

        Raises:
          SystemExit: this machine or this user cannot.
        """
        missing = [program for program in PROGRAMS if shutil.which(program) is None]
        if missing or os.geteuid() != 0:
            raise SystemExit(f"a limited link needs root and {', '.join(PROGRAMS)} (Linux)")
        try:
            self._near, self._far = self._namespace(), self._namespace()
            self._connect()
            self._start_ray()
        except BaseException:
            self.__exit__()
            raise
        return self

    def inside(self, command: list[str], *, far: bool = False) -> list[str]:
        """Return the command that runs `command` in one of the namespaces."""
        pid = (self._far if far else self._near).pid
        return ["nsenter", f"--target={pid}", "--net", *command]

    def _namespace(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["unshare", "--net", "sleep", str(MOST_S)])
        self._started.append(process)
        own = os.readlink("/proc/self/ns/net")
        deadline = time.monotonic() + 10
        while os.readlink(f"/proc/{process.pid}/ns/net") == own:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("this machine does not let us make a network namespace")
            time.sleep(0.02)
        return process

    def _connect(self) -> None:
        near, far = str(self._near.pid), str(self._far.pid)
        pair = ["type", "veth", "peer", "name", "vtfar", "netns", far]
        _do(["ip", "link", "add", "vtnear", "netns", near, *pair])
        for name, address, is_far in (("vtnear", NEAR, False), ("vtfar", FAR, True)):
            for command in (
                f"ip addr add {address}/24 dev {name}",
                "ip link set lo up",
                f"ip link set {name} up",
                f"tc qdisc add dev {name} root tbf rate {self._mbit:g}mbit burst {BURST_KB}kb "
                "latency 400ms",
            ):
                _do(self.inside(command.split(), far=is_far))

    def _start_ray(self) -> None:
        give_token()
        self._folder = tempfile.TemporaryDirectory(prefix="vt", ignore_cleanup_errors=True)
        ray = str(Path(sys.executable).with_name("ray"))
        store = f"--object-store-memory={STORE_BYTES}"
        common = ["timeout", str(MOST_S), ray, "start", "--block", store]
        head = [
            *("--head", f"--port={PORT}", f"--node-ip-address={NEAR}", "--num-cpus=0"),
            *("--include-dashboard=false", f"--temp-dir={self._folder.name}"),
        ]
        node = [
            *(f"--address={self.address}", f"--node-ip-address={FAR}"),
            f"--num-cpus={self._workers}",
        ]
        self._spawn(self.inside([*common, *head]))
        self._wait_for_head()
        self._spawn(self.inside([*common, *node], far=True))

    def _spawn(self, command: list[str]) -> None:
        self._started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))

    def _wait_for_head(self) -> None:
        knock = f"import socket; socket.create_connection(('{NEAR}', {PORT}), 2).close()"
        deadline = time.monotonic() + START_S
        while subprocess.run(
            self.inside([sys.executable, "-c", knock]), stderr=subprocess.DEVNULL, check=False
        ).returncode:
            if time.monotonic() > deadline:
                raise SystemExit("the head of a Ray cluster could not be started")
            time.sleep(0.5)

    @undisturbed()
    def __exit__(self, *_: object) -> None:
        """End everything; the namespaces and the link vanish with it."""
        found = []
        for process in reversed(self._started):
            try:
                own = psutil.Process(process.pid)
                found += [*own.children(recursive=True), own]
            except psutil.Error:
                continue
        end_all(found)
        for process in self._started:
            process.wait(10)
        if self._folder is not None:
            self._folder.cleanup()


def _do(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
