"""RayCluster: workers as actors of a Ray cluster. The only file that imports Ray.

Ray is loaded when a `RayCluster` is made, which happens in the gateway's process (and in one that
counts the cluster's CPUs), never in the learner's.

Without an address a private Ray is started on this machine. It is never found by others (a token of
its own, no dashboard), never joins a cluster that runs here already, and ends with the gateway.
Ray places each worker on a machine with a free CPU, tells whether it lives, and carries weights to
each machine once and blocks of unrolls back.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from importlib import util
from multiprocessing import get_context
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from ritornello.agent.acting.config import WorkerConfig
from ritornello.agent.cluster.dispatcher import ClusterLost, WorkerFailed, WorkerLost
from ritornello.core.errors import ConfigError, first_line
from ritornello.core.process_death import ignore_interrupts
from ritornello.core.process_settings import SETTINGS
from ritornello.core.project import IMPORT_ROOT, install_extra

log = logging.getLogger(__name__)

GET_S = 30.0  # a result that is there takes so long only where the network does not work
STOP_S = 8.0  # for workers to close their environments
CONNECT_S = 10.0  # for the head of a cluster to take a connection
INIT_S = 300.0  # Ray comes up in a minute on a busy machine, and may wait for a dead head for ever
PROBE_S = 120.0  # loading Ray takes two seconds, and a minute on a busy machine
LOOK_S = 2.0  # between two looks of an actor at its raylet
STORE_BYTES = 100_000_000  # of the object store: Ray's own default is 30 % of the memory
WEIGHTS_KEPT = 6  # versions that may be on their way at once
MAX_WORKERS = 1_024  # the largest --worker_count
TOKEN_PROBE = """
import sys
from ray._raylet import GcsClient
GcsClient(address=sys.argv[1]).internal_kv_keys(b"", None, 20)
"""


@dataclass(frozen=True)
class RaySettings:
    """How to connect to a Ray cluster. Plain and picklable."""

    address: str  # address of a cluster, as host:port; empty: a private one on this machine
    worker_count: int
    weights_nbytes: int
    is_insecure: bool = False  # the cluster asks for no token
    paths: tuple[str, ...] = ()  # where Python looks for modules in the learner's process


def check_ray() -> None:
    """Raise ConfigError unless Ray is installed; does not load it."""
    if util.find_spec("ray") is None:
        raise ConfigError(
            "--multiprocessing_backend=ray needs Ray, which is not installed here: "
            f"{install_extra('ray')}, or use --multiprocessing_backend=python_native."
        )


def python_paths() -> tuple[str, ...]:
    """Return where this process looks for modules, for workers on other machines."""
    return tuple(os.path.abspath(path) for path in sys.path)


class RayCluster:
    """Workers as actors of Ray. Made by the main thread of its process, and used by one thread."""

    def __init__(self, settings: RaySettings) -> None:
        """Start a private Ray, or join a cluster.

        Raises:
          ClusterLost: if there is no cluster, or it refuses this program.
        """
        os.umask(0o077)  # Ray writes tokens and sockets
        self._settings = settings
        self._actors: list[Any] = []
        self._is_closed = False
        self._folder = ""  # of a private Ray
        if settings.address:
            _prepare_to_join(settings)
        else:
            _prepare_to_start()
        import ray

        if not settings.address:  # not before: meanwhile SIGTERM ends the process at once
            self._folder = tempfile.mkdtemp(prefix="vtray-")  # short, because of its sockets
        self._ray: Any = ray
        has_begun = threading.Event()
        threading.Thread(target=_end_unless, args=(has_begun, settings), daemon=True).start()
        try:
            ray.init(**self._arguments())
        except BaseException as error:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it leaves
            self.close()
            if isinstance(error, SystemExit):  # Ray's answer to SIGTERM
                os._exit(1)  # without what it does at exit, where it may abort now
            raise ClusterLost(_refusal(settings.address, error)) from error
        finally:
            has_begun.set()
        self._actor_class = _actor_class(ray)

    def _arguments(self) -> dict[str, Any]:
        common = {
            "namespace": f"vtrace-{secrets.token_hex(8)}",
            "log_to_driver": False,
            "configure_logging": False,
            "logging_level": logging.ERROR,
        }
        if self._settings.address:
            return {**common, "address": self._settings.address}
        return {
            **common,
            # Spelled out: without it, Ray joins whichever cluster runs on this machine.
            "address": "local",
            "include_dashboard": False,
            "num_cpus": self._settings.worker_count,
            "num_gpus": 0,
            "object_store_memory": max(STORE_BYTES, WEIGHTS_KEPT * self._settings.weights_nbytes),
            "_temp_dir": os.path.join(self._folder, "ray"),
        }

    def cpu_count(self) -> int:
        """Return how many CPUs all machines of the cluster have."""
        return int(self._ray.cluster_resources().get("CPU", 0))

    def start(self, config: WorkerConfig) -> Any:
        """Begin to place a worker and return its actor."""
        options = {
            "num_cpus": 1,
            "max_restarts": 0,  # a new actor plays new games
            "runtime_env": {"env_vars": SETTINGS},
            # The history of some ten calls in a second would only fill the head's memory.
            "enable_task_events": False,
        }
        actor = self._actor_class.options(**options).remote(
            str(IMPORT_ROOT), self._settings.paths, pickle.dumps(config),
            self._settings.weights_nbytes,
        )  # fmt: skip
        self._actors.append(actor)
        return actor

    def call(self, actor: Any, method: str, *arguments: Any) -> Any:
        """Call a method of an actor."""
        return getattr(actor, method).remote(*arguments)

    def wait(self, calls: Sequence[Any], timeout_s: float) -> set[Any]:
        """Return the calls that have a result, or whose actor is gone."""
        if not calls:
            threading.Event().wait(timeout_s)
            return set()
        ready, others = self._ray.wait(list(calls), num_returns=1, timeout=timeout_s)
        if ready and others:
            more, _ = self._ray.wait(others, num_returns=len(others), timeout=0)
            ready += more
        return set(ready)

    def result(self, call: Any) -> Any:
        """Return the result of a call that has one.

        Raises:
          WorkerLost: if the worker's machine is gone, or could not be reached.
          WorkerFailed: if the worker raised an exception, or has ended.
        """
        errors = self._ray.exceptions
        try:
            return self._ray.get(call, timeout=GET_S)
        except errors.RayTaskError as error:
            raise WorkerFailed(str(error)) from error
        except (errors.ActorUnavailableError, errors.GetTimeoutError) as error:
            raise WorkerLost(first_line(error)) from error
        except errors.RayError as error:
            if getattr(error, "actor_init_failed", False):
                raise WorkerFailed(str(error)) from error
            kind = WorkerLost if "node has died" in str(error) else WorkerFailed
            raise kind(" ".join(str(error).split())[:600]) from error

    def share(self, weights: NDArray[np.uint8]) -> Any:
        """Put weights into the object store once, for all workers."""
        return self._ray.put(np.array(weights, np.uint8))

    def kill(self, actor: Any) -> None:
        """Kill an actor."""
        self._actors = [other for other in self._actors if other is not actor]
        with contextlib.suppress(Exception):  # it is gone, or the cluster is
            self._ray.kill(actor, no_restart=True)

    def close(self) -> None:
        """Ask all workers to end, then leave; a private Ray ends with all of its processes."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(Exception):  # whatever is wrong there: we are leaving
            asked = [actor.close.remote() for actor in self._actors]
            if asked:
                self._ray.wait(asked, num_returns=len(asked), timeout=STOP_S)
        with contextlib.suppress(Exception):
            self._ray.shutdown()
        if self._folder:
            for child in psutil.Process().children(recursive=True):  # of a Ray that was coming up
                with contextlib.suppress(psutil.Error):
                    child.kill()
            shutil.rmtree(self._folder, ignore_errors=True)


