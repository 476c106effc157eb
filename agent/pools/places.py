"""The places of a pool: a worker's and the inference server's, each with what it keeps for good.

A place outlives the processes that live in it one after the other: its shared memory and its number
stay. `Supervised` (agent/pools/supervision.py) starts, watches and ends the processes.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing import connection
from typing import TYPE_CHECKING, Any

from ritornello.agent.acting.config import ServerConfig, WorkerConfig, group_sizes
from ritornello.agent.pools.supervision import Supervised
from ritornello.core.warden import Warden
from ritornello.transport.channel import Failed, ToLearner, WorkerChannel, WorkerEnd
from ritornello.transport.ring import UnrollRing
from ritornello.transport.weights import WeightBoard

if TYPE_CHECKING:
    from ritornello.transport.mailbox import Mailbox


def run_worker(*arguments: Any) -> None:
    """Be a worker: its program is loaded in its own process alone."""
    from ritornello.agent.acting.worker import worker_main

    worker_main(*arguments)


def run_server(*arguments: Any) -> None:
    """Be the inference server, likewise."""
    from ritornello.agent.acting.inference_server import server_main

    server_main(*arguments)


class WorkerPlace:
    """A worker's place: its channel, kept through its lives, and the process of the present."""

    def __init__(
        self, config: WorkerConfig, slots: int, mailbox: Mailbox | None, warden: Warden,
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        """Allocate the ring; no process is started before `launch`.

        Args:
          config: settings of the first process.
          slots: number of blocks in the ring.
          mailbox: of the inference server, if there is one.
          warden: ends the process if this one is killed.
          clock: monotonic clock, in seconds.
        """
        self.config = config
        schema = config.schema()
        ring = UnrollRing(slots, config.num_envs, schema.nbytes, poison=schema.poison)
        self.channel = WorkerChannel(ring)
        self.mailbox = mailbox
        self.life = Supervised(f"worker {config.worker_id}", warden, clock)
        self.unrolls = 0  # received in this life
        self.failure = ""  # traceback that the worker sent before it left
        self.lost_unrolls = 0  # with the process before

    @property
    def process(self) -> Any:
        """The process of the present, or the last one."""
        return self.life.process

    def launch(self, board: WeightBoard) -> None:
        """Start a process, also in the place of one that died."""
        end = self.channel.open()
        self.unrolls = 0
        try:
            self.life.launch(*self.entry(end, board))
        except OSError:
            self.channel.close()
            raise
        finally:
            # While this process holds a copy of the worker's end, its death would not be seen.
            end.close()

    def entry(
        self, end: WorkerEnd, board: WeightBoard
    ) -> tuple[Callable[..., None], Sequence[Any]]:
        """Return what the process runs, and its arguments."""
        return run_worker, (self.config, end, board, self.mailbox)

    def connections(self) -> list[connection.Connection]:
        """Return what to wait for."""
        return [] if self.channel.ended else [self.channel.connection]

    def receive(self) -> list[ToLearner]:
        """Return what has come, without waiting; afterwards `failure` is known, if any."""
        messages = self.channel.poll()
        for message in messages:
            if isinstance(message, Failed):
                self.failure, self.life.failed = message.traceback, True
        return messages

    def has_hung_up(self) -> bool:
        """Whether nothing can come any more."""
        return self.channel.ended

    def bury(self) -> str:
        """Take back what a process that is gone has held; return what was lost, for a message."""
        self.channel.close()
        lost = self.channel.ring.reclaim()
        self.lost_unrolls = lost * self.config.num_envs
        self.failure = ""
        # Another life, another random stream: a restarted worker does not repeat its games.
        self.config = replace(self.config, life=self.config.life + 1)
        text = f" after {self.unrolls} unrolls"
        if lost:
            text += f"; {lost} unfinished {'block' if lost == 1 else 'blocks'} lost"
        return text


class ServerPlace:
    """The inference server's place, and the mailboxes that it serves for good."""

    lost_unrolls = 0  # workers only wait for its successor

    def __init__(
        self, config: ServerConfig, workers: list[WorkerConfig], warden: Warden,
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        """Allocate a mailbox per worker; no process is started before `launch`.

        Args:
          config: settings of the first process.
          workers: settings of the workers that will ask.
          warden: ends the process if this one is killed.
          clock: monotonic clock, in seconds.
        """
        from ritornello.transport.mailbox import Bell, Mailbox

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
        self.life = Supervised("inference server", warden, clock)
        self.failure = ""
        self._connection: connection.Connection | None = None  # says that it died, its last words

    @property
    def process(self) -> Any:
        """The process of the present, or the last one."""
        return self.life.process

    def launch(self, board: WeightBoard) -> None:
        """Start a process, also in the place of one that died."""
        self._connection, theirs = multiprocessing.Pipe(duplex=True)
        try:
            self.life.launch(
                run_server, (self.config, theirs, self.mailboxes, self.doorbell, board)
            )
        except OSError:
            self.hang_up()
            raise
        finally:
            theirs.close()  # or its death would not be seen

    def connections(self) -> list[connection.Connection]:
        """Return what to wait for."""
        return [] if self._connection is None else [self._connection]

    def receive(self) -> list[ToLearner]:
        """Read its last words, if it has said them. It sends nothing else."""
        try:
            if self._connection is not None and self._connection.poll(0):
                self.failure, self.life.failed = str(self._connection.recv()), True
        except (EOFError, OSError):
            self.hang_up()
        return []

    def has_hung_up(self) -> bool:
        """Whether nothing can come any more."""
        return self._connection is None

    def hang_up(self) -> None:
        """Close the pipe: a server that runs takes it for the wish to end. Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def bury(self) -> str:
        """Be ready for a successor."""
        self.hang_up()
        self.failure = ""
        self.config = replace(self.config, life=self.config.life + 1)
        return ""


Place = WorkerPlace | ServerPlace
