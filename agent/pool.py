"""Worker pools: the seam where one process, many, and (later) a cluster are interchangeable.

`SerialPool` runs the rollout in the caller's thread; it is the reference implementation, used by
`--reproducible` and by tests. `ProcessPool` starts, polls, restarts and stops worker processes, and
the inference server if there is one.
"""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from multiprocessing import connection
from typing import Any, Protocol

from agent.inference_server import ServerConfig, group_sizes, server_main
from agent.worker import WorkerBody, WorkerConfig, worker_main
from core import faults
from core.episode import EpisodeEnd
from core.errors import WorkerDied
from core.unroll import Record
from transport.channel import Failed, Ready, WorkerChannel, WorkerStats
from transport.mailbox import Bell, Mailbox
from transport.ring import UnrollRing
from transport.weights import WeightBoard

log = logging.getLogger(__name__)

EXIT_WAIT_S = 5.0  # a process that has closed its pipe is only being taken down by the system


@dataclass(frozen=True)
class UnrollBlock:
    """One unroll of each environment of one worker. Read-only and valid until `release()`."""

    worker_id: int
    records: Record  # [E, nbytes] uint8
    version: int
    episodes: tuple[EpisodeEnd, ...]
    stats: WorkerStats
    release: Callable[[], None]


class WorkerPool(Protocol):
    """Where experience comes from."""

    restarts: int

    def start(self) -> None:
        """Start all workers."""

    def poll(self, timeout_s: float) -> list[UnrollBlock]:
        """Return the blocks that are ready, waiting at most `timeout_s` for the first."""

    def alive(self) -> int:
        """Return the number of workers that run."""

    def stop(self, grace_s: float) -> None:
        """Stop all workers and free what they held. May be called twice."""


