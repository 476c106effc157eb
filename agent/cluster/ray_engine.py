"""RayEngine: hosts as actors of a Ray cluster. The only file that imports Ray.

Ray is loaded when an engine is made, which happens in the gateway's process and nowhere else:
`ray.init` takes the signal handlers of its process, starts threads, and ends the process some time
after the head of the cluster has died.

Without an address a private Ray is started on this machine. It is never found by others (a token of
its own, no dashboard), never joins a cluster that runs here already, and ends with the gateway.

Blocks of unrolls travel in the answers of actor calls. Compressed they are small, so Ray sends them
along with the answer; its object store holds the newest weights and nothing else.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import secrets
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import util
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ritornello.agent.cluster.engine import EngineLost, HostError, HostGone, HostUnavailable, Node
from ritornello.agent.cluster.node_host import HostTask
from ritornello.agent.cluster.ray_folder import RayFolder
from ritornello.agent.cluster.token_check import lets_in_without_token
from ritornello.core.errors import ConfigError, first_line
from ritornello.core.project import IMPORT_ROOT, install_extra
from ritornello.core.watched_time import WatchedTime

log = logging.getLogger(__name__)

INSTALL = install_extra("ray")
LOOK_S = 2.0  # between two questions for the machines
HEAD_S = 20.0  # the head of a cluster that says nothing for so long is gone; Ray itself waits 60 s
GET_S = 30.0  # an answer that is there takes so long only where the network does not work
STOP_S = 8.0  # for hosts to end their workers
KNOCK_S = 10.0  # for the head of a cluster to take a connection
INIT_S = 300.0  # Ray comes up in a minute on a busy machine, and may wait for a dead head for ever
STORE_BYTES = 100_000_000  # of the object store: Ray's own default is 30 % of the memory
WEIGHTS_KEPT = 6  # versions that may be on their way at once


@dataclass(frozen=True)
class RaySettings:
    """How to get a Ray cluster. Plain and picklable."""

    address: str  # of a cluster, as host:port; empty: a private one on this machine
    worker_count: int
    weights_nbytes: int
    is_insecure: bool = False  # the cluster asks for no token
    paths: tuple[str, ...] = ()  # where Python looks for modules in the learner's process


def check_ray() -> None:
    """Raise ConfigError unless Ray is installed; does not load it."""
    if util.find_spec("ray") is None:
        raise ConfigError(
            "--multiprocessing_backend=ray needs Ray, which is not installed here: "
            f"{INSTALL}, or use --multiprocessing_backend=python_native."
        )


def python_paths() -> tuple[str, ...]:
    """Return where this process looks for modules, for workers on other machines."""
    return tuple(os.path.abspath(path) for path in sys.path)


def connect(settings: RaySettings) -> RayEngine:
    """Return an engine; call it in the process that is to be Ray's driver."""
    return RayEngine(settings)


