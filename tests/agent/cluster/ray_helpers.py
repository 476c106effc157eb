"""What tests with real Ray share: clusters, streams of unrolls, and whose processes are whose."""

import contextlib
import os
import subprocess
import sys
import time
from collections import defaultdict
from importlib import util
from pathlib import Path

import psutil
import pytest

from tests.deadlines import HANGS_S

# Each test takes half a minute and half a gigabyte, so they run one at a time.
WITH_RAY = [
    pytest.mark.cluster,
    pytest.mark.process,
    pytest.mark.timeout(1_800),  # it waits for the others first
    pytest.mark.usefixtures("_one_at_a_time", "_own_token"),
    pytest.mark.skipif(util.find_spec("ray") is None, reason="Ray is not installed: extra ray"),
]


class RayCluster:
    def __init__(self, folder, python=sys.executable, **environment):
        self.process = subprocess.Popen(
            [python, str(Path(__file__).with_name("ray_cluster.py")), folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env={**os.environ, **environment},
        )
        self.address = self.read().removeprefix("address ")

    def read(self):
        while True:
            line = self.process.stdout.readline()
            assert line, "the cluster did not come up"
            if line.startswith(("address ", "node ", "done")):
                return line.strip()

    def __call__(self, command):
        print(command, file=self.process.stdin, flush=True)
        return self.read()

    def close(self):
        children = psutil.Process(self.process.pid).children(recursive=True)
        for child in children:  # also those that are frozen
            with contextlib.suppress(psutil.Error):
                child.kill()
        self.process.kill()
        self.process.wait(HANGS_S)
        self.process.stdin.close()
        self.process.stdout.close()


class Streams:
    """seq of the blocks of each worker, cut where a new life begins."""

    def __init__(self, pool, schema):
        self.pool, self.schema = pool, schema
        self.lives = defaultdict(list)

    def take(self):
        for block in self.pool.poll(0.5):
            seqs = self.schema.view(block.records, "seq")
            seq = int(seqs[0])
            lives = self.lives[block.worker_id]
            if seq == 0:
                lives.append([])
            lives[-1].append(seq)
            assert lives[-1] == list(range(seq + 1)), f"worker {block.worker_id}"
            block.release()

    def until(self, condition):
        deadline = time.monotonic() + HANGS_S
        while not condition():
            assert time.monotonic() < deadline, self.pool.describe()
            self.take()

    def progress(self, *workers, blocks=5):
        goals = {worker: self.made(worker) + blocks for worker in workers}
        self.until(lambda: all(self.made(worker) >= goal for worker, goal in goals.items()))

    def made(self, worker):
        return sum(map(len, self.lives[worker]))


def processes_of_ray():
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or ())
        if "vtray-" in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append((process.pid, line[:80]))
    return found


def actors_of_ray():
    """Actors, also of clusters that fell apart."""
    return {
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if (process.info["cmdline"] or [""])[0].startswith("ray::Worker")
    }
