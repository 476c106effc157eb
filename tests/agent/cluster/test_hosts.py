"""The books of the hosts against every order of events."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ritornello.agent.cluster.engine import Node
from ritornello.agent.cluster.hosts import (
    FIRST_DELAY_S,
    GONE_S,
    MAX_DELAY_S,
    SETTLED_S,
    SILENT_S,
    STARTING_S,
    HostLedger,
    HostState,
)
from tests.agent.cluster.players import free_seats, machines

SEATS = 5


def ledger_of(*limits, seats=SEATS):
    ledger = HostLedger(seats)
    ledger.see_nodes(machines(*limits), 0.0)
    return ledger


def test_seats_fill_the_machines_in_their_order_and_none_is_given_twice():
    ledger = ledger_of(2, 0, 9)
    first, second = ledger.due(0.0)
    assert (first.node.node_id, first.seats) == ("n0", (0, 1))
    assert (second.node.node_id, second.seats) == ("n2", (2, 3, 4))
    assert (first.epoch, second.epoch) == (0, 1)
    assert ledger.due(100.0) == []


def test_a_machine_that_joins_gets_what_is_left_when_it_has_settled():
    ledger = ledger_of(2)
    ledger.due(0.0)
    assert free_seats(ledger) == 3
    ledger.see_nodes(machines(2, 2), 10.0)
    assert ledger.due(10.0 + SETTLED_S - 0.1) == []
    (launch,) = ledger.due(10.0 + SETTLED_S)
    assert (launch.node.node_id, launch.seats) == ("n1", (2, 3))


def test_the_seats_of_a_lost_machine_move_to_others_at_once_and_it_is_counted_once():
    ledger = ledger_of(2, 9)
    ledger.due(0.0)
    (lost,) = ledger.see_nodes([Node("n1", "machine 1", 9)], 1.0)
    assert lost.launch.seats == (0, 1)
    assert ledger.nodes_lost == 1
    (launch,) = ledger.due(1.0)
    assert (launch.node.node_id, launch.seats, launch.epoch) == ("n1", (0, 1), 2)
    assert len(ledger.see_nodes([], 2.0)) == 2
    assert ledger.see_nodes([], 3.0) == []
    assert ledger.nodes_lost == 2


def test_an_empty_machine_that_leaves_is_no_loss():
    ledger = ledger_of(9, 9)
    ledger.due(0.0)
    assert ledger.see_nodes(machines(9), 1.0) == []
    assert ledger.nodes_lost == 0


def test_a_host_that_is_lost_comes_again_later_and_later():
    ledger, now, delays = ledger_of(9), 0.0, []
    for _ in range(6):
        (launch,) = ledger.due(now)
        ledger.lose(launch.epoch, now)
        delay_s = 0.0
        while not (waiting := ledger._places["n0"].usable_at <= now + delay_s):
            assert not waiting
            delay_s += 1.0
        assert ledger.due(now + delay_s - 1.0) == []
        delays.append(delay_s)
        now += delay_s
    assert delays == [FIRST_DELAY_S, 10.0, 20.0, 40.0, MAX_DELAY_S, MAX_DELAY_S]


def test_silence_is_told_once_and_ends_in_loss_unless_broken():
    ledger = ledger_of(9)
    ledger.due(0.0)
    assert ledger.newly_silent(STARTING_S - 1) == []  # it may take long to start
    ledger.heard(0, 100.0)
    assert ledger.newly_silent(100.0 + SILENT_S - 0.1) == []
    assert [host.launch.epoch for host in ledger.newly_silent(100.0 + SILENT_S)] == [0]
    assert ledger.newly_silent(100.0 + SILENT_S + 1) == []
    assert ledger.heard(0, 130.0) is True
    assert ledger.heard(0, 131.0) is False
    ledger.newly_silent(131.0 + SILENT_S)
    assert ledger.overdue(131.0 + GONE_S - 0.1) == []
    assert len(ledger.overdue(131.0 + GONE_S)) == 1


def test_a_host_that_never_starts_is_given_up():
    ledger = ledger_of(9)
    ledger.due(0.0)
    assert ledger.overdue(STARTING_S - 0.1) == []
    assert len(ledger.overdue(STARTING_S)) == 1


def test_a_refused_machine_is_never_used_again():
    ledger = ledger_of(9)
    ledger.due(0.0)
    ledger.refuse(0)
    assert ledger.node_count == 0
    assert ledger.due(1e6) == []


class Ledger(RuleBasedStateMachine):
    """Machines come, go and fail in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = HostLedger(SEATS)
        self.now = 0.0
        self.nodes: dict[str, Node] = {}
        self.joined: dict[str, float] = {}
        self.lost_at: dict[str, float] = {}
        self.refused: set[str] = set()
        self.ledger_names: set[str] = set()
        self.epochs: list[int] = []
        self.expected_losses = 0
        self.count = 0

    @rule(limit=st.integers(0, 4))
    def join(self, limit):
        name = f"n{self.count}"
        self.count += 1
        self.nodes[name] = Node(name, name, limit)

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def leave(self, data):
        del self.nodes[data.draw(st.sampled_from(sorted(self.nodes)))]

    @rule()
    def look(self):
        before = {e: h.launch.node.node_id for e, h in self.ledger.hosts.items()}
        gone = set(before.values()) - self.nodes.keys()
        is_first = not self.ledger._has_looked
        lost = self.ledger.see_nodes(list(self.nodes.values()), self.now)
        assert {h.launch.epoch for h in lost} == {e for e, n in before.items() if n in gone}
        left = self.ledger_names - self.nodes.keys()
        recent = {name for name, at in self.lost_at.items() if self.now - at <= GONE_S}
        self.expected_losses += len(gone | left & recent)
        self.ledger_names = set(self.nodes)
        for name in self.nodes:
            self.joined.setdefault(name, self.now - SETTLED_S * is_first)

    @rule(seconds=st.sampled_from([0.5, SETTLED_S, 30.0, MAX_DELAY_S]))
    def wait(self, seconds):
        self.now += seconds

    @rule()
    def launch(self):
        known = set(self.ledger._places)
        for launch in self.ledger.due(self.now):
            name = launch.node.node_id
            assert name in known - self.refused
            assert self.now >= self.joined[name] + SETTLED_S
            assert self.now >= self.lost_at.get(name, -1e9) + FIRST_DELAY_S
            assert not self.epochs or launch.epoch > self.epochs[-1]
            self.epochs.append(launch.epoch)

    @precondition(lambda self: self.ledger.hosts)
    @rule(data=st.data())
    def lose(self, data):
        epoch = data.draw(st.sampled_from(sorted(self.ledger.hosts)))
        host = self.ledger.lose(epoch, self.now)
        self.lost_at[host.launch.node.node_id] = self.now

    @precondition(lambda self: self.ledger.hosts)
    @rule(data=st.data())
    def refuse(self, data):
        epoch = data.draw(st.sampled_from(sorted(self.ledger.hosts)))
        self.refused.add(self.ledger.refuse(epoch).launch.node.node_id)
        for other, host in list(self.ledger.hosts.items()):
            if host.launch.node.node_id in self.refused:
                self.ledger.refuse(other)

    @precondition(lambda self: self.ledger.hosts)
    @rule(data=st.data())
    def hear(self, data):
        epoch = data.draw(st.sampled_from(sorted(self.ledger.hosts)))
        self.ledger.heard(epoch, self.now)
        assert self.ledger.hosts[epoch].state is HostState.WORKING

    @rule()
    def settle(self):
        """If nothing happens any more, every seat for which there is room is filled."""
        self.look()
        self.wait(SETTLED_S + MAX_DELAY_S)
        self.launch()
        room = sum(self.ledger.room(name) for name in self.nodes if name not in self.refused)
        assert not (free_seats(self.ledger) and room)

    @invariant()
    def the_books_are_right(self):
        self.ledger.check_valid()
        assert self.ledger.nodes_lost == self.expected_losses


Ledger.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLedger = pytest.mark.filterwarnings("default")(Ledger.TestCase)
