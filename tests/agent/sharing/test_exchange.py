"""Agents that tell each other what they play: how much is taken, and who hurts whom (nobody)."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ritornello.agent.sharing import exchange, membership, partner
from ritornello.agent.sharing.exchange import Exchange
from ritornello.agent.sharing.foreign import UnrollPost
from ritornello.agent.sharing.membership import Membership, check_place
from ritornello.agent.sharing.terms import TERMS_FILE, Terms
from ritornello.core import faults, file_lock
from ritornello.core.errors import ConfigError
from ritornello.core.unroll import UnrollSchema
from ritornello.transport import spool
from ritornello.wrappers.config import EnvConfig
from tests.replay.builders import SPEC, context, make_manager, make_record, queue, standard

SCHEMA = UnrollSchema(SPEC, 4)


def terms(**changes: object) -> Terms:
    return Terms.of(replace(EnvConfig("tests/Vector-v0"), **changes), UnrollPost(SCHEMA).travelling)


def member(folder: Path, number: int, count: int = 3, share: float | None = None) -> Exchange:
    return Exchange(Membership(folder, number, count, share), terms(), SCHEMA)


def joined(folder: Path, number: int, count: int = 3, share: float | None = None) -> Exchange:
    agent = member(folder, number, count, share)
    agent.open()
    return agent


def play(agent: Exchange, number: int, first: int, count: int) -> None:
    """Send unrolls of which each says by worker_id who played it, and by seq when."""
    records = []
    for seq in range(first, first + count):
        record = make_record(seq, schema=SCHEMA)
        SCHEMA.view(record, "worker_id")[...] = number
        records.append(record)
    agent.send(records)


def whose(unrolls: list) -> list[tuple[int, int]]:
    """Return (agent, seq), having compared what carries the agent's number with what is inside."""
    for unroll in unrolls:
        assert unroll.agent == SCHEMA.view(unroll.record, "worker_id")
    return [(unroll.agent, int(SCHEMA.view(unroll.record, "seq"))) for unroll in unrolls]


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "LOOK_S", 0.0)
    monkeypatch.setattr(exchange, "LOCK_WAIT_S", 0.0)
    monkeypatch.setattr(membership, "LOCK_WAIT_S", 0.0)


# --- any interleaving ----------------------------------------------------------------------------


class PopulationMachine(RuleBasedStateMachine):
    """Three agents that play, take, die and come back in any order; each share is its own."""

    @initialize(shares=st.lists(st.sampled_from([None, 0.0, 0.3, 0.8]), min_size=3, max_size=3))
    def begin(self, shares):
        exchange.LOOK_S = exchange.LOCK_WAIT_S = membership.LOCK_WAIT_S = 0.0
        self.folder = Path(tempfile.mkdtemp())
        self.shares = shares
        self.agents = [None, None, None]
        self.played = [0, 0, 0]
        self.sent_in_session = [0, 0, 0]
        self.newest = {}  # (who takes, of whom) -> newest seq that was taken
        self.taken = [0, 0, 0]  # in this session
        self.dead = []

    @rule(number=st.integers(0, 2))
    def start(self, number):
        if self.agents[number] is None:
            self.agents[number] = joined(self.folder, number, share=self.shares[number])
            self.sent_in_session[number] = self.taken[number] = 0

    @rule(number=st.integers(0, 2))
    def die(self, number):
        """Without a goodbye: the lock goes with the process, the files stay."""
        agent = self.agents[number]
        if agent is not None:
            agent._lock.release()
            agent._terms_lock.release()
            self.dead.append(agent)
            self.agents[number] = None

    @rule(number=st.integers(0, 2), count=st.integers(1, 12))
    def play(self, number, count):
        if self.agents[number] is not None:
            play(self.agents[number], number, self.played[number], count)
            self.played[number] += count
            self.sent_in_session[number] += count

    @rule(number=st.integers(0, 2))
    def take(self, number):
        agent = self.agents[number]
        if agent is None:
            return
        got = whose(agent.receive())
        self.taken[number] += len(got)
        for of_whom, seq in got:
            assert of_whom != number
            assert seq < self.played[of_whom]
            assert seq > self.newest.get((number, of_whom), -1)  # in order, nothing twice
            self.newest[number, of_whom] = seq

    @invariant()
    def no_agent_takes_more_than_its_share(self):
        for number in range(3):
            share = getattr(self, "shares", [None] * 3)[number]
            if getattr(self, "agents", [None] * 3)[number] is not None:
                share = 2 / 3 if share is None else share
                own, foreign = self.sent_in_session[number], self.taken[number]
                assert foreign * (1 - share) <= own * share + 1e-6

    @invariant()
    def everything_is_accounted_for(self):
        """What was sent while both were there is taken, passed over, lost or waits to be read."""
        for agent in filter(None, getattr(self, "agents", ())):
            figures = agent.stats()
            assert all(value >= 0 for value in figures.values())
            assert not any(value for name, value in figures.items() if name.endswith("refused"))

    def teardown(self):
        if not hasattr(self, "folder"):
            return
        # Liveness: with all three there, each hears the others again.
        for number in range(3):
            self.start(number)
        for number in range(3):
            self.take(number)
        for number in range(3):
            self.play(number, 12)
        for number in range(3):
            before = self.taken[number]
            self.take(number)
            assert self.taken[number] > before or self.shares[number] == 0
        for agent in [*self.agents, *self.dead]:
            agent.close()
        rmtree(self.folder)


