"""How many workers fit on the machines of a cluster, asked before a run begins.

A process of its own asks, because Ray must not be loaded in the learner's (agent/cluster/gateway.py
says why). It joins the cluster, counts, and leaves.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection

from ritornello.agent.cluster.engine import Engine
from ritornello.agent.cluster.ray_engine import INIT_S, RaySettings, connect
from ritornello.core.errors import ConfigError, PlatformError
from ritornello.core.process_death import children_deaf_to

MAX_WORKERS = 1_024  # the largest --worker_count
END_S = 10.0  # for the process to leave when it has answered
ANSWER_S = INIT_S + 60.0  # importing Ray and torch takes a minute on a busy machine


def workers_that_fit(address: str, *, is_insecure: bool) -> int:
    """Return for how many workers the machines of a Ray cluster have room now.

    Args:
      address: of its head, as host:port.
      is_insecure: the cluster asks for no token.

    Raises:
      ConfigError: if it cannot be joined, or has room for none.
    """
    settings = RaySettings(address, 1, 0, is_insecure)
    count = ask(partial(connect, settings))
    if not count:
        raise ConfigError(
            f"no machine of the Ray cluster at {address} has room for a worker: `ray start "
            "--num-cpus=N` says how many fit on a machine. With --worker_count=N the run waits for "
            "machines that join."
        )
    if count > MAX_WORKERS:
        raise ConfigError(
            f"the Ray cluster at {address} has room for {count} workers, and a run has at most "
            f"{MAX_WORKERS}: expected --worker_count={MAX_WORKERS} or less."
        )
    return count


def ask(make_engine: Callable[[], Engine], limit_s: float = ANSWER_S) -> int:
    """Return the room on all machines of an engine, which is made in another process.

    Args:
      make_engine: makes the engine.
      limit_s: how long that may take.

    Raises:
      ConfigError: with what the engine says, or if nothing is heard of it.
    """
    ear, mouth = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_count, args=(make_engine, mouth), name="vtrace-room")
    with children_deaf_to(signal.SIGINT):
        process.start()
    mouth.close()
    try:
        answer: int | str = "it did not answer"
        with contextlib.suppress(EOFError):
            if ear.poll(limit_s):
                answer = ear.recv()
    finally:
        ear.close()
        process.join(END_S)
        if process.is_alive():
            process.kill()
            process.join(END_S)
    if isinstance(answer, str):
        raise ConfigError(
            "without --worker_count the cluster is asked how many workers fit: "
            f"{answer.rstrip('.')}. Give --worker_count=N to begin without asking."
        )
    return answer


def _count(make_engine: Callable[[], Engine], mouth: Connection) -> None:
    """Entry point of the process that asks."""
    try:
        engine = make_engine()
        try:
            mouth.send(sum(node.worker_limit for node in engine.nodes()))
        finally:
            engine.close()
    except PlatformError as error:
        mouth.send(str(error))