def _actor_class(ray: Any) -> Any:
    """Return the actor's class.

    The class is made in a function so that Ray sends its code along: on another machine the program
    is found by its path only after this code has begun to run there.
    """

    def _leave_after(raylet: int) -> None:
        never = threading.Event()
        while os.getppid() == raylet:
            never.wait(LOOK_S)
        os._exit(1)

    class Worker:
        """RemoteWorker as an actor."""

        def __init__(
            self, root: str, paths: tuple[str, ...], config: bytes, weights_nbytes: int
        ) -> None:
            # Without its head a cluster falls apart, and Ray leaves actors of it behind.
            threading.Thread(target=_leave_after, args=(os.getppid(),), daemon=True).start()
            # Environments may spawn processes, which must not begin with this main program.
            vars(sys.modules["__main__"]).pop("__file__", None)
            sys.path[:0] = [path for path in (root, *paths) if path not in sys.path]
            try:
                from ritornello.agent.cluster.remote_worker import RemoteWorker

                self._worker = RemoteWorker(pickle.loads(config), weights_nbytes)
            except Exception as error:
                raise RuntimeError(
                    f"this machine cannot run the program in {root}, which must be the same on "
                    f"every machine: {error!r}"
                ) from error

        def greet(self) -> Any:
            return self._worker.greet()

        def collect(self, version: int, weights: Any) -> Any:
            return self._worker.collect(version, weights)

        def close(self) -> None:
            self._worker.close()

    return ray.remote(Worker)


