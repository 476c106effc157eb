"""Real Ray: clusters that do not let a run in, or that a run does not trust."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, replace

import psutil
import pytest

from ritornello.agent.cluster.gateway import GatewayConfig
from ritornello.agent.cluster.room import workers_that_fit
from ritornello.agent.cluster.wire import Fingerprint
from ritornello.core.errors import ConfigError, WorkerDied
from tests.agent.cluster.ray_helpers import WITH_RAY, RayCluster, Streams, hosts_of_ray
from tests.agent.runs import make_blueprint
from tests.deadlines import HANGS_S

pytestmark = WITH_RAY


def poll_on(pool):
    deadline = time.monotonic() + HANGS_S
    while time.monotonic() < deadline:
        pool.poll(0.5)


def until_it_gives_up(pool, match):
    with pytest.raises(WorkerDied, match=match):
        poll_on(pool)


@pytest.fixture
def start_cluster(_one_at_a_time, _own_token, folder):
    started = []

    def start(*arguments, **environment):
        started.append(RayCluster(folder, *arguments, **environment))
        return started[-1]

    yield start
    for one in started:
        one.close()


def test_a_cluster_with_another_token_lets_nobody_in(cluster, make_pool, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    pool = make_pool(make_blueprint("CartPole-v1", worker_count=1), cluster.address)
    until_it_gives_up(pool, "(?s)cannot be joined.*token")


def test_a_cluster_that_asks_for_no_token_is_refused_unless_that_is_wanted(
    start_cluster, make_pool
):
    cluster = start_cluster(RAY_AUTH_MODE="disabled")
    cluster("add 1")
    with pytest.raises(ConfigError, match="asks for no token"):
        workers_that_fit(cluster.address, is_insecure=False)
    assert workers_that_fit(cluster.address, is_insecure=True) == 1
    blueprint = make_blueprint("CartPole-v1", worker_count=1)
    pool = make_pool(blueprint, cluster.address, is_insecure=True)
    Streams(pool, blueprint.schema).progress(0)


def other_python():
    """An interpreter whose Python differs in the last number of its version only."""
    own = sys.version_info
    names = [f"/usr/bin/python3.{own.minor}", "/usr/bin/python3", "/usr/local/bin/python3"]
    for path in filter(None, map(shutil.which, names)):
        said = subprocess.run([path, "-V"], capture_output=True, text=True, check=False).stdout
        version = tuple(map(int, said.split()[-1].split("."))) if said else ()
        if version[:2] == own[:2] and version != own[:3]:
            return path
    return None


@pytest.mark.skipif(other_python() is None, reason="there is one Python of this version only")
def test_a_cluster_of_another_python_is_not_joined(start_cluster, make_pool):
    here = os.pathsep.join(path for path in sys.path if "site-packages" in path)
    cluster = start_cluster(other_python(), PYTHONPATH=here)
    pool = make_pool(make_blueprint("CartPole-v1", worker_count=1), cluster.address)
    until_it_gives_up(pool, "(?s)cannot be joined.*Python.*Use the same Ray and the same Python")


@dataclass(frozen=True)
class OtherLearner(GatewayConfig):
    """The learner has another checkout than its machines, and another Python."""

    def task(self, launch):
        own = Fingerprint.own()
        (path, _), *others = own.files
        fingerprint = replace(own, python="3.0.1", files=((path, "another"), *others))
        return replace(super().task(launch), fingerprint=fingerprint)


def test_a_machine_with_another_checkout_or_python_is_left_out(cluster, make_pool):
    before = hosts_of_ray()
    cluster("add 1")
    blueprint = make_blueprint("CartPole-v1", worker_count=1)
    pool = make_pool(blueprint, cluster.address, kind=OtherLearner)
    until_it_gives_up(
        pool, r"(?s)no machine .* can take part: .* instead of 3\.0\.1; another version of core/"
    )
    deadline = time.monotonic() + HANGS_S
    while hosts := hosts_of_ray() - before:
        assert time.monotonic() < deadline, hosts
        time.sleep(0.5)


def test_the_room_of_a_cluster_is_that_of_its_machines(cluster, make_pool):
    with pytest.raises(ConfigError, match="no machine .* has room"):
        workers_that_fit(cluster.address, is_insecure=False)
    cluster("add 1")
    cluster("add 2")
    assert workers_that_fit(cluster.address, is_insecure=False) == 3
    assert "ray" not in sys.modules
    # What main.py sets for itself, the workers of a machine have as well.
    blueprint = make_blueprint("CartPole-v1", worker_count=3)
    before = hosts_of_ray()
    pool = make_pool(blueprint, cluster.address)
    Streams(pool, blueprint.schema).progress(0, 1, 2)
    workers = [
        worker
        for host in hosts_of_ray() - before
        for worker in psutil.Process(host).children()
        if any("spawn_main" in part for part in worker.cmdline())
    ]
    assert len(workers) == 3
    assert {worker.environ().get("OPENBLAS_NUM_THREADS") for worker in workers} == {"1"}
