"""HostLedger: which machine has which workers, who is alive, and when a host is launched again.

Pure bookkeeping: it starts nothing and reads no clock, so every rule can be tested by itself.

* Each worker has a *seat* (its number), and each seat is in at most one host that lives.
* A launch of a host is an *epoch*. Epochs are never used twice, so whatever arrives from a host
  that was given up (a machine that was frozen and has thawed) is recognised and refused.
* A machine that joins is used when it has been there for some seconds. The machine of a host that
  was lost is left alone for longer, because a machine that is dying shows as alive for a moment.
* The loss of a machine is nobody's fault: it is counted, and its seats move to others as soon as
  there is room. A host that fails by itself counts as a failure (agent/pools/restarts.py); one that
  ended because nobody asked it for anything does not.

Next to read: agent/cluster/conductor.py, which acts on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from ritornello.agent.cluster.engine import Node

SETTLED_S = 5.0  # a machine that joins is used after this
FIRST_DELAY_S = 5.0  # a machine whose host was lost; twice as long each time, up to
MAX_DELAY_S = 60.0
FORGIVEN_S = 600.0  # after so long without a loss the first delay counts again
SILENT_S = 15.0  # no answer for so long: reported
GONE_S = 60.0  # ... and given up
STARTING_S = 600.0  # importing torch on a busy machine takes minutes


class HostState(Enum):
    """Where a host is in its life."""

    STARTING = "starting"
    WORKING = "working"
    SILENT = "silent"


@dataclass(frozen=True)
class Launch:
    """A host that is to be launched now."""

    epoch: int
    node: Node
    seats: tuple[int, ...]


@dataclass
class HostEntry:
    """A host that lives, as far as is known."""

    launch: Launch
    heard_at: float  # when it last answered, or was launched
    state: HostState = HostState.STARTING


@dataclass
class _Place:
    """A machine, with what is remembered of it as long as it is there."""

    node: Node
    usable_at: float
    losses: int = 0  # hosts lost here, one after the other
    lost_at: float = -math.inf
    refused: bool = False  # it has another program: never used


class HostLedger:
    """The books of all hosts of a run. Used by one thread."""

    def __init__(self, worker_count: int) -> None:
        """No machine is known yet.

        Args:
          worker_count: number of seats.
        """
        self.worker_count = worker_count
        self.hosts: dict[int, HostEntry] = {}  # by epoch
        self.nodes_lost = 0  # machines that went away with a host on them
        self._free = list(range(worker_count))
        self._places: dict[str, _Place] = {}
        self._next_epoch = 0
        self._has_looked = False

    # --- machines --------------------------------------------------------------------------------

    def see_nodes(self, nodes: Sequence[Node], now: float) -> list[HostEntry]:
        """Take note of the machines that are alive; return the hosts that were lost with others.

        Args:
          nodes: all that are alive.
          now: a clock that only goes forward, in seconds.
        """
        alive = {node.node_id: node for node in nodes}
        for node_id, node in alive.items():
            if node_id not in self._places:
                # Those that are there at the beginning have been there for some time.
                self._places[node_id] = _Place(node, now + SETTLED_S * self._has_looked)
        self._has_looked = True
        lost = []
        for node_id in [known for known in self._places if known not in alive]:
            place = self._places.pop(node_id)
            here = [e for e, h in self.hosts.items() if h.launch.node.node_id == node_id]
            # The end of a host may show before that of its machine.
            self.nodes_lost += bool(here) or now - place.lost_at <= GONE_S
            lost += [self._remove(epoch) for epoch in here]
        return lost

    @property
    def node_count(self) -> int:
        """Number of machines that are alive and not refused."""
        return sum(not place.refused for place in self._places.values())

    @property
    def can_have_workers(self) -> bool:
        """Whether any machine that is not refused has room for workers, taken or not."""
        places = self._places.values()
        return any(not place.refused and place.node.worker_limit > 0 for place in places)

    def room(self, node_id: str) -> int:
        """Return how many more workers fit on a machine."""
        taken = sum(
            len(host.launch.seats)
            for host in self.hosts.values()
            if host.launch.node.node_id == node_id
        )
        return max(0, self._places[node_id].node.worker_limit - taken)

    def due(self, now: float) -> list[Launch]:
        """Return the hosts that are to be launched now; they count as launched."""
        launches = []
        for node_id, place in self._places.items():
            count = min(self.room(node_id), len(self._free))
            if place.refused or now < place.usable_at or not count:
                continue
            seats, self._free = tuple(self._free[:count]), self._free[count:]
            launch = Launch(self._next_epoch, place.node, seats)
            self._next_epoch += 1
            self.hosts[launch.epoch] = HostEntry(launch, now)
            launches.append(launch)
        return launches

    # --- hosts -----------------------------------------------------------------------------------

    def heard(self, epoch: int, now: float) -> bool:
        """A host has answered; return whether it had been silent before."""
        host = self.hosts[epoch]
        was_silent = host.state is HostState.SILENT
        host.heard_at, host.state = now, HostState.WORKING
        return was_silent

    def newly_silent(self, now: float) -> list[HostEntry]:
        """Return the hosts that have not answered for so long that the user should know, once."""
        found = [
            host
            for host in self.hosts.values()
            if host.state is HostState.WORKING and now - host.heard_at >= SILENT_S
        ]
        for host in found:
            host.state = HostState.SILENT
        return found

    def overdue(self, now: float) -> list[HostEntry]:
        """Return the hosts that have not answered for so long that they are given up."""
        limits = {HostState.STARTING: STARTING_S, HostState.SILENT: GONE_S}
        return [
            host
            for host in self.hosts.values()
            if host.state in limits and now - host.heard_at >= limits[host.state]
        ]

    def lose(self, epoch: int, now: float, delay_s: float = 0.0) -> HostEntry:
        """A host is gone, or was given up; its machine is left alone for a while.

        Args:
          epoch: of the host.
          now: a clock that only goes forward, in seconds.
          delay_s: for at least how long nothing is launched on its machine.
        """
        host = self._remove(epoch)
        place = self._places[host.launch.node.node_id]
        if now - place.lost_at >= FORGIVEN_S:
            place.losses = 0
        wait_s = min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** min(place.losses, 30))
        place.losses, place.lost_at = place.losses + 1, now
        place.usable_at = now + max(wait_s, delay_s)
        return host

    def refuse(self, epoch: int) -> HostEntry:
        """The machine of a host cannot take part: nothing is launched there any more."""
        host = self._remove(epoch)
        self._places[host.launch.node.node_id].refused = True
        return host

    def _remove(self, epoch: int) -> HostEntry:
        host = self.hosts.pop(epoch)
        self._free = sorted([*self._free, *host.launch.seats])
        return host

    def check_valid(self) -> None:
        """Raise AssertionError unless each seat is in one place and no machine has too many."""
        seats = [seat for host in self.hosts.values() for seat in host.launch.seats]
        assert sorted([*self._free, *seats]) == list(range(self.worker_count))
        for epoch, host in self.hosts.items():
            assert epoch == host.launch.epoch < self._next_epoch
            assert host.launch.node.node_id in self._places
            assert not self._places[host.launch.node.node_id].refused
        for node_id, place in self._places.items():
            here = [h for h in self.hosts.values() if h.launch.node.node_id == node_id]
            assert sum(len(host.launch.seats) for host in here) <= place.node.worker_limit
