"""Engine: what the gateway asks of whatever runs its hosts on other machines.

`RayEngine` (agent/cluster/ray_engine.py) has them as actors of a Ray cluster. `ThreadEngine`
(agent/cluster/thread_engine.py) has them as threads of this process, without Ray.

A host executes the calls of a kind (`take`; everything else) one after the other, in the order in
which they were made. Calls of different kinds do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ritornello.agent.cluster.node_host import HostTask
from ritornello.core.errors import PlatformError

DATA_CALLS = ("take",)  # of NodeHost; all others must not wait for them


class HostGone(PlatformError):
    """The host will never answer again: its process or its machine is gone."""


class HostUnavailable(PlatformError):
    """The host does not answer now. It may live: ask again."""


class HostError(PlatformError):
    """The host lives and answered with an exception; carries its traceback."""


class EngineLost(PlatformError):
    """The cluster itself is gone, or does not let this program in."""


@dataclass(frozen=True)
class Node:
    """A machine of the cluster that is alive."""

    node_id: str
    name: str  # for people, such as its address
    worker_limit: int  # how many workers fit


class Engine(Protocol):
    """Runs hosts. Used by one thread; no method waits longer than some seconds, but for `wait`."""

    def nodes(self) -> list[Node]:
        """Return the machines that are alive.

        Raises:
          EngineLost: if the cluster does not say it any more.
        """

    def launch(self, node: Node, task: HostTask) -> Any:
        """Begin to make a host on a machine and return what stands for it.

        Whether that succeeds shows in the answer to its first call.
        """

    def call(self, host: Any, method: str, *arguments: Any) -> Any:
        """Call a method of a host and return what stands for the answer; waits for nothing."""

    def wait(self, calls: Sequence[Any], timeout_s: float) -> list[Any]:
        """Return the calls that have an answer, waiting at most `timeout_s` for the first."""

    def result(self, call: Any) -> Any:
        """Return an answer that is there.

        Raises:
          HostGone: the host has ended.
          HostUnavailable: it is not known whether the host has ended.
          HostError: the host has raised an exception.
        """

    def share(self, weights: NDArray[np.uint8]) -> Any:
        """Return what stands for a copy of these bytes as an argument of calls to many hosts."""

    def end(self, host: Any) -> None:
        """End a host and its workers, now; it may be gone already. Waits for nothing."""

    def close(self) -> None:
        """End all hosts, and leave the cluster. May be called twice."""