class TestAnyInterleavingOfAgentsThatPlayAndDie(PopulationMachine.TestCase):
    settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


# --- how much is taken ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "share", [0.5, *(pytest.param(share, marks=pytest.mark.slow) for share in (0.25, 0.9, None))]
)
def test_the_share_of_foreign_draws_is_what_was_asked_for(
    tmp_path: Path, share: float | None
) -> None:
    """Agent 1 plays twelve times as fast as agent 2, and neither pushes the other out."""
    agents = [joined(tmp_path, number, share=share) for number in range(3)]
    manager = make_manager([queue(8, 0.25), standard(400, 0.75)], 8, schema=SCHEMA, codec="lz4")
    played = [0, 0, 0]
    drawn: Counter[int] = Counter()
    for batch in range(900):
        for number, count in enumerate((2, 24, 6 if batch % 3 == 0 else 0)):
            play(agents[number], number, played[number], count)
            played[number] += count
        for seq in range(played[0] - 2, played[0]):
            assert manager.insert(make_record(seq, schema=SCHEMA), batch, 0.0)
        for unroll in agents[0].receive():
            assert manager.insert_foreign(unroll.record, unroll.agent, batch, unroll.payload)
        if batch >= 400:
            draws = manager.sample(context(), 0.0)
            assert draws is not None
            assert all(draw.item.agent == -1 for draw in draws if draw.is_online)
            drawn.update(draw.item.agent for draw in draws if not draw.is_online)
        else:
            manager.sample(context(), 0.0)
    foreign = (drawn[1] + drawn[2]) / drawn.total()
    wanted = 2 / 3 if share is None else share
    # The slow one cannot give more than its 2 unrolls a batch, nor need it for these shares.
    assert foreign == pytest.approx(wanted, abs=0.02)
    if wanted <= 2 / 3:
        assert drawn[1] == pytest.approx(drawn[2], rel=0.2)
    for agent in agents:
        agent.close()


def test_what_is_beyond_the_share_is_passed_over_the_oldest_first(tmp_path: Path) -> None:
    one, other = joined(tmp_path, 0, 2), joined(tmp_path, 1, 2)
    play(one, 0, 0, 3)
    play(other, 1, 0, 10)
    assert whose(one.receive()) == [(1, 7), (1, 8), (1, 9)]
    assert one.stats()["share/agent_1/passed_over"] == 7
    assert one.stats()["share/agent_1/taken"] == 3
    assert whose(one.receive()) == []


def test_credit_is_kept_for_a_slow_agent_but_not_without_end(tmp_path: Path) -> None:
    one, other = joined(tmp_path, 0, 2), joined(tmp_path, 1, 2)
    for _ in range(100):
        play(one, 0, 0, 20)
        assert one.receive() == []
    play(other, 1, 0, 2000)
    taken = len(one.receive()) + len(one.receive()) + len(one.receive())
    assert taken == partner.MAX_OWED + exchange.MAX_SPARE


def test_what_a_silent_agent_cannot_use_goes_to_the_others_after_a_while(tmp_path: Path) -> None:
    one, other = joined(tmp_path, 0, share=0.5), joined(tmp_path, 1)
    got = []
    for batch in range(100):  # agent 2 never begins
        play(one, 0, 0, 4)
        play(other, 1, 4 * batch, 4)
        got.append(len(one.receive()))
    assert sum(got[:20]) == 40  # agent 1's own part: half of one foreign unroll for each own one
    assert sum(got[-20:]) == 80