class RayEngine:
    """An Engine on Ray; see agent/cluster/engine.py. One in a process, made by its main thread."""

    def __init__(self, settings: RaySettings) -> None:
        """Start a private Ray, or join a cluster.

        Args:
          settings: which of the two, and what for.

        Raises:
          EngineLost: there is none, or it does not let us in.
        """
        os.umask(0o077)  # Ray writes tokens and sockets
        self._settings = settings
        self._folder: RayFolder | None = None  # of a private Ray
        self._hosts: list[Any] = []
        self._closed = threading.Event()
        if settings.address:
            _set_up_to_join(settings)
        else:
            _set_up_to_start()
            self._folder = RayFolder()
        import ray

        self._ray: Any = ray
        has_begun = threading.Event()
        threading.Thread(
            target=_end_unless, args=(has_begun, settings.address), daemon=True
        ).start()
        try:
            ray.init(**self._arguments())
        except BaseException as error:
            self.close()
            raise EngineLost(_refusal(settings.address, error)) from error
        finally:
            has_begun.set()
        self._host_class = _host_class(ray)
        self._nodes: list[Node] = self._ask_for_nodes()
        self._watched = WatchedTime()
        self._nodes_at = self._watched()
        self._watch_failure = ""
        threading.Thread(target=self._watch, name="nodes", daemon=True).start()

    def _arguments(self) -> dict[str, Any]:
        common = {
            "namespace": f"vtrace-{secrets.token_hex(8)}",
            "log_to_driver": False,
            "configure_logging": False,
            "logging_level": logging.ERROR,
        }
        if self._folder is None:
            return {**common, "address": self._settings.address}
        store = max(STORE_BYTES, WEIGHTS_KEPT * self._settings.weights_nbytes)
        return {
            **common,
            # Spelled out: without it, Ray joins whichever cluster runs on this machine.
            "address": "local",
            "include_dashboard": False,
            "num_cpus": max(1, self._settings.worker_count),
            "num_gpus": 0,
            "object_store_memory": store,
            "_temp_dir": self._folder.path,
        }

    # --- machines --------------------------------------------------------------------------------

    def nodes(self) -> list[Node]:
        """Return the machines that were alive a moment ago."""
        silent_s = self._watched() - self._nodes_at
        if silent_s > HEAD_S:
            raise EngineLost(
                f"the head of the Ray cluster{_at(self._settings.address)} has not answered for "
                f"{silent_s:.0f} s. {self._watch_failure}".strip()
            )
        return self._nodes

    def _watch(self) -> None:
        """Ask for the machines again and again, in a thread: a head that is gone hangs callers."""
        while not self._closed.wait(LOOK_S):
            try:
                self._nodes = self._ask_for_nodes()
                self._nodes_at = self._watched()
            except Exception as error:
                self._watch_failure = f"Ray says: {first_line(error)}"

    def _ask_for_nodes(self) -> list[Node]:
        found = []
        for node in self._ray.nodes():
            if node["Alive"]:
                cpus = int(node["Resources"].get("CPU", 0))
                limit = cpus if self._settings.address else self._settings.worker_count
                found.append(Node(node["NodeID"], node["NodeManagerAddress"], limit))
        return found

    # --- hosts -----------------------------------------------------------------------------------

    def launch(self, node: Node, task: HostTask) -> Any:
        """Begin to make an actor on a machine."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        options = {
            "num_cpus": len(task.workers) if self._settings.address else 0,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node.node_id, soft=False),
            "max_restarts": 0,  # the ledger decides
            "max_task_retries": 0,
            "name": f"vtrace-host-{task.epoch}",
            # The history of some ten calls in a second would only fill the head's memory.
            "enable_task_events": False,
        }
        actor = self._host_class.options(**options).remote(
            str(IMPORT_ROOT), self._settings.paths, pickle.dumps(task)
        )
        self._hosts.append(actor)
        return actor

    def call(self, host: Any, method: str, *arguments: Any) -> Any:
        """Call a method of an actor."""
        return getattr(host, method).remote(*arguments)

    def wait(self, calls: Sequence[Any], timeout_s: float) -> list[Any]:
        """Return the calls that have an answer, or whose actor is gone."""
        if not calls:
            self._closed.wait(timeout_s)
            return []
        ready, others = self._ray.wait(list(calls), num_returns=1, timeout=timeout_s)
        if ready and others:
            more, _ = self._ray.wait(others, num_returns=len(others), timeout=0)
            ready += more
        return list(ready)

    def result(self, call: Any) -> Any:
        """Return an answer that is there."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(call, timeout=GET_S)
        except errors.RayTaskError as error:
            raise HostError(str(error)) from error
        except (errors.ActorUnavailableError, errors.GetTimeoutError) as error:
            raise HostUnavailable(first_line(error)) from error
        except errors.RayError as error:
            if getattr(error, "actor_init_failed", False):
                raise HostError(str(error)) from error
            raise HostGone(first_line(error)) from error

    def share(self, weights: NDArray[np.uint8]) -> Any:
        """Put weights into the object store once, for all hosts."""
        return self._ray.put(np.array(weights, np.uint8))

    def end(self, host: Any) -> None:
        """Kill an actor. Its workers follow it (core/process_death.py)."""
        self._hosts = [other for other in self._hosts if other is not host]
        with contextlib.suppress(Exception):  # it is gone, or the cluster is
            self._ray.kill(host, no_restart=True)

    def close(self) -> None:
        """Ask all hosts to end, then leave; a private Ray ends with all of its processes."""
        if self._closed.is_set():
            return
        self._closed.set()
        with contextlib.suppress(Exception):  # whatever is wrong there: we are leaving
            asked = [host.stop.remote() for host in self._hosts]
            if asked:
                self._ray.wait(asked, num_returns=len(asked), timeout=STOP_S)
        with contextlib.suppress(Exception):
            self._ray.shutdown()
        if self._folder is not None:
            self._folder.remove()


