"""The question how many workers fit on a cluster, without a cluster."""

import multiprocessing
import os
import signal
import time

import pytest

from ritornello.agent import session
from ritornello.agent.cluster import room
from ritornello.agent.cluster.engine import EngineLost
from ritornello.agent.cluster.room import MAX_WORKERS, ask, workers_that_fit
from ritornello.agent.session import prepare
from ritornello.core.errors import ConfigError
from tests.agent.cluster.players import two_machines

pytestmark = pytest.mark.process
CLUSTER = ["--env=CartPole-v1", "--multiprocessing_backend=ray", "--ray_address=10.0.0.1:6379"]


def nobody_there():
    raise EngineLost("nobody answers at 10.0.0.1.")


def ends_without_a_word():
    os.kill(os.getpid(), signal.SIGKILL)


def hangs():
    time.sleep(3600)


def test_another_process_counts_the_room_of_all_machines():
    assert ask(two_machines) == 4
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("make_engine", "limit_s", "words"),
    [
        (nobody_there, 300.0, "nobody answers at 10.0.0.1"),
        (ends_without_a_word, 300.0, "it did not answer"),
        (hangs, 0.5, "it did not answer"),
    ],
)
def test_a_cluster_that_does_not_say_it_is_a_mistake_of_the_user(
    monkeypatch, make_engine, limit_s, words
):
    monkeypatch.setattr(room, "END_S", 0.5)
    with pytest.raises(ConfigError, match=words):
        ask(make_engine, limit_s)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(("count", "words"), [(0, "has room"), (MAX_WORKERS + 1, "at most")])
def test_no_room_and_too_much_room_are_refused(monkeypatch, count, words):
    monkeypatch.setattr(room, "ask", lambda make_engine: count)
    with pytest.raises(ConfigError, match=words):
        workers_that_fit("10.0.0.1:6379", is_insecure=False)


def test_a_cluster_decides_how_many_workers_there_are_unless_a_flag_does(monkeypatch):
    asked = []
    monkeypatch.setattr(session, "check_ray", lambda: None)
    monkeypatch.setattr("ritornello.agent.assembly.check_ray", lambda: None)
    monkeypatch.setattr(
        session, "workers_that_fit", lambda address, *, is_insecure: asked.append(address) or 5
    )
    blueprint = prepare([*CLUSTER, "--worker_count=0"]).blueprint
    assert asked == ["10.0.0.1:6379"]
    assert blueprint.choices.worker_count == len(blueprint.workers()) == 5
    assert not blueprint.choices.pin_workers  # cores of this machine mean nothing there
    assert blueprint.flags.worker_count == 0  # a resume without the cluster chooses anew
    assert prepare([*CLUSTER, "--worker_count=3"]).blueprint.choices.worker_count == 3
    assert len(asked) == 1
