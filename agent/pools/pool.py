"""ProcessPool: worker processes over shared memory, and the inference server if there is one.

It starts them, takes in what they send, replaces those that die or fall silent, and ends them. One
process and its life are agent/pools/supervision.py, whether it is replaced is
agent/pools/restarts.py, what the workers do is agent/acting/worker.py. The interface, and its
serial twin, are agent/pools/worker_pool.py and agent/pools/serial_pool.py.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from multiprocessing import connection
from typing import Any

from ritornello.agent.acting.config import ServerConfig, WorkerConfig
from ritornello.agent.pools.places import Place, ServerPlace, WorkerPlace
from ritornello.agent.pools.restarts import GIVING_UP, RestartLimit, failure_of
from ritornello.agent.pools.supervision import State, let_leave
from ritornello.agent.pools.worker_pool import ProcessRow, UnrollBlock
from ritornello.core.errors import WorkerDied
from ritornello.core.warden import Warden
from ritornello.transport.channel import Ready, Stop
from ritornello.transport.weights import WeightBoard

log = logging.getLogger(__name__)

LOOK_S = 0.1  # between two looks at all processes
WORKER_TIMEOUT_S = 120.0


class ProcessPool:
    """Worker processes over shared memory; see `WorkerPool` for which thread may call what.

    Processes are started, waited for and looked at only by `start`, `poll` and `stop`; what other
    threads may ask is answered from plain attributes and from the processes' pulses.
    """

    def __init__(
        self,
        configs: list[WorkerConfig],
        board: WeightBoard,
        *,
        slots: int,
        max_restarts: int,
        server: ServerConfig | None = None,
        worker_timeout_s: float = WORKER_TIMEOUT_S,
        make_place: Callable[..., WorkerPlace] = WorkerPlace,
    ) -> None:
        """Allocate the shared memory; no process is started before `start`.

        Args:
          configs: settings of the workers.
          board: where they find the newest weights.
          slots: number of blocks in the ring of each worker.
          max_restarts: limit on the processes that died within an hour and are replaced, all
            together.
          server: settings of the inference server; None: workers act themselves.
          worker_timeout_s: a process that has done nothing for so long is killed and replaced,
            while it starts after several times that; 0: never.
          make_place: makes the place of a worker.
        """
        self._board = board
        self._max_restarts = max_restarts
        self._timeout_s = worker_timeout_s
        self._warden = Warden()
        self._server = None
        if server is not None:
            self._server = ServerPlace(server, configs, self._warden)
        self.members = [  # the places of the workers; none after `stop`
            make_place(
                config,
                slots,
                None if self._server is None else self._server.mailboxes[index],
                self._warden,
            )
            for index, config in enumerate(configs)
        ]
        self._limit = RestartLimit(max_restarts, len(self._places()))
        self._looked_at = time.monotonic()
        self.restarts = 0
        self.hung = 0  # of those that died: killed for silence
        self.lost_unrolls = 0

    def _places(self) -> list[Place]:
        """Return all places, in the order in which processes are started."""
        return [*([] if self._server is None else [self._server]), *self.members]

    def start(self) -> None:
        """Start every process.

        Raises:
          WorkerDied: if the system starts no more; `stop` ends those that run.
        """
        self._warden.keep_own_children()
        for place in self._places():
            try:
                place.launch(self._board)
            except OSError as error:
                raise WorkerDied(
                    f"{place.life.name} could not be started: {error}; let fewer processes run "
                    "(--worker_count), or raise the limits of the system (ulimit -u, -n)"
                ) from error

    def poll(self, timeout_s: float) -> list[UnrollBlock]:
        """Return ready blocks; ends processes that hang and replaces those that are gone.

        It never waits for a single process, and not much longer than `timeout_s` for all.

        Raises:
          WorkerDied: when processes died more often than allowed; carries the last cause.
        """
        self._launch_due()
        blocks: list[UnrollBlock] = []
        ready = self._wait(timeout_s)
        for place in self._places():
            if place.life.state is State.ENDING or place.life.connection in ready:
                blocks += self._take(place)
        self._look_after()
        return blocks

    def _wait(self, timeout_s: float) -> set[Any]:
        """Return the connections on which something has come; also when something is due."""
        now = time.monotonic()
        signs: list[Any] = []
        for place in self._places():
            if place.life.connection is not None:
                signs.append(place.life.connection)
            if place.life.state is State.ENDING:
                signs.append(place.life.process.sentinel)
            if place.life.relaunch_at is not None:
                timeout_s = min(timeout_s, max(0.0, place.life.relaunch_at - now))
        return set(connection.wait(signs, timeout_s))

    def _take(self, place: Place) -> list[UnrollBlock]:
        """Return the blocks that a worker has sent."""
        ready = place.receive()
        blocks = [self._block(place, r) for r in ready] if isinstance(place, WorkerPlace) else []
        if place.life.connection is None:
            place.life.begin_to_end()
        return blocks

    def _block(self, member: WorkerPlace, ready: Ready) -> UnrollBlock:
        member.unrolls += member.config.num_envs
        self._limit.book_progress()
        return UnrollBlock(
            worker_id=member.config.worker_id,
            records=member.ring.take(ready.slot),
            episodes=ready.episodes,
            stats=ready.stats,
            release=lambda: member.free(ready.slot),
        )

    # --- looking after processes -------------------------------------------------------------

    def _look_after(self) -> None:
        """Attend to each process: now and then, and at once when one ends."""
        ends = any(place.life.state is State.ENDING for place in self._places())
        now = time.monotonic()
        if now - self._looked_at < LOOK_S and not ends:
            return
        self._looked_at = now
        for place in self._places():
            life = place.life
            if life.state is State.ENDING:
                self._end(place)
            elif life.is_running and life.has_died():
                # Its pipe is held open by a child of it. What it said is read before it is buried.
                life.begin_to_end()
            elif life.is_running:
                life.listen(self._timeout_s)

    def _end(self, place: Place) -> None:
        """Report a death with its cause, if the process is gone, and say when it is replaced."""
        life = place.life
        cause = life.cause_of_end()
        if cause is None:
            return
        words = life.last_words()
        failure = failure_of(life.failure) if life.failure else re.sub(r"\d", "", cause)
        text = f"{life.name} (pid {life.pid}) {cause}{place.bury()}"
        self.hung += bool(life.hung)
        self.lost_unrolls += place.lost_unrolls
        self._replace(place, text, words, failure)

    def _replace(self, place: Place, text: str, words: str, failure: str) -> None:
        """Log who died of what, and when it is replaced; raise WorkerDied if it is not."""
        now = time.monotonic()
        verdict = self._limit.book_death(place.life.name, failure, now)
        if words:
            text += f". Its last words:\n{words}"
        if verdict.reason_to_give_up:
            raise WorkerDied(f"{text}\n{verdict.reason_to_give_up}{GIVING_UP}")
        self.restarts += 1
        when = f" in {verdict.delay_s:g} s" if verdict.delay_s else ""
        log.warning(
            "%s; restarting%s (%d of %d in an hour)",
            text, when, verdict.recent, self._max_restarts,
        )  # fmt: skip
        place.life.relaunch_at = now + verdict.delay_s

    def _launch_due(self) -> None:
        now = time.monotonic()
        for place in self._places():
            if place.life.relaunch_at is not None and now >= place.life.relaunch_at:
                try:
                    place.launch(self._board)
                except OSError as error:
                    text = f"{place.life.name} could not be started: {error}"
                    self._replace(place, text, "", str(error))

    # --- reports -----------------------------------------------------------------------------

    def alive(self) -> int:
        """Return the number of worker processes that run, as far as the last `poll` has seen."""
        return sum(member.life.is_running for member in self.members)

    def stats(self) -> dict[str, float]:
        """Return metrics by name."""
        return {
            "workers/alive": float(self.alive()),
            "workers/restarts": float(self.restarts),
            "workers/hung": float(self.hung),
            "workers/lost_unrolls": float(self.lost_unrolls),
        }

    def describe(self) -> list[str]:
        """Return a line for each process: what it does, and for how long."""
        return [place.life.describe() for place in self._places()]

    def processes(self) -> list[ProcessRow]:
        """Return a row for each process: the server, if there is one, then the workers."""
        rows = []
        for place in self._places():
            part, number, unrolls = "server", 0, 0
            if isinstance(place, WorkerPlace):
                part, number, unrolls = "workers", place.config.worker_id, place.unrolls
            rows.append(ProcessRow(part, number, place.config.life, *place.life.present(), unrolls))
        return rows

    # --- the end -----------------------------------------------------------------------------

    def stop(self, grace_s: float) -> None:
        """Ask, then terminate, then kill; within `grace_s` and some seconds.

        The rings go with the last process that maps them.
        """
        members, self.members = self.members, []
        server, self._server = self._server, None
        for member in members:
            member.life.send(Stop())
        # Workers whose server is dead would wait for an answer rather than for the end.
        can_finish = server is None or server.life.is_running
        let_leave((member.life.process for member in members), grace_s if can_finish else 0.0)
        if server is not None:  # after the workers, who need its answers to finish their unrolls
            server.life.hang_up()
            let_leave([server.life.process], grace_s)
        for member in members:
            member.receive()
            if member.life.failure and member.life.state is not State.ABSENT:  # else it was said
                log.warning("%s failed as it left:\n%s", member.life.name, member.life.failure)
        places: list[Place] = [*members, *([] if server is None else [server])]
        for place in places:
            place.life.clear()
            place.life.close()
        self._warden.close()
