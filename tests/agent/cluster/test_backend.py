import os
import pickle
import socket
import sys
from types import SimpleNamespace

import pytest

from ritornello.agent.cluster import ray_cluster
from ritornello.agent.cluster.dispatcher import ClusterLost
from ritornello.agent.cluster.ray_cluster import RayCluster, RaySettings
from ritornello.agent.run.memory import memory_needs
from ritornello.agent.run.run import make_experience
from ritornello.agent.session import prepare
from ritornello.core.errors import ConfigError
from ritornello.flags.parsing import parse
from ritornello.sequences import checks
from tests.agent.runs import make_blueprint
from tests.agent.test_rollout import make_board

RAY = {"multiprocessing_backend": "ray"}


@pytest.fixture
def _with_ray(monkeypatch):
    monkeypatch.setattr(ray_cluster, "util", SimpleNamespace(find_spec=lambda name: object()))


def test_without_ray_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setattr(ray_cluster, "util", SimpleNamespace(find_spec=lambda name: None))
    with pytest.raises(ConfigError, match=r"\[ray\]"):
        prepare(["--env=CartPole-v1", "--multiprocessing_backend=ray"])


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--reproducible=True"], "--reproducible=True plays in the learner's process"),
        (["--inference=server"], "--inference=server has one server beside the learner"),
        (["--ray_address=auto", "--worker_count=2"], "must be host:port"),
        (["--multiprocessing_backend=python_native", "--ray_address=a:1"], "ray only"),
    ],
)
@pytest.mark.usefixtures("_with_ray")
def test_what_does_not_go_together_is_refused(flags, words):
    with pytest.raises(ConfigError, match=words):
        prepare(["--env=CartPole-v1", "--multiprocessing_backend=ray", *flags])


@pytest.mark.usefixtures("_with_ray")
def test_the_flag_makes_a_gateway_for_the_same_workers(monkeypatch):
    blueprint = make_blueprint("CartPole-v1", worker_count=3, max_worker_restarts=7, **RAY)
    made = []
    monkeypatch.setattr(
        "ritornello.agent.cluster.gateway_pool.GatewayPool",
        lambda config, board: made.append(config) or "a pool",
    )
    pool = make_experience(blueprint, make_board(blueprint), 5).pool
    assert pool == "a pool"
    (config,) = made
    assert list(config.workers) == blueprint.workers(life=5)
    assert config.max_restarts == 7
    again = pickle.loads(pickle.dumps(config))  # it travels to the gateway's process
    assert again.connect.func is RayCluster
    (settings,) = again.connect.args
    assert (settings.address, settings.worker_count, settings.is_insecure) == ("", 3, False)
    assert "ray" not in sys.modules


@pytest.mark.usefixtures("_with_ray")
def test_the_memory_of_other_machines_is_not_counted_here():
    def parts(**flags):
        blueprint = make_blueprint("CartPole-v1", worker_count=3, **flags)
        return {
            need.part: need.nbytes for need in memory_needs(blueprint, blueprint.learner().model)
        }

    native, private = parts(), parts(**RAY)
    cluster = parts(**RAY, ray_address="10.0.0.1:6379")
    assert not any("gateway" in part for part in native)
    assert any("3 worker processes" in part for part in private)
    assert not any("worker processes" in part for part in cluster)
    assert private["the gateway to the cluster"] > cluster["the gateway to the cluster"] > 0
    assert private["the ring of the gateway"] == cluster["the ring of the gateway"] > 0


def test_an_address_at_which_nobody_is_is_said_before_ray_waits_for_it(monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(os, "umask", lambda mask: None)  # of this whole process
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ClusterLost, match=f"127.0.0.1:{port} cannot be joined: .*refused"):
        RayCluster(RaySettings(f"127.0.0.1:{port}", 1, 1))
    assert "ray" not in sys.modules


def test_no_file_and_no_checkpoint_chooses_a_cluster(tmp_path):
    """Programs run there with the token of this user, and their answers are unpickled here."""
    file = tmp_path / "flags.yaml"
    for address in ("192.0.2.1:6379", "insecure:192.0.2.1:6379"):
        file.write_text(f"multiprocessing_backend: ray\nray_address: '{address}'\n")
        with pytest.raises(ConfigError, match="sets ray_address, which no file may"):
            parse(["--env=CartPole-v1", f"--flags_file={file}"])
    assert "ray_address" in checks.ONLY_TYPED
    stored = {"env": "CartPole-v1", "multiprocessing_backend": "ray", "ray_address": "192.0.2.1:1"}
    flags = parse(["--op_mode=train_w_load", "--load_model_url=x"], lambda *_: stored)
    assert (flags.multiprocessing_backend, flags.ray_address) == ("python_native", "")
