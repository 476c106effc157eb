"""SerialPool: workers that take turns in the caller's thread.

The reference implementation of a `WorkerPool` (agent/pools/worker_pool.py), used by
`--reproducible` and by tests: deterministic, and it can be put back to where it was.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from ritornello.agent.acting.config import WorkerConfig
from ritornello.agent.acting.worker import WorkerBody
from ritornello.agent.pools.supervision import CLOSE_WAIT_S
from ritornello.agent.pools.worker_pool import UnrollBlock
from ritornello.core.errors import WorkerDied
from ritornello.core.plain_data import shown_text
from ritornello.core.process_death import end_own_children, own_children
from ritornello.core.saved_state import expect, items, whole, within
from ritornello.core.standard_error import told_while_waiting
from ritornello.core.warden import Warden
from ritornello.transport.lifeline import Phase
from ritornello.transport.weights import WeightBoard
from ritornello.wrappers.user_code import PATIENCE_S, where_it_is

log = logging.getLogger(__name__)


class SerialPool:
    """Workers that take turns in the caller's thread: deterministic, restorable.

    Nothing is ever replaced: whatever fails ends the run. Environments that do not come back are
    told of, and none is given more than CLOSE_WAIT_S to close.
    """

    def __init__(self, configs: list[WorkerConfig], board: WeightBoard) -> None:
        """Build nothing yet; see `start`."""
        self._configs = configs
        self._board = board
        self._bodies: list[WorkerBody] = []
        self._turn = 0
        self._warden = Warden()  # environments may own processes
        self._started: set[int] = set()  # ids of what building them has started
        self._watch = contextlib.ExitStack()
        self._asked = ""  # the environment that is waited for now
        self._beats = 0  # how often they have come back

    def start(self) -> None:
        """Build every worker's environments and model."""
        self._warden.keep_own_children()
        before = own_children()  # later ones may be a tracker's, which has still to send
        try:
            for config in self._configs:
                with _exits_are_failures(config.worker_id):
                    self._bodies.append(WorkerBody(config, self._board, beat=self._beat))
        finally:
            self._started = own_children() - before
        self._tell_if_slow()

    def poll(self, timeout_s: float) -> list[UnrollBlock]:
        """Collect one block from the worker whose turn it is.

        Raises:
          WorkerDied: if an environment wants to end the program.
        """
        config, body = self._configs[self._turn], self._bodies[self._turn]
        self._turn = (self._turn + 1) % len(self._bodies)
        block = config.schema().allocate(config.num_envs)
        with self._asking(config), _exits_are_failures(config.worker_id):
            episodes, stats = body.collect(block)
        return [UnrollBlock(config.worker_id, block, episodes, stats, lambda: None)]

    def alive(self) -> int:
        """Return the number of workers."""
        return len(self._bodies)

    def stats(self) -> dict[str, float]:
        """Return metrics by name."""
        return {
            "workers/alive": float(self.alive()),
            "workers/restarts": 0.0,
            "workers/hung": 0.0,
            "workers/lost_unrolls": 0.0,
        }

    def describe(self) -> list[str]:
        """Return nothing: there is no process besides the caller's."""
        return []

    def stop(self, grace_s: float) -> None:
        """Close all environments, also after one that fails to; raises the last failure."""
        bodies, self._bodies = self._bodies, []
        with contextlib.ExitStack() as stack:
            stack.callback(self._watch.close)
            stack.callback(self._warden.close)
            stack.callback(end_own_children, self._started)
            for config, body in zip(self._configs, bodies, strict=False):  # some were never built
                stack.callback(self._close, config, body)

    def state_dict(self) -> dict[str, Any]:
        """Return whose turn it is and the state of every rollout."""
        return {
            "turn": self._turn,
            "rollouts": [body.rollout.state_dict() for body in self._bodies],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where `state_dict` was taken.

        Raises:
          StateError: if it is of other workers.
        """
        self._turn = whole(state, "turn")
        expect(self._turn < len(self._bodies), f"a turn below {len(self._bodies)}", "turn")
        rollouts = items(state, "rollouts", dict)
        for number, (body, rollout) in enumerate(zip(self._bodies, rollouts, strict=True)):
            with within("rollouts", number), self._asking(self._configs[number]):
                body.rollout.load_state_dict(rollout)

    def _close(self, config: WorkerConfig, body: WorkerBody) -> None:
        with self._asking(config), _interrupted_after(CLOSE_WAIT_S):
            body.close()

    def _beat(self, phase: Phase) -> None:
        self._beats += 1

    @contextlib.contextmanager
    def _asking(self, config: WorkerConfig) -> Iterator[None]:
        """Note for the time of a block that environments of a worker are waited for."""
        self._asked = shown_text(config.env_config.env_id)
        try:
            yield
        finally:
            self._asked = ""

    def _tell_if_slow(self) -> None:
        """Log from now on, until `stop`, where an environment is that does not come back."""
        caller = threading.get_ident()

        def progress() -> object:
            return self._beats if self._asked else object()  # as long as nobody waits, always new

        def where(waited_s: float) -> str:
            return (
                f"env {self._asked} has not come back for {waited_s:.0f} s.{where_it_is(caller)} "
                "Still waiting; a second Ctrl-C leaves at once, with what is saved."
            )

        patience = told_while_waiting(where, PATIENCE_S, progress=progress, tell=log.warning)
        self._watch.enter_context(patience)


@contextlib.contextmanager
def _exits_are_failures(worker_id: int) -> Iterator[None]:
    """Turn an environment's exit into a failure with a cause, so that it does not end the program.

    A KeyboardInterrupt passes if it may be the user's: if Python's own handler of Ctrl-C is in
    place. A run has another (core/stop_signals.py), so there it is the environment's.
    """
    try:
        yield
    except (SystemExit, KeyboardInterrupt) as error:
        users = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if isinstance(error, KeyboardInterrupt) and users:
            raise
        raise WorkerDied(
            f"worker {worker_id} failed: its environment raised {error!r}, which ends a program. "
            "An environment says that a game is over by its return values; where its code calls "
            "sys.exit(), the traceback above shows."
        ) from error


@contextlib.contextmanager
def _interrupted_after(limit_s: float) -> Iterator[None]:
    """Raise TimeoutError in the block when it takes too long, again and again until it ends.

    It is raised where the code is, which need not look at any clock. In another thread than the
    main one, where Python raises nothing, it is waited for without end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: object) -> None:
        raise TimeoutError(f"it had not come back after {limit_s:g} s")

    previous = signal.signal(signal.SIGALRM, ring)
    timer = signal.setitimer(signal.ITIMER_REAL, limit_s, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        signal.setitimer(signal.ITIMER_REAL, *timer)