def _end_unless(has_begun: threading.Event, address: str) -> None:
    """End this process if Ray does not come up; it waits in C, where no exception reaches it."""
    if not has_begun.wait(INIT_S):
        log.error("%s", _refusal(address, TimeoutError(f"no answer within {INIT_S:.0f} s.")))
        os._exit(1)


def _set_up_to_start() -> None:
    """Make a private Ray private."""
    for name in ("RAY_ADDRESS", "RAY_AUTH_TOKEN_PATH", "RAY_NAMESPACE"):
        os.environ.pop(name, None)
    os.environ.update(
        {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",  # workers have their own
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        }
    )


def _set_up_to_join(settings: RaySettings) -> None:
    """Let Ray identify itself to the cluster, unless the user has said that it need not.

    Raises:
      EngineLost: nobody is there, or everybody is let in.
    """
    host, _, port = settings.address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), KNOCK_S).close()
    except (OSError, ValueError) as error:
        raise EngineLost(_refusal(settings.address, error)) from error
    if not settings.is_insecure and lets_in_without_token(settings.address):
        raise EngineLost(
            f"the Ray cluster{_at(settings.address)} asks for no token: everybody who reaches its "
            "ports can run programs on its machines. Start it with RAY_AUTH_MODE=token "
            "(docs/cluster.md), or give --ray_insecure=True."
        )
    os.environ["RAY_AUTH_MODE"] = "disabled" if settings.is_insecure else "token"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


def _host_class(ray: Any) -> Any:
    """Return the actor's class.

    It is made in a function so that Ray sends its code along: on another machine the program is
    found by its path, after this code has begun to run there.
    """

    def _leave_after(raylet: int) -> None:
        never = threading.Event()
        while os.getppid() == raylet:
            never.wait(LOOK_S)
        never.wait(LOOK_S)
        os._exit(1)  # its workers see that, and leave

    class Host:
        """NodeHost as an actor; `take` has a thread of its own, all other methods share one."""

        def __init__(self, root: str, paths: tuple[str, ...], task: bytes) -> None:
            self._refusal, self._host = "", None
            # Without its head a cluster falls apart, and Ray leaves actors of it behind.
            threading.Thread(target=_leave_after, args=(os.getppid(),), daemon=True).start()
            # Workers are spawned from here, and must not begin with this process's main program.
            vars(sys.modules["__main__"]).pop("__file__", None)
            sys.path[:0] = [path for path in (root, *paths) if path not in sys.path]
            try:
                from ritornello.agent.cluster.node_host import NodeHost
                from ritornello.core.process_settings import environment_to_restart_with

                # `ray start` knows nothing of them, and workers are to have them from their start.
                os.environ.update(environment_to_restart_with() or {})
                self._host = NodeHost(pickle.loads(task))
            except Exception as error:
                self._refusal = (
                    f"it cannot make workers of the program in {root}, which must be the same on "
                    f"every machine: {error!r}"
                )

        @ray.method(concurrency_group="control")
        def start(self) -> str:
            return self._refusal if self._host is None else self._host.start()

        @ray.method(concurrency_group="control")
        def set_weights(self, version: int, block: Any) -> int:
            assert self._host is not None
            return self._host.set_weights(version, block)

        @ray.method(concurrency_group="data")
        def take(self, acknowledged: int, max_blocks: int, timeout_s: float) -> Any:
            assert self._host is not None
            return self._host.take(acknowledged, max_blocks, timeout_s)

        @ray.method(concurrency_group="control")
        def stop(self) -> None:
            if self._host is not None:
                self._host.stop()

    return ray.remote(concurrency_groups={"data": 1, "control": 1})(Host)


def _refusal(address: str, error: BaseException) -> str:
    """Say in one sentence why there is no cluster."""
    words = first_line(error)
    if not address:
        return f"a private Ray could not be started on this machine: {words}"
    text = f"the Ray cluster{_at(address)} cannot be joined: {words}"
    if "ersion mismatch" in str(error):
        details = " ".join(line.strip() for line in str(error).splitlines()[1:] if line.strip())
        return f"{text} {details} Use the same Ray and the same Python on every machine."
    if "oken" in str(error) or "uthenticat" in str(error):
        return (
            f"{text} This machine needs the token of the cluster (RAY_AUTH_TOKEN, or "
            "~/.ray/auth_token); a cluster without a token needs --ray_insecure=True."
        )
    return (
        f"{text} Either it does not run, or it does not run on this machine too (`ray start "
        "--address=<host:port>`), or it has another token than this machine (docs/cluster.md)."
    )


def _at(address: str) -> str:
    return f" at {address}" if address else " on this machine"