def _end_unless(has_begun: threading.Event, settings: RaySettings) -> None:
    """End this process if Ray does not come up; it waits in C, where no exception reaches it."""
    if not has_begun.wait(INIT_S):
        error = TimeoutError(f"no answer within {INIT_S:.0f} s.")
        log.error("%s", _refusal(settings.address, error))
        os._exit(1)


def _prepare_to_start() -> None:
    """Set the environment variables that make a Ray private."""
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


def _prepare_to_join(settings: RaySettings) -> None:
    """Let Ray identify itself to the cluster, unless the user has said that it need not.

    Raises:
      ClusterLost: if nobody answers there, or the cluster lets everybody in.
    """
    host, _, port = settings.address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except (OSError, ValueError) as error:
        raise ClusterLost(_refusal(settings.address, error)) from error
    if not settings.is_insecure and _lets_in_without_token(settings.address):
        raise ClusterLost(
            f"the Ray cluster at {settings.address} asks for no token: everybody who reaches its "
            "ports can run programs on its machines. Start it with RAY_AUTH_MODE=token "
            "(docs/cluster.md), or give --ray_address=insecure:<host>:<port>."
        )
    os.environ["RAY_AUTH_MODE"] = "disabled" if settings.is_insecure else "token"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


def _lets_in_without_token(address: str) -> bool:
    """Whether the head of a cluster answers a client without a token, asked in another process."""
    tokens = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    environment = {name: value for name, value in os.environ.items() if name not in tokens}
    try:
        done = subprocess.run(
            [sys.executable, "-c", TOKEN_PROBE, address], timeout=PROBE_S,
            env={**environment, "RAY_AUTH_MODE": "disabled"},
            stdin=subprocess.DEVNULL, capture_output=True, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    if done.returncode and b"AuthenticationError" not in done.stderr:
        log.warning(
            "whether the Ray cluster at %s asks for a token could not be found out: make sure that "
            "it does, since whoever reaches an open one can run anything there", address,
        )  # fmt: skip
    return done.returncode == 0


def _refusal(address: str, error: BaseException) -> str:
    """Return a paragraph on why there is no cluster."""
    words = first_line(error)
    if not address:
        return f"a private Ray could not be started on this machine: {words}"
    text = f"the Ray cluster at {address} cannot be joined: {words}."
    if "ersion mismatch" in str(error):
        details = " ".join(line.strip() for line in str(error).splitlines()[1:] if line.strip())
        return f"{text} {details} Use the same Ray and the same Python on every machine."
    return (
        f"{text} Either it does not run; or not on this machine too (`ray start "
        "--address=<host:port>`); or it has another token than this machine, in RAY_AUTH_TOKEN, in "
        "the file at RAY_AUTH_TOKEN_PATH or in ~/.ray/auth_token, of which the first that is given "
        "counts; or it asks for none (`insecure:<host>:<port>`), or for one in spite of that word."
    )


def workers_that_fit(address: str, *, is_insecure: bool) -> int:
    """Return for how many workers the machines of a Ray cluster have CPUs, asked before a run.

    Raises:
      ConfigError: if the cluster cannot be joined, or has room for none.
    """
    executor = ProcessPoolExecutor(1, get_context("spawn"), ignore_interrupts)
    try:
        count = executor.submit(_count_cpus, RaySettings(address, 1, 0, is_insecure)).result()
    except (ClusterLost, BrokenProcessPool) as error:
        raise ConfigError(
            "without --worker_count the cluster is asked how many workers fit: "
            f"{first_line(error, 1000)}. Give --worker_count=N to begin without asking."
        ) from error
    finally:
        executor.shutdown(wait=False)
    if not 1 <= count <= MAX_WORKERS:
        raise ConfigError(
            f"the Ray cluster at {address} has {count} CPUs (`ray start --num-cpus=N`), and a run "
            f"1 to {MAX_WORKERS} workers: give --worker_count. Workers without room wait for "
            "machines that join."
        )
    return count


def _count_cpus(settings: RaySettings) -> int:
    cluster = RayCluster(settings)
    try:
        return cluster.cpu_count()
    finally:
        cluster.close()
