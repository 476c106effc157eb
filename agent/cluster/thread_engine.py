"""ThreadEngine: hosts as threads of this process, on machines that are only names.

With it, everything but Ray can be tested and measured without Ray. Machines can be added, killed,
frozen and thawed, and a frozen one behaves as a real one does: it says nothing, and when it thaws
it delivers what it had been asked for, to whoever still listens.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ritornello.agent.cluster.engine import DATA_CALLS, EngineLost, HostError, HostGone, Node
from ritornello.agent.cluster.node_host import HostTask, NodeHost

THAW_S = 3600.0  # longer than any test

MakeHost = Callable[[HostTask], NodeHost]


@dataclass
class _Machine:
    node: Node
    runs: threading.Event = field(default_factory=threading.Event)  # it is not frozen
    is_alive: bool = True
    hosts: list[_Host] = field(default_factory=list)


class _Host:
    """A host and the two threads that execute its calls, each in their order."""

    def __init__(self, machine: _Machine, task: HostTask, make_host: MakeHost) -> None:
        self.machine = machine
        self.is_alive = True
        self.host: NodeHost | None = None
        self._task, self._make_host = task, make_host
        self._made = threading.Lock()
        self._data, self._control = ThreadPoolExecutor(1), ThreadPoolExecutor(1)

    def submit(self, method: str, arguments: tuple[Any, ...]) -> Future[Any]:
        executor = self._data if method in DATA_CALLS else self._control
        return executor.submit(self._execute, method, arguments)

    def _execute(self, method: str, arguments: tuple[Any, ...]) -> Any:
        self.machine.runs.wait(THAW_S)
        self._check()
        with self._made:
            if self.host is None:
                self.host = self._make_host(self._task)
        answer = getattr(self.host, method)(*arguments)
        self.machine.runs.wait(THAW_S)
        self._check()
        return answer

    def _check(self) -> None:
        if not (self.is_alive and self.machine.is_alive):
            raise HostGone(f"the host on {self.machine.node.name} was ended.")

    def end(self) -> None:
        """A machine that is frozen hears of it when it thaws, as with a signal."""
        self._control.submit(self._end)

    def _end(self) -> None:
        if self.machine.is_alive:
            self.machine.runs.wait(THAW_S)
        self.is_alive = False
        if self.host is not None:
            self.host.stop()

    def close(self) -> None:
        self.machine.runs.set()
        self.end()
        for executor in (self._data, self._control):
            executor.shutdown(wait=True)


class ThreadEngine:
    """An Engine without a cluster; see agent/cluster/engine.py."""

    def __init__(self, nodes: Sequence[Node], make_host: MakeHost = NodeHost) -> None:
        """Know some machines.

        Args:
          nodes: the machines at the beginning.
          make_host: makes the host of a task; another one than NodeHost in tests.
        """
        self._make_host = make_host
        self._machines: dict[str, _Machine] = {}
        self._hosts: list[_Host] = []  # all that were ever launched
        self._lock = threading.Lock()
        self.lost = ""  # why the whole cluster is gone
        self.shared = 0  # how often weights were put
        for node in nodes:
            self.add(node)

    # --- what happens to machines ----------------------------------------------------------------

    def add(self, node: Node) -> None:
        """Let a machine join."""
        machine = _Machine(node)
        machine.runs.set()
        with self._lock:
            self._machines[node.node_id] = machine

    def kill(self, node_id: str, *, shows: bool = True) -> None:
        """End a machine with all that runs on it.

        Args:
          node_id: which one.
          shows: False: its hosts are gone, but it still counts as alive for now.
        """
        with self._lock:
            machine = self._machines[node_id] if not shows else self._machines.pop(node_id)
        if shows:
            machine.is_alive = False
        machine.runs.set()
        for host in machine.hosts:
            host.is_alive = False
            host.end()
        machine.hosts = []

    def freeze(self, node_id: str) -> None:
        """Stop a machine: nothing on it answers, and nobody is told."""
        self._machines[node_id].runs.clear()

    def thaw(self, node_id: str) -> None:
        """Let it go on where it stood."""
        self._machines[node_id].runs.set()

    # --- Engine ----------------------------------------------------------------------------------

    def nodes(self) -> list[Node]:
        """Return the machines that are alive; a frozen one is."""
        if self.lost:
            raise EngineLost(self.lost)
        with self._lock:
            return [machine.node for machine in self._machines.values()]

    def launch(self, node: Node, task: HostTask) -> _Host:
        """Return a host that is made at its first call."""
        with self._lock:
            machine = self._machines.get(node.node_id) or _Machine(node, is_alive=False)
        host = _Host(machine, task, self._make_host)
        machine.hosts.append(host)
        self._hosts.append(host)
        return host

    def call(self, host: _Host, method: str, *arguments: Any) -> Future[Any]:
        """Call a method of a host in a thread of its kind."""
        return host.submit(method, arguments)

    def wait(self, calls: Sequence[Future[Any]], timeout_s: float) -> list[Future[Any]]:
        """Return the calls that have an answer."""
        done = wait(calls, timeout_s, FIRST_COMPLETED).done
        return [call for call in calls if call in done]

    def result(self, call: Future[Any]) -> Any:
        """Return an answer that is there."""
        try:
            return call.result(timeout=0.0)
        except HostGone:
            raise
        except Exception as error:
            raise HostError(repr(error)) from error

    def share(self, weights: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return a copy."""
        self.shared += 1
        return np.array(weights, np.uint8)

    def end(self, host: _Host) -> None:
        """End a host."""
        host.end()

    def close(self) -> None:
        """End all hosts."""
        for host in self._hosts:
            with contextlib.suppress(RuntimeError):  # it was closed before
                host.close()
