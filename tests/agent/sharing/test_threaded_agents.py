"""Two agents in threads of this process: what one plays is learned from by the other."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ritornello.agent.learning.feed import Feed
from ritornello.agent.run.sharing import make_exchange
from ritornello.agent.run.threaded import Threaded
from ritornello.agent.sharing import exchange
from ritornello.core.errors import ConfigError
from ritornello.replay.item import OWN
from ritornello.transport.weights import WeightBoard
from tests.agent.runs import make_blueprint
from tests.agent.test_threaded import HeldPool
from tests.deadlines import HANGS_S

Agents = list[tuple[Threaded, HeldPool]]


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agents]:
    """Two agents, the second of which has a memory and keeps unrolls as they are."""
    monkeypatch.setattr(exchange, "LOOK_S", 0.0)
    made: Agents = []
    boards = []
    kinds = [{"use_replay_compression": True}, {"use_lstm": True, "burn_in_steps": 2}]
    for number, kind in enumerate(kinds):
        shared = {"share_replay_in": str(tmp_path), "agent_count": 2, "agent_number": number}
        blueprint = make_blueprint(seed=number + 1, **shared, **kind)
        board = WeightBoard(blueprint.acting_weights.nbytes)
        with board.write(0) as block:
            blueprint.acting_weights.pack(blueprint.learner().model, block)
        pool = HeldPool(blueprint.workers(), board)
        feed = Feed(blueprint.schema, torch.device("cpu"))
        threaded = Threaded(
            pool, blueprint.replay(), feed, cache_depth=1, exchange=make_exchange(blueprint)
        )
        threaded.start()
        made.append((threaded, pool))
        boards.append(board)
    yield made
    for threaded, _ in made:
        threaded.quiesce()
        threaded.close()
    for board in boards:
        board.close()


def learn_from_others(agents: Agents, number: int) -> None:
    """Take batches until one has an unroll of the other agent; check every batch."""
    threaded, _ = agents[number]
    deadline = time.monotonic() + HANGS_S
    seen: set[int] = set()
    while 1 - number not in seen:
        assert time.monotonic() < deadline, threaded.missing()
        for each, pool in agents:
            pool.may_give.release()
            if each is not threaded:
                each.next_batch()
        batch = threaded.next_batch()
        if batch is None:
            continue
        assert set(batch.agent.tolist()) <= {OWN, 1 - number}
        assert set(batch.agent[batch.is_online].tolist()) <= {OWN}
        seen.update(batch.agent.tolist())
        foreign = batch.agent != OWN
        if batch.state.shape[1]:
            assert not batch.state[foreign].any()
    assert threaded.stats()[f"share/agent_{1 - number}/taken"] > 0


def test_each_learns_from_the_other_whatever_its_network_and_its_codec(agents: Agents) -> None:
    learn_from_others(agents, 0)
    learn_from_others(agents, 1)


def test_one_whose_learner_stands_still_keeps_nobody_waiting(agents: Agents) -> None:
    """Its queue is full, its ingest thread waits; the other one plays on."""
    (still, held), (other, pool) = agents
    for _ in range(50):
        held.may_give.release()  # and nobody takes a batch of it
    deadline = time.monotonic() + HANGS_S
    batches = 0
    while batches < 20:
        assert time.monotonic() < deadline, other.missing()
        pool.may_give.release()
        batches += other.next_batch() is not None
    assert other.stats()["share/sent"] > still.stats()["share/sent"]


def test_a_second_agent_of_the_same_number_does_not_begin(agents: Agents, tmp_path: Path) -> None:
    shared = {"share_replay_in": str(tmp_path), "agent_count": 2, "agent_number": 1}
    twin = make_exchange(make_blueprint(use_lstm=True, burn_in_steps=2, **shared))
    assert twin is not None
    with pytest.raises(ConfigError, match="runs already"):
        twin.open()
