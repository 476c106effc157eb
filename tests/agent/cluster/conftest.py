"""Fixtures of the tests with real Ray."""

import fcntl
import secrets
import tempfile
from functools import partial
from pathlib import Path

import pytest

from ritornello.agent.cluster.gateway import GatewayConfig
from ritornello.agent.cluster.gateway_pool import GatewayPool
from ritornello.agent.cluster.ray_cluster import RayCluster as Driver
from ritornello.agent.cluster.ray_cluster import RaySettings, python_paths
from tests.agent.cluster.ray_helpers import RayCluster
from tests.agent.test_rollout import make_board


@pytest.fixture
def _one_at_a_time():
    with open(Path(tempfile.gettempdir()) / "vtrace-cluster-tests.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture
def folder():
    """Short, because Ray has sockets in it."""
    with tempfile.TemporaryDirectory(prefix="vt", ignore_cleanup_errors=True) as path:
        yield path


@pytest.fixture
def _own_token(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))


@pytest.fixture
def cluster(_one_at_a_time, _own_token, folder):
    started = RayCluster(folder)
    yield started
    started.close()


@pytest.fixture
def make_pool(pools):
    def make(blueprint, address="", *, is_insecure=False):
        settings = RaySettings(
            address, blueprint.choices.worker_count, blueprint.acting_weights.nbytes,
            is_insecure, python_paths(),
        )  # fmt: skip
        config = GatewayConfig(
            workers=tuple(blueprint.workers()),
            connect=partial(Driver, settings),
            max_restarts=3,
            worker_timeout_s=30.0,
        )
        pools.append(GatewayPool(config, make_board(blueprint)))
        pools[-1].start()
        return pools[-1]

    return make