# --- who hurts whom ------------------------------------------------------------------------------


def test_an_agent_whose_disk_is_full_goes_on_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = joined(tmp_path, 0, 2), joined(tmp_path, 1, 2)
    full = {"at": "file.write", "file": "*.segment", "do": "enospc", "for_ever": True}
    with faults.loaded(faults.Plan([faults.Fault.from_json(full)])):
        play(one, 0, 0, 5)
        play(one, 0, 5, 5)
    (line,) = caplog.messages
    assert "No space left" in line
    assert one.stats()["share/unsent"] == 10
    play(other, 1, 0, 4)
    assert len(one.receive()) == 4  # it learns from the other all the same


def test_a_hostile_agent_is_counted_and_its_neighbours_are_heard(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, good, bad = (joined(tmp_path, number) for number in range(3))
    play(one, 0, 0, 20)
    play(good, 1, 0, 5)
    bad._outbox.send(b"no unroll")
    record = make_record(0, schema=SCHEMA)
    SCHEMA.view(record, "reward")[...] = np.nan
    bad.send([record])
    assert whose(one.receive()) == [(1, seq) for seq in range(5)]
    assert one.stats()["share/agent_2/refused"] == 2
    assert len([line for line in caplog.messages if "agent_2" in line]) == 1
    (path,) = bad._folder.glob("*.segment")
    path.write_bytes(b"\xff" * 10_000)
    assert whose(one.receive()) == []
    assert one.stats()["share/agent_2/refused"] >= 3
    play(good, 1, 5, 2)
    assert whose(one.receive()) == [(1, 5), (1, 6)]


OTHERS = {
    "sticky": {"sticky_action_probability": 0.25},
    "size": {"height": 96},
    "lives": {"episodic_life": False},
}


@pytest.mark.parametrize(
    "what", [*OTHERS, "game", "shape", "actions", "length", "version", "no json"]
)
def test_an_agent_of_another_kind_is_refused_in_one_sentence(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = joined(tmp_path, 0, 2)
    schema = SCHEMA
    if what == "game":
        schema = UnrollSchema(replace(SPEC, env_id="tests/Other-v0"), 4)
    if what == "shape":
        schema = UnrollSchema(replace(SPEC, frame_shape=(4,)), 4)
    if what == "actions":
        schema = UnrollSchema(replace(SPEC, action_meanings=("left", "up")), 4)
    if what == "length":
        schema = UnrollSchema(SPEC, 5)
    config = replace(EnvConfig("tests/Vector-v0"), **OTHERS.get(what, {}))
    theirs = Terms.of(config, UnrollPost(schema).travelling)
    if what == "version":
        theirs = Terms({**theirs.values, "version": "9.9"})
    other = Exchange(Membership(tmp_path, 1, 2), theirs, schema)
    other.open()
    if what == "no json":
        (tmp_path / "agent_1" / TERMS_FILE).write_text("{")
    play(one, 0, 0, 5)
    other.send([schema.allocate() * 0])
    assert one.receive() == []
    (line,) = [line for line in caplog.messages if "nothing is taken from agent_1" in line]
    assert "\n" not in line
    assert one.stats()["share/agent_1/taken"] == 0
    # Who comes later hears it before anything is begun.
    with pytest.raises(ConfigError, match="agent_1 in .* runs"):
        check_place(Membership(tmp_path, 2, 3), terms())
    other.close()
    check_place(Membership(tmp_path, 2, 3), terms())  # of an agent that has ended nobody cares
    one.close()


def test_an_agent_that_comes_back_with_the_right_terms_is_heard(tmp_path: Path) -> None:
    one = joined(tmp_path, 0, 2)
    folder = tmp_path / "agent_1"
    folder.mkdir()
    (folder / TERMS_FILE).write_text(json.dumps({"format": 0}))
    assert one.receive() == []
    other = joined(tmp_path, 1, 2)
    play(one, 0, 0, 5)
    play(other, 1, 0, 2)
    assert whose(one.receive()) == [(1, 0), (1, 1)]


def test_terms_of_an_earlier_session_keep_nobody_from_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agent 1 ended with another version of the program, and begins again in this moment."""
    folder = tmp_path / "agent_1"
    folder.mkdir()
    (folder / TERMS_FILE).write_text(json.dumps({**terms().values, "version": "0.0"}))
    write = Terms.write
    looked = []

    def look_before(own: Terms, folder: Path) -> None:
        check_place(Membership(tmp_path, 0, 2), terms())
        write(own, folder)
        looked.append(folder)

    monkeypatch.setattr(Terms, "write", look_before)
    joined(tmp_path, 1, 2).close()
    assert looked == [folder]


def test_agents_that_begin_at_the_same_time_do_not_take_each_other_for_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined(tmp_path, 1, 2).close()
    flock = file_lock.fcntl.flock
    looked = []

    def look_meanwhile(file: int, operation: int) -> None:
        flock(file, operation)
        monkeypatch.setattr(file_lock.fcntl, "flock", flock)
        check_place(Membership(tmp_path, 1, 2), terms())
        looked.append(file)

    monkeypatch.setattr(file_lock.fcntl, "flock", look_meanwhile)
    check_place(Membership(tmp_path, 1, 2), terms())
    assert looked


def test_terms_that_could_not_be_read_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = joined(tmp_path, 0, 2), joined(tmp_path, 1, 2)
    play(one, 0, 0, 5)
    play(other, 1, 0, 1)

    def full(*args: object) -> str:
        raise ConfigError("cannot read the terms of an agent: Too many open files.")

    with monkeypatch.context() as trouble:
        trouble.setattr("ritornello.agent.sharing.terms.read_text", full)
        assert one.receive() == []
        assert one.receive() == []
    assert whose(one.receive()) == [(1, 0)]
    (line,) = [line for line in caplog.messages if "nothing is taken from agent_1" in line]
    assert "Too many open files" in line


@contextmanager
def _as_another_user(folder: Path) -> Iterator[None]:
    """Let this process be a user to whom a folder of somebody else is closed."""
    folder.chmod(0o700 if os.geteuid() == 0 else 0)
    if os.geteuid() == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(os.getuid())
        folder.chmod(0o700)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="folders are closed in another way here")
@pytest.mark.parametrize("closed", ["", "agent_0", "agent_1"])
def test_a_folder_of_another_user_is_refused_in_one_sentence(
    closed: str, caplog: pytest.LogCaptureFixture
) -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folder is closed to others
        folder = Path(name)
        folder.chmod(0o755)
        for number in range(2):
            joined(folder, number).close()
            (folder / f"agent_{number}").chmod(0o755)
        one = member(folder, 2)
        with _as_another_user(folder / closed):
            with pytest.raises(ConfigError, match=r"user \d.*mode 0.*as one user") as refusal:
                check_place(Membership(folder, 2, 3), terms())
            one._look()
        assert "\n" not in str(refusal.value)
        assert str(folder / closed) in str(refusal.value)
        assert any("Permission denied" in line for line in caplog.messages)
        one.close()


def test_two_processes_cannot_be_the_same_agent(tmp_path: Path) -> None:
    one = joined(tmp_path, 1)
    with pytest.raises(ConfigError, match=r"agent 1 .* runs already \(process .*--agent_number"):
        joined(tmp_path, 1)
    with pytest.raises(ConfigError, match="runs already"):
        check_place(Membership(tmp_path, 1, 3), terms())
    one.close()
    check_place(Membership(tmp_path, 1, 3), terms())
    joined(tmp_path, 1).close()


def test_a_frozen_agent_that_thaws_brings_no_flood_and_goes_on_with_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool.Outbox.__init__, "__defaults__", (2000, 3))
    frozen, other = joined(tmp_path, 0, 2), joined(tmp_path, 1, 2)
    play(frozen, 0, 0, 4)
    for first in range(0, 400, 10):  # nobody reads; nobody waits
        play(other, 1, first, 10)
    assert other.stats()["share/sent"] == 400
    got = whose(frozen.receive())
    assert got == [(1, seq) for seq in range(396, 400)]
    figures = frozen.stats()
    assert figures["share/agent_1/lost"] > 300
    assert sum(figures[f"share/agent_1/{n}"] for n in ("lost", "taken", "passed_over")) == 400
    play(frozen, 0, 4, 1)
    play(other, 1, 400, 1)
    assert whose(frozen.receive()) == [(1, 400)]


def test_a_folder_that_is_none_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(ConfigError, match="is no folder"):
        check_place(Membership(path, 0, 2), terms())
