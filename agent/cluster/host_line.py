"""HostLine: what the gateway knows of one host; Totals: what it counts over all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ritornello.agent.cluster.hosts import Launch
from ritornello.agent.cluster.wire import Delivery, HostReport, WireBlock
from ritornello.core.errors import TransportError
from ritornello.transport.weights import NO_VERSION


@dataclass
class HostLine:
    """The connection to one host."""

    launch: Launch
    host: Any  # what stands for it, for the engine
    next_number: int = 0  # of the block that comes next
    waiting: int = 0  # blocks that came and were not handed on
    take: Any = None  # the call that is out
    start: Any = None
    weights: Any = None
    sent_version: int = NO_VERSION  # of the weights that were sent last
    seen_version: int = NO_VERSION  # ... and that it has acknowledged
    weights_at: float = 0.0  # when weights were sent last
    weights_s: float = 0.0  # how long it took until it had them
    stale_since: float | None = None  # since when there are newer weights than it has
    asked_at: float = 0.0
    retry_at: float = 0.0
    has_begun: bool = False
    report: HostReport = field(default_factory=HostReport)

    @property
    def name(self) -> str:
        """For people."""
        return f"host {self.launch.epoch} on {self.launch.node.name}"

    @property
    def seats(self) -> int:
        """Number of its workers."""
        return len(self.launch.seats)

    def answered(self, call: Any) -> None:
        """Forget a call that was answered."""
        for name in ("start", "take", "weights"):
            if getattr(self, name) is call:
                setattr(self, name, None)

    def check_order(self, delivery: Any) -> None:
        """Check that an answer to `take` is of this host, and brings the blocks that come next.

        Raises:
          TransportError: it is not, or it does not.
        """
        if not isinstance(delivery, Delivery) or not isinstance(delivery.report, HostReport):
            raise TransportError(f"a host answered {type(delivery).__name__}, expected Delivery.")
        if delivery.epoch != self.launch.epoch:
            raise TransportError(
                f"{self.name} delivered for epoch {delivery.epoch}: an answer of another host."
            )
        for number, block in enumerate(delivery.blocks, self.next_number):
            if not isinstance(block, WireBlock) or block.number != number:
                got = getattr(block, "number", type(block).__name__)
                raise TransportError(
                    f"{self.name} delivered block {got}, expected {number}: answers were swapped "
                    "or lost."
                )
            if block.epoch != self.launch.epoch or block.worker_id not in self.launch.seats:
                raise TransportError(
                    f"{self.name} delivered a block of worker {block.worker_id}, epoch "
                    f"{block.epoch}; its workers are {self.launch.seats}."
                )


class Totals:
    """What is counted over all hosts, those that are gone included."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.restarts = 0
        self.hung = 0
        self.lost_unrolls = 0
        self.hosts_lost = 0
        self.bytes_in = 0
        self.messages = 0
        self.blocks_refused = 0
        self.weights_sent = 0  # calls: versions x hosts
        self.weights_bytes = 0

    def bury(self, report: HostReport) -> None:
        """Keep the numbers of a host that is gone."""
        self.restarts += report.restarts
        self.hung += report.hung
        self.lost_unrolls += report.lost_unrolls