class SerialPool:
    """Workers that take turns in the caller's thread: deterministic, restorable."""

    def __init__(self, configs: list[WorkerConfig], board: WeightBoard) -> None:
        """Build nothing yet; see `start`."""
        self._configs = configs
        self._board = board
        self._bodies: list[WorkerBody] = []
        self._turn = 0
        self.restarts = 0

    def start(self) -> None:
        """Build every worker's environments and model."""
        self._bodies = [WorkerBody(config, self._board) for config in self._configs]

    def poll(self, timeout_s: float) -> list[UnrollBlock]:
        """Collect one block from the worker whose turn it is."""
        config, body = self._configs[self._turn], self._bodies[self._turn]
        self._turn = (self._turn + 1) % len(self._bodies)
        block = config.schema().allocate(config.num_envs)
        version, episodes, stats = body.collect(block)
        return [UnrollBlock(config.worker_id, block, version, episodes, stats, lambda: None)]

    def alive(self) -> int:
        """Return the number of workers."""
        return len(self._bodies)

    def stop(self, grace_s: float) -> None:
        """Close the environments."""
        for body in self._bodies:
            body.close()
        self._bodies = []

    def state_dict(self) -> dict[str, Any]:
        """Return whose turn it is and the state of every rollout."""
        return {
            "turn": self._turn,
            "rollouts": [body.rollout.state_dict() for body in self._bodies],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state_dict` was taken."""
        self._turn = int(state["turn"])
        for body, rollout in zip(self._bodies, state["rollouts"], strict=True):
            body.rollout.load_state_dict(rollout)


@dataclass
class _Member:
    """A worker's process of the present, with the channel that it keeps through its lives."""

    config: WorkerConfig
    channel: WorkerChannel
    mailbox: Mailbox | None  # of the inference server, if there is one
    process: Any = None  # a multiprocessing Process of the spawn context
    unrolls: int = 0  # received in this life
    failure: str = ""  # traceback that the worker sent before it left


class _Server:
    """The inference server's process of the present, and the mailboxes that it serves for good."""

    def __init__(self, config: ServerConfig, workers: list[WorkerConfig]) -> None:
        """Allocate a mailbox per worker; no process is started before `launch`."""
        self.config = config
        self.doorbell = Bell()
        self.mailboxes = [
            Mailbox(
                worker.env_spec,
                group_sizes(worker.num_envs),
                worker.feature_count,
                self.doorbell,
                worker.state_count,
            )
            for worker in workers
        ]
        self.process: Any = None
        self.connection: connection.Connection  # says that it died, and its last words

    def launch(self, context: Any, board: WeightBoard) -> None:
        """Start the process, also in the place of one that died."""
        self.connection, theirs = multiprocessing.Pipe(duplex=True)
        self.process = context.Process(
            target=server_main,
            args=(self.config, theirs, self.mailboxes, self.doorbell, board),
            name="vtrace-server",
            daemon=True,
        )
        self.process.start()
        theirs.close()  # or its death would not be seen

    def last_words(self) -> str:
        """Return the traceback that a server that died has left, or nothing."""
        try:
            return str(self.connection.recv())
        except (EOFError, OSError):
            return ""
        finally:
            self.connection.close()

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.is_alive()

    def stop(self, grace_s: float) -> None:
        """Ask it to leave, then make it."""
        if self.process is not None:
            self.connection.close()
            _leave([self.process], grace_s)


class ProcessPool:
    """Worker processes over shared memory. Used by one thread (the ingest thread)."""

    def __init__(
        self,
        configs: list[WorkerConfig],
        board: WeightBoard,
        *,
        slots: int,
        max_restarts: int,
        server: ServerConfig | None = None,
    ) -> None:
        """Allocate the shared memory; no process is started before `start`.

        Args:
          configs: of the workers.
          board: where they find the newest weights.
          slots: blocks in the ring of each worker.
          max_restarts: how often processes that died are replaced, all together.
          server: of the inference server; None: workers act themselves.
        """
        self._board = board
        self._max_restarts = max_restarts
        self._context = multiprocessing.get_context("spawn")
        self._server = None if server is None else _Server(server, configs)
        self._members = []
        for index, config in enumerate(configs):
            schema = config.schema()
            ring = UnrollRing(slots, config.num_envs, schema.nbytes, poison=schema.poison)
            mailbox = None if self._server is None else self._server.mailboxes[index]
            self._members.append(_Member(config, WorkerChannel(ring), mailbox))
        self.restarts = 0

    def start(self) -> None:
        """Start every process."""
        if self._server is not None:
            self._server.launch(self._context, self._board)
        for member in self._members:
            self._launch(member)

    def _launch(self, member: _Member) -> None:
        faults.at("pool.launch")
        end = member.channel.open()
        member.process = self._context.Process(
            target=worker_main,
            args=(member.config, end, self._board, member.mailbox),
            name=f"vtrace-worker-{member.config.worker_id}",
            daemon=True,
        )
        member.process.start()
        # While this process holds a copy of the worker's end, its death would not be seen.
        end.close()

    def poll(self, timeout_s: float) -> list[UnrollBlock]:
        """Return ready blocks; restarts processes that died.

        Raises:
          WorkerDied: when processes died more often than allowed; carries the last cause.
        """
        by_connection = {member.channel.connection: member for member in self._members}
        servers = [] if self._server is None else [self._server.connection]
        blocks: list[UnrollBlock] = []
        for ready in connection.wait([*by_connection, *servers], timeout_s):
            if ready in servers:
                self._revive_server()
                continue
            member = by_connection[ready]  # type: ignore[index]
            messages = member.channel.poll()
            blocks += [
                self._block(member, message) for message in messages if isinstance(message, Ready)
            ]
            for message in messages:
                if isinstance(message, Failed):
                    member.failure = message.traceback
            if member.channel.ended:
                self._revive(member)
        return blocks

    def _block(self, member: _Member, ready: Ready) -> UnrollBlock:
        member.unrolls += member.config.num_envs
        return UnrollBlock(
            worker_id=member.config.worker_id,
            records=member.channel.ring.take(ready.slot),
            version=ready.version,
            episodes=ready.episodes,
            stats=ready.stats,
            release=lambda: member.channel.free(ready.slot),
        )

    def _revive(self, member: _Member) -> None:
        """Report a death with its cause, then start the worker anew."""
        faults.at("pool.revive")
        cause = _end(member.process)
        if member.failure:
            cause = "failed"
        text = (
            f"worker {member.config.worker_id} (pid {member.process.pid}) {cause} "
            f"after {member.unrolls} unrolls"
        )
        lost = member.channel.ring.reclaim()
        if lost:
            text += f"; {lost} unfinished {'block' if lost == 1 else 'blocks'} lost"
        self._count_death(text, member.failure)
        # Another life, another random stream: a restarted worker does not repeat its games.
        member.config = replace(member.config, life=member.config.life + 1, fault_plan=())
        member.unrolls, member.failure = 0, ""
        self._launch(member)

    def _revive_server(self) -> None:
        """Report the server's death, then start it anew; workers wait for it meanwhile."""
        server = self._server
        assert server is not None
        words = server.last_words()
        cause = _end(server.process)
        if words:
            cause = "failed"
        self._count_death(f"inference server (pid {server.process.pid}) {cause}", words)
        server.config = replace(server.config, life=server.config.life + 1, fault_plan=())
        server.launch(self._context, self._board)

    def _count_death(self, text: str, last_words: str) -> None:
        """Say who died of what, and raise WorkerDied if it was one too many."""
        if last_words:
            text += f". Its last words:\n{last_words}"
        if self.restarts >= self._max_restarts:
            raise WorkerDied(
                f"{text}\nWorkers were restarted {self.restarts} times already "
                "(--max_worker_restarts); giving up."
            )
        self.restarts += 1
        log.warning("%s; restarting (%d of %d)", text, self.restarts, self._max_restarts)

    def alive(self) -> int:
        """Return the number of worker processes that run."""
        return sum(m.process is not None and m.process.is_alive() for m in self._members)

    def stop(self, grace_s: float) -> None:
        """Ask, then terminate, then kill. The rings go with the last process that maps them."""
        members, self._members = self._members, []
        server, self._server = self._server, None
        for member in members:
            member.channel.stop()
        # Workers whose server is dead would wait for an answer rather than for the end.
        can_finish = server is None or server.is_alive()
        _leave((member.process for member in members), grace_s if can_finish else 0.0)
        for member in members:
            member.channel.close()
        if server is not None:
            server.stop(grace_s)  # after the workers, who need its answers to finish their unrolls


def _leave(processes: Iterable[Any], grace_s: float) -> None:
    """Wait for processes that were asked to leave, and end those that do not."""
    started = [process for process in processes if process is not None]
    deadline = time.monotonic() + grace_s
    for process in started:
        process.join(max(0.0, deadline - time.monotonic()))
    for ask in ("terminate", "kill"):
        for process in started:
            if process.is_alive():
                getattr(process, ask)()
                process.join(1.0)


def _end(process: Any) -> str:
    """Wait for a process that has closed its pipe, and say how it ended."""
    process.join(EXIT_WAIT_S)
    code = process.exitcode
    if code is None:
        process.kill()
        process.join(1.0)
        return f"closed its pipe, did not end within {EXIT_WAIT_S:g} s and was killed"
    return f"was killed by signal {-code}" if code < 0 else f"left with exit code {code}"
