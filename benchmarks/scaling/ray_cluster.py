"""A Ray cluster of several nodes on this machine, in the process that asks for it.

As a program it is that cluster (`python -m benchmarks.scaling.ray_cluster <nodes> <cpus of each>`):
it prints the address and runs until its input is closed. `RayCluster` starts it.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil

from benchmarks.programs import undisturbed

ROOT = Path(__file__).resolve().parents[2]
STORE_BYTES = 80_000_000
START_S = 240.0
END_S = 20.0


def give_token() -> None:
    """Let this process, and all that it starts, share a token that nobody else has."""
    os.environ.update(
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN=secrets.token_hex(32),
        RAY_USAGE_STATS_ENABLED="0",
        RAY_worker_niceness="0",
    )


class RayCluster:
    """A context manager: a cluster whose `address` can be joined."""

    def __init__(self, nodes: int, cpus: int) -> None:
        """Start nothing yet.

        Args:
          nodes: how many, besides the head, which runs no workers.
          cpus: workers that fit on each.
        """
        self._arguments = [str(nodes), str(cpus)]
        self.address = ""

    def __enter__(self) -> RayCluster:
        """Start it and wait until its address is known."""
        give_token()
        self._folder = tempfile.TemporaryDirectory(prefix="vt", ignore_cleanup_errors=True)
        os.environ["RAY_TMPDIR"] = self._folder.name  # short: Ray has sockets in it
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.scaling.ray_cluster", *self._arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        watch = threading.Timer(START_S, self._process.kill)
        watch.start()
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("address "):
                self.address = line.split()[1]
                break
        watch.cancel()
        if not self.address:
            self.__exit__()
            raise SystemExit("a Ray cluster could not be started on this machine")
        return self

    @undisturbed()
    def __exit__(self, *_: object) -> None:
        """End it with all of its processes."""
        try:
            children = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.Error:
            children = []
        try:
            self._process.communicate(timeout=END_S)  # closes its input
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        end_all(children)
        self._folder.cleanup()


def end_all(processes: list[psutil.Process]) -> None:
    """Kill what is still there."""
    for process in processes:
        try:
            process.kill()
        except psutil.Error:
            continue
    psutil.wait_procs(processes, END_S)


def main(nodes: int, cpus: int) -> None:
    """Be the cluster until nobody writes any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.makedirs(os.path.join(os.environ["RAY_TMPDIR"], "ray"), exist_ok=True)
    from ray.cluster_utils import Cluster  # this program is Ray's, not ours

    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(nodes):
        cluster.add_node(num_cpus=cpus, object_store_memory=STORE_BYTES)
    print("address", cluster.address, flush=True)
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
