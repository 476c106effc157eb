"""The places of a pool: a worker's and the inference server's, each with what it keeps for good.

A place outlives the processes that live in it one after the other: its shared memory and its number
stay. `Supervised` (agent/pools/supervision.py) starts, watches and ends the processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ritornello.agent.acting.config import ServerConfig, WorkerConfig, group_sizes
from ritornello.agent.pools.supervision import Supervised
from ritornello.core.episode import EpisodeEnd
from ritornello.core.warden import Warden
from ritornello.transport.channel import Free, Games, Ready, Report
from ritornello.transport.ring import UnrollRing
from ritornello.transport.weights import WeightBoard

if TYPE_CHECKING:
    from ritornello.transport.mailbox import Mailbox

Entry = tuple[Callable[..., None], Sequence[Any]]  # what a process runs, and its arguments


def run_worker(*arguments: Any) -> None:
    """Run a worker. Its program is imported here, so that only its own process loads it."""
    from ritornello.agent.acting.worker import worker_main

    worker_main(*arguments)


def run_server(*arguments: Any) -> None:
    """Run the inference server, likewise."""
    from ritornello.agent.acting.inference_server import server_main

    server_main(*arguments)


class Place:
    """The place of a process in a pool, and its present process."""

    lost_unrolls = 0  # with the process before

    def __init__(self, name: str, config: Any, warden: Warden) -> None:
        """Start nothing before `launch`. `life` of `config` is that of the first process."""
        self.config = config
        self.life = Supervised(name, warden)

    def launch(self, board: WeightBoard) -> None:
        """Start a process, also in place of one that died; raise OSError if that is impossible."""
        self.life.launch(*self.entry(board))

    def entry(self, board: WeightBoard) -> Entry:
        """Return the process's entry point, and its arguments but for those of `Supervised`."""
        raise NotImplementedError

    def receive(self) -> list[Ready]:
        """Return the blocks that have come, without waiting."""
        self.life.receive()
        return []

    def bury(self) -> str:
        """Take back what a dead process has held; return what was lost, for a message."""
        # Another life, another random stream: a restarted worker does not repeat its games.
        self.config = replace(self.config, life=self.config.life + 1)
        return ""


class WorkerPlace(Place):
    """A worker's place, with its ring."""

    def __init__(
        self, config: WorkerConfig, slots: int, mailbox: Mailbox | None, warden: Warden
    ) -> None:
        """Allocate a ring of `slots` blocks. `mailbox` is that of an inference server, or None."""
        super().__init__(f"worker {config.worker_id}", config, warden)
        self.ring = UnrollRing(slots, config.num_envs, config.schema().nbytes)
        self.mailbox = mailbox
        self.unrolls = 0  # received in this life
        self._games: tuple[EpisodeEnd, ...] = ()  # of the block that is announced next

    def launch(self, board: WeightBoard) -> None:
        """Start a process, also in place of one that died; raise OSError if that is impossible."""
        self.unrolls, self._games = 0, ()
        super().launch(board)

    def entry(self, board: WeightBoard) -> Entry:
        """Return the entry point of the process, and its arguments."""
        return run_worker, (self.config, self.ring, board, self.mailbox)

    def receive(self) -> list[Ready]:
        """Return the blocks that have come, without waiting, with all games that ended in them."""
        blocks = []
        for message in self.life.receive():
            if isinstance(message, Report):
                self.hear(message)
            elif isinstance(message, Games):
                self._games += message.episodes
            else:
                blocks.append(replace(message, episodes=self._games + message.episodes))
                self._games = ()
        return blocks

    def hear(self, report: Report) -> None:
        """Handle a report that belongs to no block. A worker of this machine sends none."""

    def free(self, slot: int) -> None:
        """Release a slot that has been read, and wake the worker."""
        self.ring.release(slot)
        self.life.send(Free(slot))

    def bury(self) -> str:
        """Take back the slots of a dead worker; return what was lost, for a message."""
        super().bury()
        lost = self.ring.reclaim()
        self.lost_unrolls = lost * self.config.num_envs
        text = f" after {self.unrolls} unrolls"
        if lost:
            text += f"; {lost} unfinished {'block' if lost == 1 else 'blocks'} lost"
        return text


class ServerPlace(Place):
    """The inference server's place, with the mailboxes that all its processes serve."""

    def __init__(self, config: ServerConfig, workers: list[WorkerConfig], warden: Warden) -> None:
        """Allocate a mailbox for each of the workers that will ask."""
        from ritornello.transport.mailbox import Bell, Mailbox

        super().__init__("inference server", config, warden)
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

    def entry(self, board: WeightBoard) -> Entry:
        """Return the entry point of the process, and its arguments."""
        return run_server, (self.config, self.mailboxes, self.doorbell, board)
